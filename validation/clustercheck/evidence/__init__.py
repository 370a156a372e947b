"""What is known of nodes, GPUs and jobs before anything is judged: collected, bounded, read on demand."""
