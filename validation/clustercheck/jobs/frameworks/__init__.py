"""Frameworks as the training programs use them: layers, precisions, optimiser and the group."""
