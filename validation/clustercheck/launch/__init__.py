"""Starts distributed jobs on every rank, supervises them, and returns what each rank reported."""
