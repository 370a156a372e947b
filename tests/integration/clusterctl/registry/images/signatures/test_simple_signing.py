"""GPG signatures of images, made and verified by GnuPG itself: what is accepted, and what is refused."""

from __future__ import annotations

import re
import subprocess
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.support.signed_images import (
    DIGEST,
    GPG_TYPE,
    KEYS_OF_THEN,
    OTHER,
    SIGNED_THEN,
    GpgHome,
    checker_of,
    claim_of,
    gpg_home,
    image_at,
    put_simple_signature,
)

from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.signature_keys import UnusableKeyError
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.signatures import checking, lookaside, simple_signing
from clusterctl.registry.images.signatures.checking import SignatureChecker
from clusterctl.registry.images.signatures.claim import CostlySignatureError, RefusedSignatureError
from clusterctl.registry.oci import deadline, retry
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.endpoint import RegistryEndpoint
from clusterctl.registry.oci.retry import RetryPolicy

pytestmark = pytest.mark.needs("gpg", "gpgv")

# Nobody is asked there.
HOST = "127.0.0.1:9"
MINE = claim_of(f"{HOST}/team/app:1", DIGEST, GPG_TYPE)


@pytest.fixture(scope="module")
def signer() -> Iterator[GpgHome]:
    """Somebody with a key of the policy, and with one that it does not name."""
    with gpg_home() as home:
        home.make_key("vendor")
        home.make_key("stranger")
        yield home


@pytest.fixture(scope="module")
def keyring(signer: GpgHome) -> bytes:
    return simple_signing.read_keyring(signer.run("--armor", "--export", "vendor@example.com"))


def vendors_checker(root: Path, signer: GpgHome, location: str) -> SignatureChecker:
    (root / "vendor.asc").write_bytes(signer.run("--armor", "--export", "vendor@example.com"))
    wanted = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": "vendor.asc"}
    return checker_of(root, {"default": [wanted]}, images_signatures_lookaside={HOST: location})


@pytest.mark.parametrize("armor", [(), ("--armor",)], ids=["binary", "armoured"])
def test_the_keys_of_a_keyring_are_those_that_gpg_prints(signer: GpgHome, armor: tuple[str, ...]) -> None:
    listed = signer.run("--with-colons", "--list-keys").decode().splitlines()
    printed = {line.split(":")[9] for line in listed if line.startswith("fpr:")}
    exported = simple_signing.read_keyring(signer.run(*armor, "--export"))
    assert simple_signing.key_fingerprints(exported) == printed
    with pytest.raises(UnusableKeyError, match="is not a file of OpenPGP keys"):
        simple_signing.key_fingerprints((signer.directory / "pubring.kbx").read_bytes())


def test_a_record_counts_while_the_policy_names_its_key(tmp_path: Path, signer: GpgHome) -> None:
    """Also where two keys are demanded: each by its own signature."""
    wanted = {}
    records = []
    for name in ("vendor", "stranger"):
        (tmp_path / f"{name}.asc").write_bytes(signer.run("--armor", "--export", f"{name}@example.com"))
        wanted[name] = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": f"{name}.asc"}
        found = simple_signing.verify_message(
            signer.sign(name, MINE), signer.run("--export", f"{name}@example.com")
        )
        records.append(checking._record("gpg", found.fingerprint, DIGEST, MINE))
    by_vendor = image_at(HOST, signatures=(records[0],))
    by_both = image_at(HOST, signatures=tuple(records))

    def counts(image: LockedImage, *names: str) -> bool:
        return checker_of(tmp_path, {"default": [wanted[name] for name in names]}).is_recorded(image)

    assert counts(by_vendor, "vendor") and not counts(by_vendor, "stranger")
    assert counts(by_both, "vendor", "stranger") and not counts(by_vendor, "vendor", "stranger")


def test_a_record_does_not_count_once_the_keyring_revokes_its_key(tmp_path: Path) -> None:
    with gpg_home() as home:
        name = home.make_key("vendor")
        home.run("--quick-add-key", name, "ed25519", "sign", "never")
        subkey = simple_signing.verify_message(home.sign("vendor", MINE), home.run("--export")).fingerprint
        home.make_key("other")
        revocation = (home.directory / f"openpgp-revocs.d/{name}.rev").read_bytes()
        before = home.run("--export")
        home.run("--import", stdin=revocation.replace(b":-----BEGIN", b"-----BEGIN"))
        after = home.run("--export")
    found = simple_signing.key_fingerprints(before)
    assert {name, subkey} <= found
    assert simple_signing.key_fingerprints(after) == found - {name, subkey}


