"""clusterctl: from bare GPU servers to a cluster proved fit for distributed training."""
