"""Images from upstream to the cluster's registry, by digest: locked, mirrored, verified, carried."""
