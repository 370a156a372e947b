"""The simulated container toolkit: programs, units, and the module that they share (clusterlab_toolkit)."""
