"""The private registry: API, reconciler, images by digest."""
