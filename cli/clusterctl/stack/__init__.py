"""The software stack of each kind of host: what is declared and known of it, and whether it fits together."""
