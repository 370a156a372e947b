"""The key of dkms under Secure Boot: where it is, what shim knows of it, and what a person has to do."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils.signing_key import (
    SigningKey,
    enrolment,
    signing_key,
)
from ansible_collections.clusterctl.cluster.plugins.modules import secure_boot_key
from tests.support.called_module import called
from tests.support.mokutil_answers import DKMS_BUILD, DKMS_FRAMEWORK, IMPORT, NO_KEYRING, TEST_KEY, Answer

KERNEL = "6.1.0-38-amd64"
DEBIAN = SigningKey("/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub")
UBUNTU = SigningKey("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der")
SHIPPED = DKMS_FRAMEWORK["3.2.2"]


@pytest.mark.parametrize(
    ("system", "configuration", "expected"),
    [
        ("debian", "", DEBIAN),
        ("debian", SHIPPED, DEBIAN),
        ("ubuntu", SHIPPED, UBUNTU),
        (
            "ubuntu",
            "mok_signing_key=/root/mok/MOK.priv\nmok_certificate='/root/mok/MOK.der' # ours\n",
            SigningKey("/root/mok/MOK.priv", "/root/mok/MOK.der"),
        ),
        # dkms takes Ubuntu's pair unless the private key is named.
        ("ubuntu", "mok_certificate=/root/mok/MOK.der\n", UBUNTU),
        (
            "debian",
            'mok_signing_key="/keys/$kernelver.key"\nmok_certificate="/keys/${kernelver}.der"\n',
            SigningKey(f"/keys/{KERNEL}.key", f"/keys/{KERNEL}.der"),
        ),
        ("debian", "mok_certificate=/keys/a.der\n", SigningKey(DEBIAN.private, "/keys/a.der")),
    ],
)
def test_the_key_is_found_as_dkms_finds_it(tmp_path: Path, system, configuration, expected) -> None:
    (tmp_path / "etc/dkms").mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text(f"ID={system}\n")
    (tmp_path / "etc/dkms/framework.conf").write_text(configuration)
    assert signing_key(tmp_path, KERNEL) == expected


def test_a_file_beside_framework_conf_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "etc/dkms/framework.conf.d").mkdir(parents=True)
    (tmp_path / "etc/dkms/framework.conf").write_text("mok_certificate=/a.der\n")
    (tmp_path / "etc/dkms/framework.conf.d/site.conf").write_text("mok_certificate=/b.der\n")
    assert signing_key(tmp_path, KERNEL).certificate == "/b.der"


@pytest.mark.parametrize("version", DKMS_BUILD)
def test_without_configuration_it_is_the_pair_that_dkms_itself_names(tmp_path: Path, version: str) -> None:
    (tmp_path / "etc/dkms").mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text("ID=debian\n")
    (tmp_path / "etc/dkms/framework.conf").write_text(DKMS_FRAMEWORK[version])
    key = signing_key(tmp_path, KERNEL)
    assert f"Signing key: {key.private}\n" in DKMS_BUILD[version]
    assert f"Public certificate (MOK): {key.certificate}\n" in DKMS_BUILD[version]


STATES = {
    "absent": "absent",
    "requested": "requested",
    "enrolled": "enrolled",
    "enrolled in db": "enrolled",
    "blocked in dbx": "blocked",
    "blocked by shim": "blocked",
    "not there": "unknown: Failed to open {}",
    "in PEM": "unknown: Not a valid x509 certificate",
    "no EFI": "unknown: EFI variables are not supported on this system",
}


def pair(root: Path, key: SigningKey) -> Path:
    """Both halves of a key, and the certificate's path."""
    for name in (key.private, key.certificate):
        file = root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"\x30\x82")
    return root / key.certificate.lstrip("/")


