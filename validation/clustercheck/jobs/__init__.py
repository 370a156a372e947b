"""Programs that run on the nodes: standard library plus Paddle (or PyTorch) alone."""
