"""Fault isolation: which node, GPU, link, rail or switch makes a group slow, or its sums wrong."""
