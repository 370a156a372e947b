"""The program that looks at a node, with the modules it needs: made once, known by its digest."""

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
from clusterctl.rollout.probe.calls import BUILTIN, LOOKING

LAUNCHER = "launch"
OURS = ("modules", "module_utils", "probe")
COLLECTION = "ansible_collections/clusterctl/cluster/plugins"
# Of Ansible's module_utils, what no Linux node runs.
NOT_SHIPPED = frozenset({"powershell", "csharp", "__pycache__"})


@cache
def digest() -> str:
    """Changes with Ansible's version and with any of our plugins."""
    text = version("ansible-core") + "".join(
        f"{path.relative_to(_plugins())} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in _ours()
    )
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def launcher() -> str:
    """The few lines that find the code on the node, or put it there."""
    return (_plugins() / "probe" / LAUNCHER).with_suffix(".py").read_text(encoding="utf-8")


@cache
def packed() -> str:
    """The code as a zip in base64: Ansible's module_utils, the modules, ours among them, and replay.py."""
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
            if not NOT_SHIPPED & set(inside.parts):
                archive.write(path, f"ansible/{inside}")
        for name in sorted(BUILTIN | LOOKING):
            archive.write(ansible / "modules" / f"{name}.py", f"ansible/modules/{name}.py")
        for path in _ours():
            room = path.parent.name
            archive.write(path, path.name if room == "probe" else f"{COLLECTION}/{room}/{path.name}")
    return base64.b64encode(stream.getvalue()).decode()


def importable(module: str) -> str:
    """The name by which the code imports a module: one of ours, or of Ansible's own."""
    ours = (_plugins() / "modules" / f"{module}.py").is_file()
    return f"{COLLECTION}/modules/{module}".replace("/", ".") if ours else f"ansible.modules.{module}"


def _plugins() -> Path:
    return content_root() / "plugins"


def _ours() -> list[Path]:
    return sorted(path for room in OURS for path in (_plugins() / room).glob("*.py"))
