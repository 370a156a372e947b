"""Starts distributed jobs on every rank, watches them, and says what each rank said."""
