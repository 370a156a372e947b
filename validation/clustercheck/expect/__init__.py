"""Expectations: physics, hardware profiles, baselines."""
