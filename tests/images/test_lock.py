"""`clusterctl lock` against real registries: what it pins, and what makes it again."""

from __future__ import annotations

from pathlib import Path

import yaml
from tests.support.registries import (
    Proxy,
    Running,
    bytes_of,
    cluster_directory,
    put_image,
)

from .driving import MB, call, error, good, locked_site, mirror, site


def test_a_lock_that_is_not_that_of_the_settings_is_refused(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    for name in ("one", "two"):
        put_image(source.host, f"t/{name}", "1", [bytes_of(name, MB)])
    directory = site(tmp_path, source.host, "one")
    assert error(mirror(directory, destination)).code == "images.no-lock"
    good(call(directory, "lock"))
    site(tmp_path, source.host, "one", "two")
    assert error(mirror(directory, destination)).code == "images.stale-lock"
    good(call(directory, "lock"))
    assert error(mirror(directory, destination, "three")).code == "images.unknown"


def test_a_tag_that_moved_stays_as_locked_until_an_upgrade(tmp_path: Path, source: Running) -> None:
    first = put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = locked_site(tmp_path, source.host, "one")
    second = put_image(source.host, "t/one", "1", [bytes_of(2, MB)])
    text = (directory / "clusterctl.lock").read_text()
    good(call(directory, "lock"))
    assert (directory / "clusterctl.lock").read_text() == text
    looked = call(directory, "lock", "--check")
    assert looked.return_value == 1
    assert f"was {first.digest}, is {second.digest}" in looked.stdout
    assert (directory / "clusterctl.lock").read_text() == text
    good(call(directory, "lock", "--upgrade"))
    assert second.digest in (directory / "clusterctl.lock").read_text()
    good(call(directory, "lock", "--check"))


def test_a_training_image_that_is_declared_by_its_tag_is_locked_and_apply_goes_by_that(
    tmp_path: Path, source: Running
) -> None:
    made = put_image(source.host, "t/paddle", "3.3.1", [bytes_of(1, MB)])
    said = {"training_image_source": f"http://{source.host}/t/paddle", "training_image_tag": "3.3.1"}
    directory = cluster_directory(tmp_path / "site", [], **said)
    asked = good(call(directory, "lock"))
    assert f"apply pulls the training image by the lock's digest: {made.digest}" in asked.stderr
    cluster_directory(directory, [], **said, training_image_digest=made.digest)
    assert "the lock's digest" not in good(call(directory, "lock")).stderr
    locked = yaml.safe_load((directory / "clusterctl.lock").read_text())["images"][0]
    assert (locked["name"], locked["target"], locked["digest"]) == ("training", "library/paddle", made.digest)


def test_an_image_that_cannot_be_locked_keeps_no_other_out_that_is_named(
    tmp_path: Path, source: Running
) -> None:
    made = put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = site(tmp_path, source.host, "one", "gone")
    refused = call(directory, "lock")
    assert refused.return_value == 1
    assert "`clusterctl lock IMAGE...` locks the others" in refused.stderr
    assert not (directory / "clusterctl.lock").exists()
    good(call(directory, "lock", "one"))
    locked = yaml.safe_load((directory / "clusterctl.lock").read_text())["images"]
    assert [(one["name"], one["digest"]) for one in locked] == [("one", made.digest)]


def test_what_was_locked_while_sources_were_asked_is_not_lost(
    tmp_path: Path, source: Running, before_source: Proxy
) -> None:
    made = [put_image(source.host, f"t/{n}", "1", [bytes_of(n, MB)]) for n in ("one", "two")]
    directory = locked_site(tmp_path, before_source.host, "one", "two")
    lock = directory / "clusterctl.lock"
    meanwhile = lock.read_text().replace(made[1].digest, f"sha256:{'f' * 64}")

    def fault(*_: object) -> None:
        lock.write_text(meanwhile)

    before_source.fault = fault
    put_image(source.host, "t/one", "1", [bytes_of("anew", MB)])
    good(call(directory, "lock", "one", "--upgrade"))
    after = yaml.safe_load(lock.read_text())["images"]
    assert after[0]["digest"] != made[0].digest
    assert after[1]["digest"] == f"sha256:{'f' * 64}"
