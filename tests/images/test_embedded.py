"""Images into the embedded registry: through SSH to a port of its own host, with the password that we made.

ssh is a stand-in here, which leads the socket to the port as sshd would; tests/lab has the real one.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import yaml
from tests.support.registries import Running, bytes_of, program, put_image, registry

from clustercheck.launch.transport import Completed
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.collecting import collect

from .driving import MB, call, error, good, records

# -L SOCKET:127.0.0.1:PORT is served until it is ended; a file next to it says to refuse, or to fall once.
SSH = f"""#!{sys.executable}
import os, socket, subprocess, sys, threading
words, here = sys.argv[1:], os.path.dirname(sys.argv[0])
open(os.path.join(here, "calls"), "a").write(" ".join(words) + "\\n")
if "-L" not in words:
    if "-f" in words or "-O" in words:
        sys.exit(0)
    os.execvp("sh", ["sh", "-c", words[-1]])
if os.path.exists(os.path.join(here, "refusal")):
    sys.stderr.write(open(os.path.join(here, "refusal")).read())
    sys.exit(255)
path, _, port = words[words.index("-L") + 1].rsplit(":", 2)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path + ".new")
listener.listen(64)
os.rename(path + ".new", path)
def pump(a, b):
    try:
        while piece := a.recv(65536):
            b.sendall(piece)
    except OSError:
        pass
    for one in (a, b):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
served = 0
while True:
    near, _ = listener.accept()
    try:
        far = socket.create_connection(("127.0.0.1", int(port)))
    except OSError:
        near.close()
        continue
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
    served += 1
    fall = os.path.join(here, "fall")
    if served == 3 and os.path.exists(fall):
        os.unlink(fall)
        sys.exit(255)
"""
PASSWORD = "a password that was made"


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the stand-in."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(SSH)
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


@pytest.fixture
def pushing(tmp_path: Path) -> Iterator[Running]:
    """The embedded registry's pushing listener."""
    lines = tmp_path / "htpasswd"
    lines.write_text("push:" + bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode() + "\n")
    auth = {"htpasswd": {"realm": "clusterctl", "path": str(lines)}}
    with registry(tmp_path / "pushing", auth=auth) as running:
        yield running


@pytest.fixture
def directory(tmp_path: Path, source: Running, pushing: Running, ssh: Path) -> Path:
    """A cluster with a registry, and the password that `apply` would have made."""
    for name in ("one", "two"):
        put_image(source.host, f"t/{name}", "1", [bytes_of(name, 2 * MB), bytes_of(-1, MB)])
    root = tmp_path / "site"
    (root / "group_vars").mkdir(parents=True)
    (root / "hosts.yml").write_text(
        "all: {children: {gpu_nodes: {hosts: {gpu01: {ansible_host: 192.0.2.1}}},"
        " registry: {hosts: {registry01: {ansible_host: 192.0.2.2}}}}}\n"
    )
    said = {
        "images": [
            {"source": f"http://{source.host}/t/{name}:1", "target": f"m/{name}"} for name in ("one", "two")
        ],
        "registry_push_port": pushing.port,
        "registry_data_dir": str(tmp_path),
        "ansible_user": "root",
    }
    (root / "group_vars/all.yml").write_text(yaml.safe_dump(said))
    good(call(root, "lock"))
    return root


def with_password(directory: Path, pushing: Running, password: str = PASSWORD) -> None:
    secrets = directory / ".clusterctl/secrets"
    secrets.mkdir(parents=True, exist_ok=True)
    token = base64.b64encode(f"push:{password}".encode()).decode()
    file = secrets / "registry-push.auth.json"
    file.write_text(json.dumps({"auths": {pushing.host: {"auth": token}}}))
    file.chmod(0o600)


def test_images_go_through_ssh_and_no_password_shows(directory: Path, pushing: Running, ssh: Path) -> None:
    assert error(call(directory, "images", "mirror")).code == "images.no-registry"
    with_password(directory, pushing)
    done = records(good(call(directory, "images", "mirror", "--json")))
    assert [one["state"] for one in done[:-1]] == ["copied", "copied"]
    assert done[-1]["registry"] == "registry01:5000"
    assert f":127.0.0.1:{pushing.port}" in (ssh / "calls").read_text()
    for file in (*directory.rglob("*"), ssh / "calls"):
        if file.is_file() and file.name != "registry-push.auth.json":
            assert PASSWORD.encode() not in file.read_bytes()


def test_a_wrong_password_is_said_and_nothing_is_there(directory: Path, pushing: Running) -> None:
    with_password(directory, pushing, "another")
    done = call(directory, "images", "mirror", "--json")
    assert done.return_value == 2
    assert {one["code"] for one in records(done)[:-1]} == {"images.login-refused"}
    assert "another" not in done.output


def test_a_host_that_allows_no_way_is_said(directory: Path, pushing: Running, ssh: Path) -> None:
    with_password(directory, pushing)
    (ssh / "refusal").write_text("root@192.0.2.2: Permission denied (publickey).\n")
    refused = error(call(directory, "images", "mirror"))
    assert (refused.code, refused.exit_code) == ("images.no-way", 1)
    assert "SSH refused our login (publickey)" in refused.what