def test_a_record_does_not_count_once_the_keyring_revokes_the_subkey_that_signed() -> None:
    """A primary key that certifies alone, and a subkey that is replaced when it is stolen."""
    with gpg_home() as home:
        primary = home.make_key("vendor", usage="cert")
        home.run("--quick-add-key", primary, "ed25519", "sign", "never")
        before = home.run("--export")
        stolen = simple_signing.verify_message(home.sign("vendor", MINE), before).fingerprint
        revoke = b"key 1\nrevkey\ny\n1\n\ny\nsave\n"
        home.run("--no-batch", "--no-tty", "--command-fd", "0", "--edit-key", primary, stdin=revoke)
        home.run("--quick-add-key", primary, "ed25519", "sign", "never")
        after = home.run("--export")
        new = simple_signing.verify_message(home.sign("vendor", MINE), after).fingerprint
    assert simple_signing.key_fingerprints(before) == {primary, stolen}
    assert simple_signing.key_fingerprints(after) == {primary, new}, "and the record by the next one counts"


def refusal(found: SignatureChecker) -> str:
    policy = RetryPolicy(attempts=2, first_s=0, most_s=0)
    with (
        Registry(RegistryEndpoint(HOST, plain=True), policy) as registry,
        pytest.raises(ClusterctlError) as no,
    ):
        found.check(image_at(HOST), registry, "team/app")
    return no.value.what


def check(found: SignatureChecker) -> list[str]:
    with Registry(RegistryEndpoint(HOST, plain=True)) as registry:
        return [one.key for one in found.check(image_at(HOST), registry, "team/app").signatures]


def test_a_message_is_verified_and_its_key_is_named(signer: GpgHome, keyring: bytes) -> None:
    listed = signer.run("--with-colons", "--list-keys", "vendor@example.com").decode()
    for options in ((), ("--compress-algo", "none"), ("--compress-algo", "bzip2")):
        found = simple_signing.verify_message(signer.sign("vendor", MINE, *options), keyring)
        assert found.content == MINE
        assert f"fpr:::::::::{found.fingerprint}:" in listed


def test_any_key_of_a_keyring_may_sign(signer: GpgHome, keyring: bytes) -> None:
    both = keyring + signer.run("--export", "stranger@example.com")
    names = {
        simple_signing.verify_message(signer.sign(name, MINE), both).fingerprint
        for name in ("vendor", "stranger")
    }
    assert len(names) == 2


@pytest.mark.parametrize(("algorithm", "said"), [("SHA1", "SHA-1"), ("RIPEMD160", "RIPEMD-160")])
def test_a_signature_over_a_broken_hash_is_refused(
    algorithm: str, said: str, signer: GpgHome, keyring: bytes
) -> None:
    weak = signer.sign("vendor", MINE, "--digest-algo", algorithm, "--allow-weak-digest-algos")
    with pytest.raises(RefusedSignatureError, match=said):
        simple_signing.verify_message(weak, keyring)


def changed(signer: GpgHome) -> bytes:
    content = bytearray(signer.sign("vendor", MINE, "--compress-algo", "none"))
    content[content.index(b"critical")] ^= 1
    return bytes(content)


def by_two(signer: GpgHome) -> bytes:
    users = ("--local-user", "vendor@example.com", "--local-user", "stranger@example.com")
    return signer.run(*users, "--sign", stdin=MINE)


def two_messages(signer: GpgHome) -> bytes:
    return signer.sign("vendor", MINE, "--compress-algo", "none") * 2


def detached(signer: GpgHome) -> bytes:
    return signer.run("--local-user", "vendor@example.com", "--detach-sign", stdin=MINE)


