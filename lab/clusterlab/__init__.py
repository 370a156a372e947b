"""clusterlab: a fleet of simulated GPU servers on this machine, reached over real SSH."""
