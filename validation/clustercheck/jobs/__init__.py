"""Programs that run on the nodes: only the standard library and Paddle or PyTorch."""
