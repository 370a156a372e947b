"""Lists the files that a cluster directory and a node keep for the next version, from the code."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import yaml

from clusterctl.cluster import lock
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import lease_book
from clusterctl.registry.harbor import vault
from clusterctl.report.files import REPORTS
from clusterctl.runs import store

SITE = ClusterDirectory(Path("/site"))
ONE_RUN = SITE.runs / "*"
PLACES = {
    name: path
    for name, member in vars(ClusterDirectory).items()
    if isinstance(member, property) and isinstance(path := getattr(SITE, name), Path)
}
# In a role: DIRECTORY ~ '/ca/registry-' ~ NAME ~ '.crt', or {{ DIRECTORY }}/ca/registry-{{ NAME }}.crt
OF_ROLE = re.compile(r"controller_dir(?: ~ '| \}\})/((?:ca|secrets)/(?:\{\{.*?\}\}|' ~ \w+ ~ '|[^\s\"'{])+)")
VALUE = re.compile(r"\{\{.*?\}\}|' ~ \w+ ~ '")
ON_NODE = re.compile(r"\"/?((?:var/lib|run|root/)/?\.?clusterctl/[a-z_./-]+)\"")
MODULE = "clusterctl.cluster.registry_credentials"
CREDENTIALS = ("password", "htpasswd", "auth.json")


def files(repository: Path) -> Iterator[str]:
    """Paths below the cluster's directory; those on a node from its root."""
    yield from (f"file {path.relative_to(SITE.root)}" for path in _of_cluster(repository))
    for tree in ("plugins", "cli", "validation"):
        for path in (repository / tree).rglob("*.py"):
            yield from (f"node file /{found}" for found in ON_NODE.findall(path.read_text("utf-8")))


def _of_cluster(repository: Path) -> Iterator[Path]:
    yield from PLACES.values()
    yield lock.path(SITE)
    yield SITE.state / lease_book.FILE
    yield from (SITE.secrets / name for name in (vault.FILE, f"{vault.PASSWORDS}/*.password"))
    yield from (ONE_RUN / name for name in (store.RUN_FILE, *(name for name, _ in REPORTS.values())))
    for path in sorted((repository / "cli").rglob("[!_]*.py")):
        yield from _of_module(path, repository)
    for path in sorted((repository / "roles").rglob("*.yml")):
        for found in OF_ROLE.findall(path.read_text("utf-8")):
            yield SITE.state / VALUE.sub("*", found)
        yield from (SITE.secrets / f"{name}.{end}" for name in _credentials(path) for end in CREDENTIALS)


def _of_module(path: Path, repository: Path) -> Iterator[Path]:
    """As in ``directory.secrets / "NAME"`` and ``run.path("NAME")``."""
    name = ".".join(path.relative_to(repository / "cli").with_suffix("").parts)
    module = importlib.import_module(name)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.BinOp):
            yield from _joined(node, module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "path":
            words = [_text(argument, module) for argument in node.args]
            yield from (ONE_RUN / word for word in words if "." in word)


def _joined(node: ast.expr, module: ModuleType) -> Iterator[Path]:
    if isinstance(node, ast.Attribute):
        if node.attr in PLACES:
            yield PLACES[node.attr]
        elif node.attr == "run_directory" or (node.attr == "directory" and "runs" in module.__name__):
            yield ONE_RUN
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        name = _text(node.right, module)
        for left in _joined(node.left, module):
            yield left / name


def _text(node: ast.expr, module: ModuleType) -> str:
    """A name as it stands in the code, or in a constant of its module; "" for what is only known later."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        found = getattr(module, node.id, "")
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        found = getattr(getattr(module, node.value.id, None), node.attr, "")
    else:
        return ""
    return found if isinstance(found, str) else ""


def _credentials(path: Path) -> Iterator[str]:
    """Under which names a role has credentials made."""
    text = path.read_text("utf-8")
    for task in yaml.safe_load(text) if MODULE in text else ():
        users = task.get(MODULE, {}).get("users", ())
        yield from (user["name"] for user in users if "{{" not in user["name"])
