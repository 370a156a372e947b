"""clusterctl: from bare GPU servers to a cluster proved fit for distributed training."""

__version__ = "0.1.0"
