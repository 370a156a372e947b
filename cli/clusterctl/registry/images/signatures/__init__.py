"""Signatures of images: found, verified against the site's policy, and brought along."""