def in_text(signer: GpgHome) -> bytes:
    return signer.run("--local-user", "vendor@example.com", "--clear-sign", stdin=MINE)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda signer: signer.sign("stranger", MINE), "is by a key that the policy does not name"),
        (changed, "does not fit its content"),
        (by_two, "is by a key that the policy does not name"),
        (two_messages, "is not one good signature|not a signed OpenPGP message|not fit"),
        (lambda signer: signer.sign("vendor", b" " * (8 << 20)), "more than 65536 bytes of content"),
        (lambda signer: signer.run("--store", stdin=MINE), "is not a signed OpenPGP message"),
        (detached, "not one good signature|not a signed OpenPGP message|cannot be checked"),
        (in_text, "in binary form"),
        (lambda _: b"", "in binary form"),
        (lambda _: MINE, "in binary form"),
        (lambda _: b"\xff" * 1000, "not a signed OpenPGP message|not one good signature"),
        (lambda signer: signer.sign("vendor", MINE)[:-20], "OpenPGP message|good signature|not fit|checked"),
    ],
)  # fmt: skip
def test_what_is_not_one_good_signature_is_refused(
    signer: GpgHome, keyring: bytes, make: Any, said: str
) -> None:
    with pytest.raises(RefusedSignatureError, match=said):
        simple_signing.verify_message(make(signer), keyring)


def test_a_message_that_takes_gpgv_much_memory_is_refused(signer: GpgHome, keyring: bytes) -> None:
    assert simple_signing.verify_message(signer.sign("vendor", MINE), keyring).content == MINE
    # Signatures with 20 kB of a subpacket that is unknown, which gpgv keeps until it has read all.
    subpackets = b"\xff" + (9895).to_bytes(4, "big") + b"\x64" + bytes(9894)
    area = len(subpackets).to_bytes(2, "big") + subpackets
    body = bytes([4, 0, 1, 8]) + 2 * area + b"\0\0\0\x10\x80\0"
    packet = b"\xc2\xff" + len(body).to_bytes(4, "big") + body
    deflate = zlib.compressobj()
    message = b"\xa3\x02" + deflate.compress(packet * 5000) + deflate.flush()
    assert len(message) < simple_signing.MAX_SIGNATURE_BYTES
    with pytest.raises(CostlySignatureError, match="more than 64 MiB of memory"):
        simple_signing.verify_message(message, keyring)


def test_signatures_and_keys_that_have_expired_count_no_more() -> None:
    with gpg_home() as home:
        home.make_key("lasting", *KEYS_OF_THEN)
        home.make_key("ended", *KEYS_OF_THEN, expires="1d")
        ring = home.run("--export")
        short = home.sign("lasting", MINE, *SIGNED_THEN, "--default-sig-expire", "1")
        with pytest.raises(RefusedSignatureError, match="has expired"):
            simple_signing.verify_message(short, ring)
        with pytest.raises(RefusedSignatureError, match="is by a key that has expired"):
            simple_signing.verify_message(home.sign("ended", MINE, *SIGNED_THEN), ring)
        assert simple_signing.verify_message(home.sign("lasting", MINE, *SIGNED_THEN), ring).content == MINE


def test_what_is_signed_must_be_of_this_image(tmp_path: Path, signer: GpgHome) -> None:
    place = tmp_path / "signatures"
    found = vendors_checker(tmp_path, signer, f"file://{place}")
    assert refusal(found).endswith("it has no signature")
    cases = {
        "is of other bytes": claim_of(f"{HOST}/team/app:1", OTHER, GPG_TYPE),
        "names another image": claim_of(f"{HOST}/team/app:2", DIGEST, GPG_TYPE),
        "is of another kind": claim_of(f"{HOST}/team/app:1", DIGEST),
        "cannot be read": b"[" * 60_000,
    }
    for number, (said, content) in enumerate(cases.items(), 1):
        put_simple_signature(place, "team/app", DIGEST, number, signer.sign("vendor", content))
        assert said in refusal(found)
    put_simple_signature(place, "team/app", DIGEST, len(cases) + 1, signer.sign("vendor", MINE))
    assert len(check(found)) == 1


def test_a_file_that_is_no_signature_is_not_read_without_end(tmp_path: Path, signer: GpgHome) -> None:
    place = tmp_path / "signatures"
    found = vendors_checker(tmp_path, signer, f"file://{place}")
    file = put_simple_signature(place, "team/app", DIGEST, 1, b"\xa3" * (1 << 18))
    assert "at most 131072 are read" in refusal(found)
    file.unlink()
    file.symlink_to("/dev/zero")
    assert "is not a regular file" in refusal(found)


def test_no_more_signatures_are_read_than_containers_image_does(tmp_path: Path) -> None:
    for number in range(1, lookaside.MAX_SIGNATURES + 3):
        put_simple_signature(tmp_path, "t/one", DIGEST, number, b"\xa3")
    endpoint = RegistryEndpoint("")
    found = lookaside.read_signatures(f"file://{tmp_path}", "t/one", DIGEST, endpoint, RetryPolicy())
    assert len(list(found)) == lookaside.MAX_SIGNATURES


