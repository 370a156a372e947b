"""Drift: which hosts are still as the last good apply left them, found without starting Ansible for them.

`probe.py` is the interface; the other modules of this room are for it alone (import-linter holds that).
docs/second-apply.md explains how it works, and what it guarantees.
"""