@pytest.mark.parametrize("kernel", ["", NO_KEYRING])
@pytest.mark.parametrize(
    ("answer", "state"),
    [
        *((answer, STATES[state]) for answers in TEST_KEY.values() for state, answer in answers.items()),
        # By its source: a key of the kernel's own, such as the distribution's.
        (Answer(255, error="{} is already in the built-in trusted keyring\n"), "enrolled"),
        (Answer(127), "unknown: mokutil does not answer"),
    ],
)
def test_mokutils_answers_are_told_apart(tmp_path: Path, answer: Answer, state: str, kernel: str) -> None:
    certificate = pair(tmp_path, DEBIAN)

    def run(argv: list[str]) -> tuple[int, str, str]:
        assert argv == ["mokutil", "--test-key", str(certificate)]
        said = answer.error.format(certificate)
        return answer.rc, answer.output.format(certificate), (kernel if answer.output or said else "") + said

    assert enrolment(run, tmp_path, DEBIAN) == state.format(certificate)


@pytest.mark.parametrize("lost", [DEBIAN.private, DEBIAN.certificate])
def test_half_a_pair_is_no_key_since_dkms_replaces_both(tmp_path: Path, lost: str) -> None:
    pair(tmp_path, DEBIAN)
    (tmp_path / lost.lstrip("/")).unlink()

    def run(argv: list[str]) -> tuple[int, str, str]:
        raise AssertionError(argv)

    assert enrolment(run, tmp_path, DEBIAN) == "no key"


def test_a_key_in_a_token_has_only_its_certificate_in_a_file(tmp_path: Path) -> None:
    key = SigningKey("pkcs11:token=site", "/etc/site/mok.der")
    certificate = pair(tmp_path, SigningKey("/unused", key.certificate))
    asked = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return 0, TEST_KEY["0.7.2"]["absent"].output.format(certificate), ""

    assert enrolment(run, tmp_path, key) == "absent"
    assert asked == [["mokutil", "--test-key", str(certificate)]]


def answer_by(answer: Answer) -> str:
    """The shell commands of a program that answers so about its second argument."""
    output, error = (text.format("$2").replace("\n", "\\n") for text in (answer.output, answer.error))
    return f'printf "{output}"; printf "{error}" >&2; exit {answer.rc}'


# shim's list of keys and of requests, in files; each call is recorded with what it was told. It prints and
# ends as mokutil 0.7.2 does.
MOKUTIL = f"""\
#!/bin/sh
echo "$1" >> "$STATE/calls"
case "$1" in
--test-key)
    [ -e "$STATE/blocked" ] && {{ {answer_by(TEST_KEY["0.7.2"]["blocked in dbx"])}; }}
    [ -e "$STATE/enrolled" ] && {{ {answer_by(TEST_KEY["0.7.2"]["enrolled"])}; }}
    [ -e "$STATE/requested" ] && {{ {answer_by(TEST_KEY["0.7.2"]["requested"])}; }}
    {answer_by(TEST_KEY["0.7.2"]["absent"])} ;;
--import)
    [ -e "$STATE/broken" ] && {{ echo "Failed to enroll new keys" >&2; exit 255; }}
    [ -e "$STATE/skipping" ] && {{ {answer_by(IMPORT["blocked"])}; }}
    cat > "$STATE/requested"
    {answer_by(IMPORT["password twice"])} ;;
esac
"""
OPENSSL = """\
#!/bin/sh
[ -e "$STATE/broken" ] && { echo "no entropy" >&2; exit 1; }
while [ $# -gt 1 ]; do
    case "$1" in -keyout|-out) echo "$1" > "$2" ;; esac
    shift
done
"""
POLICY = """\
#!/bin/sh
mkdir -p "$ROOT/var/lib/shim-signed/mok"
[ -e "$ROOT/var/lib/shim-signed/mok/MOK.der" ] && exit 0
echo key > "$ROOT/var/lib/shim-signed/mok/MOK.priv"
echo der > "$ROOT/var/lib/shim-signed/mok/MOK.der"
"""
Bring = Callable[..., dict[str, Any]]


@pytest.fixture
def bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bring:
    """Runs the module on a node of files, with programs that act on them."""
    monkeypatch.setattr(secure_boot_key, "ROOT", tmp_path)
    for directory in ("bin", "state", "etc"):
        (tmp_path / directory).mkdir()
    programs = {"mokutil": MOKUTIL, "openssl": OPENSSL, "update-secureboot-policy": POLICY}
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOT", str(tmp_path))
    (tmp_path / "etc/os-release").write_text("ID=debian\n")

    def run(*, check: bool = False, **arguments: object) -> dict[str, Any]:
        return called(secure_boot_key, arguments, tmp_path, capsys, check=check)

    return run


