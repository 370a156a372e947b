"""Taking a lab down, and saying what is left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from clusterctl.errors import EXIT_INCOMPLETE, ClusterctlError
from clusterlab import docker, engine
from clusterlab.cache import alone, cache_root, locked
from clusterlab.images import depot, node
from clusterlab.limits import put_back
from clusterlab.names import LABEL_LAB
from clusterlab.progress import LabProgress
from clusterlab.state import LabDirectory

REPOSITORIES = (node.REPOSITORY, node.BASE_REPOSITORY, depot.REPOSITORY)


def down(lab: LabDirectory, progress: LabProgress, *, purge: bool) -> list[str]:
    """Remove everything of this lab, found by its label; with ``purge`` also images, cache and our engine.

    The directory goes only if it holds a lab's state, or a lab of its was running: another may have been
    named by mistake.

    Returns what is still there afterwards, in words. Raises ClusterctlError without root, and for a copy
    of another directory's lab.
    """
    if os.geteuid() != 0:
        raise ClusterctlError(
            "taking a lab down needs root",
            code="lab.root",
            where=str(lab.root),
            hint="Run it again with sudo.",
        )
    suffix = lab.suffix_to_remove()
    with locked(f"lab-{suffix}"):
        is_labs = lab.is_recorded() or (engine.answers() and bool(_labelled("container", suffix)))
        left = _remove(lab, suffix, progress)
        if not left and is_labs:
            shutil.rmtree(lab.root, ignore_errors=True)
        if not left and lab.root.exists():
            whose = "" if is_labs else " (it holds no lab's state: if it is a lab's, remove it by hand)"
            left.append(f"directory {lab.root}{whose}")
    return left + (_purge(progress) if purge else [])


def incomplete(what: Sequence[str]) -> ClusterctlError:
    """The error for things that stayed behind."""
    return ClusterctlError(
        f"something stays behind: {'; '.join(what)}",
        code="lab.leftovers",
        where=os.uname().nodename,
        hint="Remove it by hand, or run clusterctl lab down again when nothing uses it.",
        exit_code=EXIT_INCOMPLETE,
    )


def _remove(lab: LabDirectory, suffix: str, progress: LabProgress) -> list[str]:
    """Remove what has the label of this lab from the engine; returns what is still there."""
    if not engine.answers():
        return ["containers, if any: no container engine answers"] if lab.state_file.exists() else []
    left = []
    for kind, arguments in (
        ("container", ["rm", "--force", "--volumes"]),
        ("volume", ["volume", "rm", "--force"]),
        ("network", ["network", "rm"]),
    ):
        found = _labelled(kind, suffix)
        why = ""
        if found:
            with progress.step(f"removing {len(found)} {kind}{'s' if len(found) > 1 else ''}"):
                why = _complaint([*arguments, *found])
        left += [f"{kind} {name}{why and f' ({why})'}" for name in _labelled(kind, suffix)]
    put_back(progress)
    return left


def _labelled(kind: str, suffix: str) -> list[str]:
    return docker.by_label(kind, f"{LABEL_LAB}={suffix}")


def _purge(progress: LabProgress) -> list[str]:
    """Remove the lab's images, its cache, and the engine that we started; returns what stays, and why.

    Docker is removed last: nothing needs it any more then, and an interrupted purge can be repeated.
    """
    try:
        with alone():
            if left := _purge_images() or _purge_cache():
                return left
            if why := engine.stop_if_ours(progress):
                return [why]
            shutil.rmtree(cache_root(), ignore_errors=True)
    except BlockingIOError:
        return [f"images, and directory {cache_root()}: another lab is being built or changed now"]
    return [f"directory {cache_root()}"] if cache_root().exists() else []


def _purge_images() -> list[str]:
    if not engine.answers():
        unasked = f"images, and directory {cache_root()}: no container engine answers that could be asked"
        return [unasked] if _cached() else []
    users = sorted(docker.by_label("container", LABEL_LAB))
    if users:
        return [f"images, and directory {cache_root()}: {', '.join(users)} use them"]
    node.remove_abandoned_builds()
    left = []
    for repository in REPOSITORIES:
        tags = docker.output(["image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository]).split()
        left += [f"image {tag} ({why})" for tag in tags if (why := _complaint(["image", "rm", tag]))]
    return left


def _purge_cache() -> list[str]:
    """Remove what was built; the locks, and what tells our engine, are needed until it is gone."""
    for path in _cached():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return [f"{path} (it cannot be removed)" for path in _cached()]


def _cached() -> list[Path]:
    return [path for path in cache_root().iterdir() if path.name not in {*engine.RECORDS, "locks"}]


def _complaint(arguments: Sequence[str]) -> str:
    """Docker's own words where it does not do what it is asked; empty where it does."""
    done = docker.run(arguments, check=False, timeout_s=300)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("Error response from daemon: ") if lines else f"exit code {done.returncode}"
