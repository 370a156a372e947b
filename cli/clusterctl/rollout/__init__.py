"""Waves and the gate between them."""