def test_a_way_that_leads_to_nobody_is_said(directory: Path, pushing: Running) -> None:
    with_password(directory, pushing)
    pushing.kill()
    refused = error(call(directory, "images", "mirror"))
    assert refused.code == "images.no-way"
    assert "nothing listens there" in refused.what


def test_a_line_that_falls_is_laid_again(
    directory: Path, pushing: Running, ssh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clusterctl.cluster import forward
    from clusterctl.registry.oci import retry

    monkeypatch.setattr(forward, "AGAIN_S", 0.01)
    monkeypatch.setattr(retry, "_wait", lambda stop, _: stop.wait(0.5))
    with_password(directory, pushing)
    (ssh / "fall").touch()
    done = records(good(call(directory, "images", "mirror", "--json")))
    assert done[-1]["failed"] == 0
    assert not (ssh / "fall").exists()
    assert (ssh / "calls").read_text().count(" -L ") >= 2


def test_the_registry_s_disk_is_asked_first(
    directory: Path, pushing: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clusterctl.registry.images import registries

    with_password(directory, pushing)
    monkeypatch.setattr(registries, "_free", lambda *_: MB)
    refused = error(call(directory, "images", "mirror"))
    assert refused.code == "images.no-space"
    assert refused.where == "registry01:5000"
    assert not list((pushing.storage).rglob("data"))


class Answers:
    """A host that answers a command with an exit code."""

    def __init__(self, code: int, stderr: str = "") -> None:
        self.asked: list[str] = []
        self._answer = Completed(code, "", stderr)

    def run(self, node: str, argv: list[str], *, stdin: str = "", timeout_s: float) -> Completed:
        assert (node, stdin) == ("registry01", "")
        assert timeout_s > 600
        self.asked.append(argv[-1])
        return self._answer


# What systemd would do of it: Conflicts= before the command, ExecStopPost= after it, and its exit code.
SYSTEMD_RUN = """#!/bin/sh
for word; do
    case "$word" in
    --property=Conflicts=*) systemctl stop "${word#*Conflicts=}" ;;
    --property=ExecStopPost=*) after=${word#*ExecStopPost=} ;;
    -*) ;;
    *) break ;;
    esac
    shift
done
"$@"; code=$?
eval "$after"
exit $code
"""
SETPRIV = """#!/bin/sh
echo "setpriv $*" | cut -d' ' -f1-5 >>"$CALLS"
shift 4
exec "$@"
"""
HOST = {
    "systemd-run": SYSTEMD_RUN,
    "setpriv": SETPRIV,
    "systemctl": '#!/bin/sh\necho "systemctl $*" >>"$CALLS"\n',
    "docker-registry": '#!/bin/sh\necho "docker-registry $*" >>"$CALLS"\nexit "${COLLECTED:-0}"\n',
    "journalctl": "#!/bin/sh\necho 'open /x: permission denied'\n",
}


class Shell:
    """A host whose programs are stand-ins."""

    def run(self, _node: str, argv: list[str], *, stdin: str = "", timeout_s: float) -> Completed:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        return Completed(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "host").mkdir()
    for name, text in HOST.items():
        (tmp_path / "host" / name).write_text(text)
        (tmp_path / "host" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'host'}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_space_is_given_back_while_nobody_pushes_and_no_listener_remembers(calls: Path) -> None:
    collect(Shell(), "registry01")  # type: ignore[arg-type]
    push, public = "clusterctl-registry-push.service", "clusterctl-registry.service"
    assert calls.read_text().splitlines() == [
        f"systemctl stop {push}",
        "setpriv --reuid=docker-registry --regid=docker-registry --clear-groups --no-new-privs",
        "docker-registry garbage-collect /etc/clusterctl/registry/clusterctl-registry-push.yml",
        f"systemctl restart {public}",
        f"systemctl --no-block start {push}",
        f"systemctl is-active --quiet {public}",
        f"systemctl start {push}",
    ]


def test_a_collection_that_fails_is_said_in_its_own_words_and_the_listeners_come_back(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLECTED", "1")
    with pytest.raises(ClusterctlError, match="permission denied"):
        collect(Shell(), "registry01")  # type: ignore[arg-type]
    assert calls.read_text().splitlines()[-1] == "systemctl start clusterctl-registry-push.service"


def test_space_that_was_not_given_back_is_said() -> None:
    with pytest.raises(ClusterctlError) as refused:
        collect(Answers(1, "open /x: permission denied\n"), "registry01")
    assert refused.value.code == "images.not-collected"
    assert "permission denied" in refused.value.what


def test_garbage_collection_frees_what_was_removed_and_keeps_the_rest(
    tmp_path: Path, destination: Running
) -> None:
    gone = put_image(destination.host, "m/x", "1", [bytes_of("shared", MB), bytes_of("gone", MB)])
    kept = put_image(destination.host, "m/x", "2", [bytes_of("shared", MB)])
    with destination.client() as client:
        assert client.delete_manifest("m/x", gone.digest)
    destination.kill()
    # As COLLECT does it on the registry's host.
    subprocess.run(
        [program(), "garbage-collect", str(destination.configuration)], check=True, capture_output=True
    )
    assert not destination.blob_file(gone.layers[1].digest).exists()
    assert destination.blob_file(kept.layers[0].digest).exists()
