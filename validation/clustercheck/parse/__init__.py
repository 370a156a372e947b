"""Readers of what tools print or write: nvidia-smi, nccl-tests, NCCL, DCGM, perftest, the kernel."""
