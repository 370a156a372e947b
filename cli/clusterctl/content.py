"""Where the Ansible content lies: in the wheel, or in the repository of an editable install.

It is the collection ``clusterctl.cluster``. Ansible finds a collection by the directories
``ansible_collections/NAMESPACE/NAME``: those are in the wheel, and in the repository a link to its root.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parent


def content_root() -> Path:
    """The directory that holds ansible.cfg, playbooks/, roles/, plugins/ and inventory/example/."""
    shipped = _PACKAGE / "_content" / "ansible_collections" / "clusterctl" / "cluster"
    return shipped if shipped.is_dir() else _PACKAGE.parent.parent


def collections_path() -> Path:
    """The directory in which Ansible finds ``ansible_collections``."""
    shipped = _PACKAGE / "_content"
    return shipped if shipped.is_dir() else _PACKAGE.parent.parent


@cache
def shared_module(name: str) -> ModuleType:
    """A module of plugins/module_utils that nodes and this program share; it may import no other of them."""
    path = content_root() / "plugins" / "module_utils" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"clusterctl_shared_{name}", path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
