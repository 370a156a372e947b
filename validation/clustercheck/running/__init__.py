"""A validation: its suites, its jobs, the order of its steps, and what it covers."""
