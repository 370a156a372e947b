"""Frameworks as the training programs see them: layers, precisions, optimiser and the group."""
