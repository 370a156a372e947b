"""What the operator declared: inventory, settings, lock, compatibility, and how hosts are reached."""
