"""The training image as the lock has it: what is declared by a tag goes to the nodes by the locked digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from clusterctl import console
from clusterctl.cluster import lock as lock_file
from clusterctl.cluster import signature_policy
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.spec import setting
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images import gate
from clusterctl.registry.images.declared import TRAINING, asked_host, nodes_driver, training_image
from clusterctl.rollout.scope import wants_image

DIGEST = "training_image_digest"
SAME = ("training_image_source", "training_image_repository", "training_image_tag")


@dataclass(frozen=True)
class PinnedTraining:
    """An inventory whose hosts have the digest of the training image, where the lock knows it.

    ``extra_vars`` say the same to Ansible. ``image`` is the locked image that is in force, if any; ``loose``
    why what is declared by a tag has no digest, and ``contradicted`` whether the lock has another one.
    """

    inventory: Inventory
    extra_vars: Mapping[str, str] = field(default_factory=dict)
    image: LockedImage | None = None
    loose: str = ""
    contradicted: bool = False


def pinned(inventory: Inventory) -> PinnedTraining:
    """Overlay the lock's digest of the training image where no host declares one. Asks nobody.

    Raises ClusterctlError (``images.lock-unreadable``, ``images.reference``).
    """
    declared = training_image(asked_host(inventory)) if inventory.hosts else None
    if declared is None:
        return PinnedTraining(inventory)
    lock = lock_file.read(inventory.directory)
    locked = lock.image(TRAINING) if lock else None
    same = locked if locked is not None and gate.is_of(locked, declared) else None
    if any(setting(host, DIGEST) for host in inventory.hosts):
        return PinnedTraining(inventory, image=same)
    if locked is None:
        return PinnedTraining(inventory, loose=f"{declared.source} is declared by its tag, and is not locked")
    if same is None:
        because = f"{declared.source} is declared, and the lock has {locked.source}"
        return PinnedTraining(inventory, loose=because, contradicted=True)
    differing = [host.name for host in inventory.hosts if _is_other(host, asked_host(inventory))]
    if differing:
        because = f"{', '.join(differing)} declare another training image, and the lock has only one"
        return PinnedTraining(inventory, loose=because, contradicted=True)
    return PinnedTraining(_with_digest(inventory, same.digest), {DIGEST: same.digest}, same)


def require_pinned(found: PinnedTraining) -> None:
    """Refuse a lock that has another training image than the settings; say if there is none yet.

    Raises ClusterctlError (``images.stale-lock``, exit 2).
    """
    if found.contradicted:
        raise ClusterctlError(
            f"the lock is not that of the settings: {found.loose}",
            code="images.stale-lock",
            where=str(lock_file.path(found.inventory.directory)),
            hint="Run: clusterctl lock. It asks only for what has changed.",
        )
    warn(found)


def warn(found: PinnedTraining) -> None:
    """Say why no training image is in force, where one is declared."""
    if found.loose:
        console.tell(
            f"warning: the training image is not in force: {found.loose}",
            ("hint: ", "clusterctl lock writes its digest down; apply goes by it."),
            style="yellow",
        )


def require_served(found: PinnedTraining, hosts: Sequence[Host]) -> None:
    """Refuse a locked training image that the nodes' driver cannot run, where ``hosts`` would get it.

    Raises ClusterctlError (``images.driver``, exit 2).
    """
    if found.image is not None and any(wants_image(host) for host in hosts):
        gate.require_driver([found.image], nodes_driver(found.inventory))


def require_signed(found: PinnedTraining, hosts: Sequence[Host]) -> None:
    """Refuse a training image whose signatures the lock does not record, where ``hosts`` would get it.

    Raises ClusterctlError (``images.signature``, also with ``-key``; ``settings.signatures``).
    """
    wanting = [host for host in hosts if wants_image(host)]
    if not wanting or not any(setting(host, signature_policy.NAME) for host in found.inventory.hosts):
        return
    from clusterctl.registry.images.signatures.checking import CODE, checker  # noqa: PLC0415 - 100 ms

    signatures = checker(found.inventory)
    if signatures is None:
        return
    for host in wanting:
        image, digest = found.image, setting(host, DIGEST)
        if image is not None and digest in (image.digest, image.index):
            signatures.require_recorded([image], trusted=True)
            continue
        declared = training_image(host)
        if declared is not None and signatures.demands_any(TRAINING, str(declared.source)):
            raise ClusterctlError(
                f"{signature_policy.NAME} demands a signature of the training image, which is not locked",
                code=CODE,
                where=f"{host.name}: {declared.source}",
                hint="Run: clusterctl lock. It verifies the signature and records it.",
                exit_code=EXIT_CLUSTER_BAD,
            )


def _is_other(host: Host, asked: Host) -> bool:
    """Whether a host declares a tag, and not of the same image."""
    return bool(setting(host, "training_image_tag")) and any(
        setting(host, name) != setting(asked, name) for name in SAME
    )


def _with_digest(inventory: Inventory, digest: str) -> Inventory:
    variables = {host.name: {**host.variables, DIGEST: digest} for host in inventory.hosts}
    hosts = (
        replace(host, variables=variables[host.name], context={**host.context, "hostvars": variables})
        for host in inventory.hosts
    )
    return replace(inventory, hosts=tuple(hosts))
