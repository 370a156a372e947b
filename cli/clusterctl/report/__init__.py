"""A run as terminal table, HTML, JUnit, Markdown, Prometheus text, JSON."""
