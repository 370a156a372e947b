"""clustercheck: judges a GPU cluster. Knows nothing of Ansible or of clusterctl."""
