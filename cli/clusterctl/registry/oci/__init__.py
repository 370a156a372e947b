"""The OCI distribution protocol: what registries are asked, and what they answer."""
