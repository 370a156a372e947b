"""Where the Ansible content lies: in the wheel, or in the repository of an editable install."""

from __future__ import annotations

from pathlib import Path


def content_root() -> Path:
    """The directory that holds ansible.cfg, playbooks/, roles/, plugins/ and inventory/example/."""
    package = Path(__file__).resolve().parent
    shipped = package / "_content"
    return shipped if shipped.is_dir() else package.parent.parent
