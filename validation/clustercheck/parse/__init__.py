"""Readers of what tools print: nvidia-smi, nccl-tests, kernel log."""
