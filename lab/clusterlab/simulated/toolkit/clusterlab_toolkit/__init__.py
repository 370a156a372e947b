"""What the simulated NVIDIA Container Toolkit does. Standard library only; runs in nodes.

A container gets nvidia-smi, NVML, the device files, and what the simulated driver tells of the hardware.
nvidia-smi is a Python program: where the container has no python3, the node's own, mounted under
/usr/lib/clusterlab/guest, runs it.
"""
