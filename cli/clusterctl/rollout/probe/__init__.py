"""One look at a host for all that the last good apply asked of it: nothing to do, or the whole road."""
