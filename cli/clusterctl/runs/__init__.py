"""The store of runs: one directory each, kept for ever."""
