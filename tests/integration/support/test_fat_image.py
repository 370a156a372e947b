"""The image of the bench of pulls, in a real registry."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from tests.bench import fat_image
from tests.support.loopback_registry import needs_registry, registry

from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint


@needs_registry
def test_an_image_of_so_many_bytes_is_one_that_an_engine_takes(tmp_path: Path) -> None:
    with registry(tmp_path / "registry") as running:
        digest, size = fat_image.put(running.address, "bench/fat", "1", 2_000_000, 2)
        assert size == pytest.approx(2_000_000, rel=0.02)
        with Registry(RegistryEndpoint(running.address, plain=True)) as client:
            found = client.manifest("bench/fat", "1")
            assert found.digest == digest
            assert found.config
            config = json.loads(client.small_blob("bench/fat", found.config))
            plain = [gzip.decompress(client.small_blob("bench/fat", layer)) for layer in found.layers]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in plain]