@pytest.mark.parametrize("content", [b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n%\n", b"-----BEGIN PGP\n"])
def test_what_is_no_key_is_no_keyring(content: bytes) -> None:
    with pytest.raises(UnusableKeyError):
        simple_signing.read_keyring(content)


def test_without_gpgv_it_is_said_how_to_install_it(keyring: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simple_signing, "PROGRAM", "gpgv-that-is-not-installed")
    with pytest.raises(ClusterctlError) as refused:
        simple_signing.verify_message(b"\xa3\x01", keyring)
    assert refused.value.code == "images.signature-program"
    assert "apt install gpgv" in refused.value.hint


@contextmanager
def web_server(answers: dict[str, Any], asked: list[str]) -> Iterator[str]:
    """A server of signatures. An answer is the bytes, a status, a place to go to, or pieces without end."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            asked.append(self.path)
            answer = answers.get(self.path, 404)
            status = answer if isinstance(answer, int) else 302 if isinstance(answer, str) else 200
            self.send_response(status)
            if isinstance(answer, str):
                self.send_header("Location", answer)
            self.end_headers()
            try:
                while answer == 200:
                    self.wfile.write(b"\xa3" * 65536)
                self.wfile.write(answer if isinstance(answer, bytes) else b"")
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_signatures_come_from_a_web_server_within_bounds(
    tmp_path: Path, signer: GpgHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_wait", lambda *_: None)
    first = f"/team/app@{DIGEST.replace(':', '=')}/signature-1"
    asked: list[str] = []
    answers: dict[str, Any] = {f"{first}?": f"{first}?"}
    with web_server(answers, asked) as address:
        found = vendors_checker(tmp_path, signer, address)
        for answer, said in (
            (404, "it has no signature"),
            (200, "more than 131072 bytes"),
            (f"{first}?", "redirects more than 10 times"),
            ("http://127.0.0.1:port/", "a place that is none|no whole answer"),
            (503, "fails with 503"),
        ):
            answers[first] = answer
            asked.clear()
            assert re.search(said, refusal(found))
            assert len(asked) <= 11
        asked.clear()
        answers |= {first: "/moved", "/moved": signer.sign("vendor", MINE)}
        assert len(check(found)) == 1
        assert asked == [first, "/moved"]


def test_a_web_server_that_drips_is_given_up(
    tmp_path: Path, signer: GpgHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookaside, "DEADLINE_S", -1.0)
    first = f"/team/app@{DIGEST.replace(':', '=')}/signature-1"
    with web_server({first: signer.sign("vendor", MINE)}, []) as address:
        assert "not complete in time" in refusal(vendors_checker(tmp_path, signer, address))


def test_all_signatures_of_an_image_share_one_deadline(
    tmp_path: Path, signer: GpgHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waited, asked = [0.0], [], list[str]()
    monkeypatch.setattr(deadline, "now", lambda: clock[0])
    monkeypatch.setattr(retry, "_wait", lambda _stop, seconds: waited.append(seconds))
    folder = f"/team/app@{DIGEST.replace(':', '=')}"
    strangers = signer.sign("stranger", MINE)

    class Slow(dict[str, Any]):
        """Each signature takes 25 s; the last one that is asked for would be good."""

        def get(self, path: str, _default: Any = None) -> Any:
            clock[0] += 25
            return strangers

    with web_server(Slow(), asked) as address:
        said = refusal(vendors_checker(tmp_path, signer, address))
    assert "180 s" in said or "not complete in time" in said
    assert asked == [f"{folder}/signature-{number}" for number in range(1, len(asked) + 1)]
    assert len(asked) <= 8
    # Nobody is waited for after it, either.
    assert max(waited, default=0.0) <= 5


def test_signatures_that_use_up_gpgv_are_not_all_tried(
    tmp_path: Path, signer: GpgHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def run_captured(*_: object, timeout_s: float, **__: object) -> NoReturn:
        tried.append(1)
        raise subprocess.TimeoutExpired("gpgv", timeout_s)

    for number in range(1, 20):
        put_simple_signature(tmp_path / "place", "team/app", DIGEST, number, b"\xa3\x01")
    found = vendors_checker(tmp_path, signer, f"file://{tmp_path / 'place'}")
    monkeypatch.setattr(simple_signing, "run_captured", run_captured)
    assert "was not verified by gpgv" in refusal(found)
    assert len(tried) == checking.MAX_COSTLY
