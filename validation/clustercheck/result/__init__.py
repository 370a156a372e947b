"""The result document, and what it says of the cluster that was judged."""