def password_of(answer: dict[str, Any]) -> str:
    match = re.search(r"one-time password (\d{10}), and chooses Reboot", answer["step"])
    assert match, answer
    return match.group(1)


def test_a_key_is_made_and_requested_with_a_password_for_one_time(bring: Bring, tmp_path: Path) -> None:
    planned = bring(check=True, enroll=True)
    assert planned["changed"] and "the one-time password that apply will show, and" in planned["step"]
    assert not (tmp_path / "var/lib/dkms").exists()
    answer = bring(enroll=True)
    password = password_of(answer)
    assert (tmp_path / "state/requested").read_text() == f"{password}\n{password}\n"
    assert "Enroll MOK" in answer["step"]
    assert stat.S_IMODE((tmp_path / "var/lib/dkms/mok.key").stat().st_mode) == 0o600
    # It waits for the person, and the password is not known twice.
    again = bring(enroll=True)
    assert again["changed"] is False
    assert password not in json.dumps(again)
    assert "mokutil --revoke-import" in again["step"]
    (tmp_path / "state/enrolled").touch()
    assert (bring(enroll=True)["step"], bring()["step"]) == ("", "")
    (tmp_path / "state/enrolled").unlink()
    (tmp_path / "state/requested").unlink()  # nobody was at the console
    assert password_of(bring(enroll=True)) != password
    assert (tmp_path / "state/calls").read_text().count("--import") == 2


def test_ubuntus_key_is_made_by_its_own_program(bring: Bring, tmp_path: Path) -> None:
    (tmp_path / "etc/os-release").write_text("ID=ubuntu\n")
    assert bring(enroll=True)["certificate"] == UBUNTU.certificate
    assert (tmp_path / "state/requested").exists()
    # Its private key is lost: Ubuntu's program makes no new pair beside the certificate.
    (tmp_path / UBUNTU.private.lstrip("/")).unlink()
    (tmp_path / UBUNTU.certificate.lstrip("/")).write_text("of a lost key")
    (tmp_path / "state/requested").unlink()
    assert bring(enroll=True)["changed"]
    assert (tmp_path / UBUNTU.certificate.lstrip("/")).read_text() == "der\n"


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("debian", "Have it enrolled: set nvidia_driver_enroll_key"),
        ("ubuntu", "Use the modules that Ubuntu has"),
    ],
)
def test_without_the_operators_word_nothing_is_requested(bring: Bring, tmp_path: Path, system, words) -> None:
    (tmp_path / "etc/os-release").write_text(f"ID={system}\n")
    answer = bring()
    assert answer["failed"] and words in answer["msg"]
    assert not (tmp_path / "state/requested").exists()


def test_what_fails_is_named_with_what_to_see(bring: Bring, tmp_path: Path) -> None:
    (tmp_path / "state/broken").touch()
    assert "cannot be made: no entropy" in bring(enroll=True)["msg"]
    certificate = pair(tmp_path, DEBIAN)
    assert "does not accept /var/lib/dkms/mok.pub: Failed to enroll" in bring(enroll=True)["msg"]
    (tmp_path / "state/broken").unlink()
    (tmp_path / "state/skipping").touch()
    skipped = bring(enroll=True)["msg"]
    assert skipped.startswith("mokutil requested no enrolment of /var/lib/dkms/mok.pub: SKIP: ")
    (tmp_path / "state/blocked").touch()
    assert "on a list of blocked keys (dbx or MokListX)" in bring(enroll=True)["msg"]
    (tmp_path / "bin/mokutil").write_text("#!/bin/sh\necho EFI variables are not supported >&2; exit 1\n")
    assert "unknown: EFI variables are not supported" in bring(enroll=True)["msg"]
    (tmp_path / "etc/dkms").mkdir()
    (tmp_path / "etc/dkms/framework.conf").write_text("mok_signing_key=pkcs11:token=site\n")
    certificate.unlink()
    assert "pkcs11:token=site" in bring(enroll=True)["msg"]
