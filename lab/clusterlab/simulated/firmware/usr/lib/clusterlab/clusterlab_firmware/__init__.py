"""The simulated machine under a lab node's operating system: its PCI bus and its kernel modules.

Runs inside nodes with nothing but Python's standard library.
"""
