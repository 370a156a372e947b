"""Where the Ansible content lies: in the wheel, or in the repository of an editable install.

It is the collection ``clusterctl.cluster``. Ansible finds a collection by the directories
``ansible_collections/NAMESPACE/NAME``: those are in the wheel, and in the repository a link to its root.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def content_root() -> Path:
    """The directory that holds ansible.cfg, playbooks/, roles/, plugins/ and inventory/example/."""
    shipped = _PACKAGE / "_content" / "ansible_collections" / "clusterctl" / "cluster"
    return shipped if shipped.is_dir() else _PACKAGE.parent.parent


def collections_path() -> Path:
    """The directory in which Ansible finds ``ansible_collections``."""
    shipped = _PACKAGE / "_content"
    return shipped if shipped.is_dir() else _PACKAGE.parent.parent
