"""A run as terminal table, HTML, JUnit, Markdown, JSON."""
