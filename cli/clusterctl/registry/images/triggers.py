"""A base is built on only where it has no instructions of its own for builds (ONBUILD)."""

from __future__ import annotations

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import EXIT_CLUSTER_BAD, ClusterctlError
from clusterctl.registry.images.resolve import DESCRIBE_S, closure, configuration
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.deadline import within

SHOWN = 120


def require_no_triggers(base: LockedImage, registry: Registry) -> None:
    """Refuse a base with triggers: they run in the engine, with its images, caches and credentials.

    Of a list, every image: the engine chooses its platform.

    Raises ClusterctlError (``images.build-triggers``), and RegistryError.
    """
    configs = [one.config for one in closure(registry, base.target, base.digest) if one.config is not None]
    with within(DESCRIBE_S):
        for blob in configs:
            if triggers := configuration(registry, base.target, blob).build_triggers:
                raise ClusterctlError(
                    f"the base {base.name} has ONBUILD instructions: {triggers[0][:SHOWN]}",
                    code="images.build-triggers",
                    where=f"{registry.endpoint.host}/{base.target}@{base.digest}",
                    hint="Name a base without ONBUILD, as the image that this one was made from.",
                    exit_code=EXIT_CLUSTER_BAD,
                )
