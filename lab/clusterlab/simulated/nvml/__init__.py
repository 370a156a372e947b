"""The simulated NVML and nvidia-smi.

Packed as libnvidia-ml.so.<version>, a zip that Python imports: one file, as the real library is, which a
container runtime can mount. Runs in nodes and containers with nothing but the standard library.
"""
