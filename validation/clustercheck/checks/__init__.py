"""Checks: one module each, in the order in which they are reported."""
