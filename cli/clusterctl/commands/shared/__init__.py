"""What several commands have in common: options, their types, and what runs playbooks."""
