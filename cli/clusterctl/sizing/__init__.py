"""What training a model needs: memory by part, the parallelism that fits, and days."""
