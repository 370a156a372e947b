"""What is simulated in a lab node: its kernel modules and bus, NVIDIA's driver, and the container toolkit."""
