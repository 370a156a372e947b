"""`clusterctl images bundle`: signed where it is made, refused where its origin is not verified."""

from __future__ import annotations

from pathlib import Path

from tests.support.registries import Running, bytes_of, put_image
from tests.unit.clusterctl.registry.images.test_bundle_signature import key_in, public

from .driving import MB, call, error, good, records, site


def test_a_bundle_is_loaded_by_its_signature_and_a_change_after_it_is_refused(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    key = key_in(tmp_path, "ours")
    put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = site(tmp_path, source.host, "one", images_bundle_signers=[public(key)])
    good(call(directory, "lock"))
    bundle = tmp_path / "usb"
    index, signature = bundle / "bundle.json", bundle / "bundle.json.sig"
    to = ("--to", f"http://{destination.host}", "--json")

    def create(*more: str):
        return call(directory, "images", "bundle", "create", str(bundle), "--json", *more)

    def load(*more: str):
        return call(directory, "images", "bundle", "load", str(bundle), *to, *more)

    assert error(create("--sign-with", str(tmp_path / "absent"))).code == "images.bundle-sign"
    assert not bundle.exists()
    assert records(good(create("--sign-with", str(key))))[-1]["signature"] == str(signature)
    done = good(load())
    assert [one["state"] for one in records(done)[:-1]] == ["copied"]
    assert "signed by SHA256:" in done.stderr
    index.write_bytes(index.read_bytes().replace(b'"made"', b'"made" '))
    assert error(load()).code == "images.bundle-signature"
    assert error(load("--allow-unsigned")).code == "images.bundle-signature"


def test_a_bundle_of_unverified_origin_is_refused_unless_told_otherwise(
    tmp_path: Path, source: Running, destination: Running
) -> None:
    key = key_in(tmp_path, "ours")
    made = put_image(source.host, "t/one", "1", [bytes_of(1, MB)])
    directory = site(tmp_path, source.host, "one", images_bundle_signers=[public(key)])
    good(call(directory, "lock"))
    bundle = tmp_path / "usb"
    signature = bundle / "bundle.json.sig"
    to = ("--to", f"http://{destination.host}", "--json")
    # Of an earlier bundle in this place nothing stays that could seem to be of this one.
    bundle.mkdir()
    signature.write_text("of another bundle")
    create = call(directory, "images", "bundle", "create", str(bundle), "--json")
    assert not signature.exists()
    load = ("images", "bundle", "load", str(bundle), *to)
    for more in ((), ("--check",)):
        refused = error(call(directory, *load, *more))
        assert (refused.code, refused.exit_code) == ("images.bundle-unsigned", 2)
    with destination.client() as client:
        assert not client.has_manifest("mirrored/one", made.digest)
    good(call(directory, *load, "--sha256", records(good(create))[-1]["index_sha256"]))
    assert "--allow-unsigned" in good(call(directory, *load, "--allow-unsigned")).stderr
