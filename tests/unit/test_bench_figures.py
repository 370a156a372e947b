"""What the bench of pulls makes and writes: an image that an engine takes, and a table between its marks."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import fat_image
import pull_figures
import pytest

from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.way import Way

from .loopback_registry import needs_registry, registry


@needs_registry
def test_an_image_of_so_many_bytes_is_one_that_an_engine_takes(tmp_path: Path) -> None:
    with registry(tmp_path / "registry") as running:
        digest, size = fat_image.put(running.address, "bench/fat", "1", 2_000_000, 2)
        assert size == pytest.approx(2_000_000, rel=0.02)
        with Registry(Way(running.address, plain=True)) as client:
            found = client.manifest("bench/fat", "1")
            assert found.digest == digest
            assert found.config
            config = json.loads(client.small_blob("bench/fat", found.config))
            plain = [gzip.decompress(client.small_blob("bench/fat", layer)) for layer in found.layers]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in plain]


def test_the_table_of_pulls_stands_between_its_marks(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text("before\n{}\nold\n{}\nafter\n".format(*pull_figures.MARKS), encoding="utf-8")
    one = {
        "bytes": 10**9, "link_mbps": 400, "limit_s": 42.5, "pull": [50.0, 60.0, 55.0], "download": [45.0],
        "moved": [1.01], "apply": [70.0], "measured": "2026-01-01",
    }  # fmt: skip
    pull_figures.write(document, {"2": one, "8": {"problems": ["no lab"]}}, "the command")
    text = document.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    row = "| 2 | 2.00 GB | 400 Mbit/s | 42.5 s | 55.0 s (3) | 45.0 s | 77% | 1.01 | 70.0 s | 2026-01-01 |"
    assert row in text
    assert "- 8: no lab" in text
    document.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="no place"):
        pull_figures.write(document, {}, "the command")
