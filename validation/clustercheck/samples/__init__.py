"""A healthy cluster: the evidence that checks are proved with."""
