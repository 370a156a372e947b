"""Devices by framework: each module has open_device(place). Shipped to nodes with the programs."""
