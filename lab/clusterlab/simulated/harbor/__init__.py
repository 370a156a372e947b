"""A stand-in Harbor: simulated, and saying so."""
