"""Images of the lab, built from the distribution's packages: no registry is needed."""
