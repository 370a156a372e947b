"""The program that answers calls on a node, with the modules it needs: packed once, known by its digest."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import zipfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from clusterctl.content import content_root
from clusterctl.rollout.drift.calls import READ_ONLY, SAFE_IN_CHECK_MODE

LAUNCHER = "launch"
PACKED_PLUGINS = ("modules", "module_utils", "probe")
COLLECTION = "ansible_collections/clusterctl/cluster/plugins"
# Ansible's module_utils that no Linux node runs.
NOT_PACKED = frozenset({"powershell", "csharp", "__pycache__"})


@cache
def digest() -> str:
    """Returns a digest of the payload: Ansible's version and all of our plugins that are packed."""
    text = version("ansible-core") + "".join(
        f"{path.relative_to(_plugins())} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in _own_files()
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def launcher() -> str:
    """Returns the few lines that find the payload on the node, or unpack it there."""
    return (_plugins() / "probe" / LAUNCHER).with_suffix(".py").read_text(encoding="utf-8")


@cache
def pack() -> str:
    """Returns a zip in base64: Ansible's module_utils, the modules, ours among them, and replay.py."""
    found = importlib.util.find_spec("ansible")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("ansible")
    ansible = Path(found.origin).parent
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("ansible", "ansible/modules"):
            archive.writestr(f"{package}/__init__.py", "")
        for path in sorted((ansible / "module_utils").rglob("*.py")):
            inside = path.relative_to(ansible)
            if not NOT_PACKED & set(inside.parts):
                archive.write(path, f"ansible/{inside}")
        for name in sorted(SAFE_IN_CHECK_MODE | READ_ONLY):
            archive.write(ansible / "modules" / f"{name}.py", f"ansible/modules/{name}.py")
        for path in _own_files():
            directory = path.parent.name
            archive.write(
                path, path.name if directory == "probe" else f"{COLLECTION}/{directory}/{path.name}"
            )
    return base64.b64encode(stream.getvalue()).decode()


def import_name(module: str) -> str:
    """Returns the name by which the payload imports a module: one of ours, or of Ansible's own."""
    own = (_plugins() / "modules" / f"{module}.py").is_file()
    return f"{COLLECTION}/modules/{module}".replace("/", ".") if own else f"ansible.modules.{module}"


def _plugins() -> Path:
    return content_root() / "plugins"


def _own_files() -> list[Path]:
    return sorted(path for name in PACKED_PLUGINS for path in (_plugins() / name).glob("*.py"))
