"""The depot's image: a web server for packages, and a registry with images to copy from."""

from __future__ import annotations

from pathlib import Path

from clusterlab import docker
from clusterlab.cache import content_hash, locked, scratch
from clusterlab.images import debian, trees
from clusterlab.images.debian import bootstrap, recipe
from clusterlab.images.trees import pack
from clusterlab.progress import LabProgress

PACKAGES = ("nginx-light", "docker-registry", "ca-certificates", "procps", "iproute2")
ROOTFS = Path(__file__).parent / "rootfs" / "depot"
REPOSITORY = "clusterlab/depot"
BUILDERS = [Path(module) for module in (__file__, debian.__file__, trees.__file__)]


def depot_tag() -> str:
    """The depot's image, by what goes into it."""
    return f"{REPOSITORY}:{content_hash([*recipe('debian12', PACKAGES), ROOTFS, *BUILDERS])}"


def ensure_depot_image(progress: LabProgress) -> str:
    """The tag of the depot's image, built where the engine does not have it. Raises ClusterctlError."""
    tag = depot_tag()
    with locked("depot"):
        if docker.exists("image", tag):
            return tag
        with progress.step("building the depot's image"), scratch("depot") as directory:
            layer = directory / "layer.tar"
            layer.write_bytes(pack([ROOTFS]))
            tar = directory / "root.tar"
            bootstrap("debian12", PACKAGES, tar, hooks=[f'tar -C "$1" -xf {layer}'])
            docker.run(["import", "-c", 'CMD ["/usr/local/bin/depot"]', str(tar), tag], timeout_s=300)
    return tag
