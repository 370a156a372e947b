"""Mirrors: one model, the files of every engine, and the engines themselves pulling by them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import docker_daemon_config
import pytest
import registry_mirrors as module
from ansible.module_utils import basic, containerd_config, registry_mirrors

from .loopback_registry import Registry, needs_registry, push_tiny, registry

CA = "/usr/local/share/ca-certificates/clusterctl-mysite.crt"
needs_containerd = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("containerd") or not shutil.which("ctr"),
    reason="wants root and containerd",
)
needs_skopeo = pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo is not installed")


def model(*declared: dict[str, Any], fail_closed: bool = False) -> dict[str, list[registry_mirrors.Mirror]]:
    return registry_mirrors.read_mirrors(declared, fail_closed=fail_closed)


HUB = {"upstream": "docker.io", "url": "https://harbor.lan/dockerhub"}


def toml_of(*declared: dict[str, Any], fail_closed: bool = False, **credentials: str) -> dict[str, Any]:
    mirrors = model(*declared, fail_closed=fail_closed)["docker.io"]
    return tomllib.loads(registry_mirrors.hosts_toml("docker.io", mirrors, CA, credentials))


def test_a_mirror_with_a_path_stands_behind_v2_and_the_upstream_is_the_last_resort() -> None:
    read = toml_of(HUB)
    assert read["server"] == "https://registry-1.docker.io"
    assert read["host"] == {
        "https://harbor.lan/v2/dockerhub": {
            "capabilities": ["pull", "resolve"], "ca": CA, "override_path": True,
        }
    }  # fmt: skip


@pytest.mark.parametrize("how", [{"fallback": False}, {}])
def test_fail_closed_leaves_nobody_to_ask_but_the_mirror(how: dict[str, Any]) -> None:
    read = toml_of({**HUB, **how}, fail_closed=not how)
    asked = {"capabilities": ["pull", "resolve"], "ca": CA, "override_path": True}
    mirror = "https://harbor.lan/v2/dockerhub"
    assert read == {"server": mirror, **asked, "host": {mirror: asked}}


def test_several_mirrors_keep_their_order_and_one_that_is_closed_closes_all() -> None:
    second = {"upstream": "docker.io", "url": "http://cache:5000", "fallback": False}
    text = registry_mirrors.hosts_toml("docker.io", model(HUB, second)["docker.io"], CA, {})
    assert list(tomllib.loads(text)["host"]) == ["https://harbor.lan/v2/dockerhub", "http://cache:5000"]
    assert tomllib.loads(text)["server"] == "http://cache:5000"
    assert "docker.io" not in text


def test_credentials_go_to_their_own_host_alone_into_a_file_of_roots_alone() -> None:
    other = {"upstream": "docker.io", "url": "https://elsewhere/hub"}
    text = registry_mirrors.hosts_toml(
        "docker.io", model(HUB, other)["docker.io"], CA, {"harbor.lan": "Basic c2VjcmV0"}
    )
    read = tomllib.loads(text)["host"]
    assert read["https://harbor.lan/v2/dockerhub"]["header"] == {"authorization": "Basic c2VjcmV0"}
    assert "header" not in read["https://elsewhere/v2/hub"]
    assert "c2VjcmV0" not in registry_mirrors.without_secrets(text)
    by_port = registry_mirrors.hosts_toml(
        "docker.io", model(HUB, other)["docker.io"], CA, {"harbor.lan:443": "Basic c2VjcmV0"}
    )
    assert by_port == text
    assert module.Wanted(Path("/x/hosts.toml"), text).mode == 0o600
    assert module.Wanted(Path("/x/hosts.toml"), "server\n").mode == 0o644


def test_registries_conf_rewrites_where_the_upstream_must_not_be_asked() -> None:
    open_ended = tomllib.loads(registry_mirrors.registries_conf(model(HUB)))["registry"]
    assert open_ended == [
        {"prefix": "docker.io", "location": "docker.io", "mirror": [{"location": "harbor.lan/dockerhub"}]}
    ]
    closed = tomllib.loads(registry_mirrors.registries_conf(model(HUB, fail_closed=True)))["registry"]
    assert closed == [{"prefix": "docker.io", "location": "harbor.lan/dockerhub"}]


def test_what_dockers_own_list_of_mirrors_cannot_do_is_said() -> None:
    plain = {"upstream": "docker.io", "url": "https://registry01:5000/"}
    assert registry_mirrors.unusable_by_daemon(model(plain)) == []
    assert registry_mirrors.daemon_mirrors(model(plain)) == ["https://registry01:5000"]
    assert "no path" in registry_mirrors.unusable_by_daemon(model(HUB))[0]
    assert "always asks docker.io" in registry_mirrors.unusable_by_daemon(model(plain, fail_closed=True))[0]
    quay = {"upstream": "quay.io", "url": "https://registry01:5000"}
    assert "docker.io alone" in registry_mirrors.unusable_by_daemon(model(quay))[0]


@pytest.mark.parametrize(
    ("one", "because"),
    [
        ({"upstream": "docker.io", "url": "registry01:5000"}, "no address"),
        ({"upstream": "docker.io", "url": "https://user:word@registry01"}, "no address"),
        ({"upstream": "docker.io", "url": 'https://x"]\nserver="y'}, "no address"),
        ({"upstream": "https://docker.io", "url": "https://registry01"}, "no upstream"),
    ],
)
def test_a_mirror_that_no_engine_could_use_is_refused(one: dict[str, Any], because: str) -> None:
    with pytest.raises(ValueError, match=because):
        model(one)


def options(tmp_path: Path, **given: Any) -> dict[str, Any]:
    return {
        "address": "harbor.lan", "ca": CA, "mirrors": [HUB], "fail_closed": False, "engines": ["docker"],
        "docker_reads_hosts_toml": True, "credentials": "", "docker_certs": str(tmp_path / "docker"),
        "registries_conf": str(tmp_path / "registries.conf"), "containerd_tree": str(tmp_path / "containerd"),
        **given,
    }  # fmt: skip


def names(files: list[Any], tmp_path: Path) -> list[str]:
    return [str((file.path if hasattr(file, "path") else file).relative_to(tmp_path)) for file in files]


def test_each_engine_gets_the_files_that_it_reads(tmp_path: Path) -> None:
    tree = [str(tmp_path / "containerd")]
    everything = ["docker", "containerd", "containers"]
    assert names(module.wanted_files(options(tmp_path), []), tmp_path) == ["docker/docker.io/hosts.toml"]
    old = options(tmp_path, docker_reads_hosts_toml=False)
    assert module.wanted_files(old, []) == []
    closed = options(tmp_path, engines=everything, docker_reads_hosts_toml=False, fail_closed=True)
    assert names(module.wanted_files(closed, tree), tmp_path) == [
        "containerd/harbor.lan/hosts.toml", "containerd/docker.io/hosts.toml",
        "containerd/_default/hosts.toml", "registries.conf",
    ]  # fmt: skip


def test_what_is_no_longer_declared_goes_and_what_others_wrote_stays(tmp_path: Path) -> None:
    for file in module.wanted_files(options(tmp_path, engines=["docker", "containers"]), []):
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(file.content, encoding="utf-8")
    theirs = tmp_path / "docker/quay.io/hosts.toml"
    theirs.parent.mkdir()
    theirs.write_text('server = "https://theirs"\n', encoding="utf-8")
    less = options(tmp_path, mirrors=[])
    stale = module.stale_files(less, [], module.wanted_files(less, []))
    assert names(stale, tmp_path) == ["docker/docker.io/hosts.toml", "registries.conf"]


def test_a_file_with_a_secret_that_others_can_read_is_not_as_it_should_be(tmp_path: Path) -> None:
    wanted = module.Wanted(tmp_path / "hosts.toml", 'authorization = "Basic x"\n')
    wanted.path.write_text(wanted.content, encoding="utf-8")
    wanted.path.chmod(0o644)
    assert not wanted.is_there()
    wanted.path.chmod(0o600)
    assert wanted.is_there()


def test_a_mirror_of_ours_leaves_daemon_json_and_an_operators_stays() -> None:
    ours, theirs = "https://registry01:5000", "https://theirs"
    daemon = f'{{"registry-mirrors": ["{ours}/", "{theirs}"]}}'
    assert module.former_mirrors(f'["{ours}"]', daemon, []) == [ours]
    assert module.former_mirrors(f'["{ours}"]', daemon, [ours]) == []
    assert module.former_mirrors("", daemon, []) == []
    gone = {"registry-mirrors": [ours]}
    both = {"registry-mirrors": [ours + "/", theirs], "debug": True}
    assert docker_daemon_config.without_items(both, gone) == {"registry-mirrors": [theirs], "debug": True}
    # Named and empty: a daemon that is reloaded keeps what the file does not name.
    assert docker_daemon_config.without_items({"registry-mirrors": [ours]}, gone) == {"registry-mirrors": []}
    shown = {"RegistryConfig": {"Mirrors": [f"{ours}/", theirs]}}
    assert docker_daemon_config.unmet({}, shown, gone)["reload"] == [f"registry-mirrors without {ours}"]
    assert docker_daemon_config.unmet({}, {"RegistryConfig": {"Mirrors": [theirs]}}, gone)["reload"] == []
    assert docker_daemon_config.without_items({"registry-mirrors": []}, {"registry-mirrors": []}) == {
        "registry-mirrors": []
    }


DEBIANS = """version = 2

[plugins]
  # theirs
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
"""
EMPTY_PATH = """version = 3
[plugins.'io.containerd.cri.v1.images'.registry]
   config_path = ''  # none

[plugins.'io.containerd.cri.v1.images'.pinned_images]
   sandbox = 'pause'
"""


@pytest.mark.parametrize(
    "text", [DEBIANS, EMPTY_PATH, "", 'version = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\n']
)
def test_one_line_is_set_in_containerds_options_and_the_rest_stays(text: str) -> None:
    version = containerd_config.format_version(text) if text else 3
    after = containerd_config.with_config_path(text, version, "/etc/containerd/certs.d")
    before, read = tomllib.loads(text), tomllib.loads(after)
    section = read["plugins"][containerd_config.PLUGINS[version]]["registry"]
    assert section.pop("config_path") == "/etc/containerd/certs.d"
    assert all(line in after.splitlines() for line in text.splitlines() if "config_path" not in line)
    assert containerd_config.registry_trees(after) == ["/etc/containerd/certs.d"]
    assert containerd_config.with_config_path(after, version, "/etc/containerd/certs.d") == after
    if "cni" in text:
        cri = "io.containerd.grpc.v1.cri"
        assert read["plugins"][cri]["cni"] == before["plugins"][cri]["cni"]


def test_the_old_form_of_mirrors_is_in_the_way_and_empty_tables_are_not() -> None:
    cri = 'plugins."io.containerd.grpc.v1.cri".registry'
    assert containerd_config.in_the_way(f"[{cri}.mirrors]\n[{cri}.configs]\n[{cri}.auths]\n") == []
    assert containerd_config.in_the_way(f'[{cri}.mirrors."docker.io"]\n') == ["registry.mirrors"]
    assert containerd_config.in_the_way(f'[{cri}.configs."h:1".auth]\n') == []
    assert containerd_config.in_the_way(f'[{cri}.configs."h:1".tls]\n') == ["registry.configs.tls"]
    with pytest.raises(ValueError, match="config migrate"):
        containerd_config.with_config_path("root = '/x'\n", 1, "/x")


@needs_containerd
@pytest.mark.parametrize("text", [DEBIANS, ""])
def test_containerd_itself_takes_the_line(text: str, tmp_path: Path) -> None:
    said = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=True).stdout
    version = containerd_config.format_version(text) if text else containerd_config.default_version(said)
    config = tmp_path / "config.toml"
    config.write_text(containerd_config.with_config_path(text, version, "/trees"), encoding="utf-8")
    dumped = subprocess.run(
        ["containerd", "--config", str(config), "config", "dump"], capture_output=True, text=True, check=True
    ).stdout
    assert containerd_config.registry_trees(dumped) == ["/trees"]


def hashed(user: str, password: str) -> str:
    return f"{user}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(4, b'2b')).decode()}\n"


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Registry]:
    """The registry that must not be asked, with an image that the mirror lacks."""
    with registry(tmp_path / "upstream") as running:
        push_tiny(f"{running.address}/library/only-there:1", tmp_path / "a")
        push_tiny(f"{running.address}/library/tiny:1", tmp_path / "b")
        yield running


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Registry]:
    """The mirror: its images stand below a path, and it wants a password."""
    with registry(tmp_path / "mirror", hashed("robot$nodes", "Aa1secret")) as running:
        push_tiny(
            f"{running.address}/hub/library/tiny:1", tmp_path / "c", "--dest-creds", "robot$nodes:Aa1secret"
        )
        yield running


@pytest.fixture
def ctr(tmp_path: Path) -> Iterator[list[str]]:
    """A containerd of its own, and how to speak to it."""
    address = tmp_path / "c.sock"
    config = tmp_path / "containerd.toml"
    config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', encoding="utf-8")
    with (tmp_path / "containerd.log").open("wb") as log:
        running = subprocess.Popen(
            ["containerd", "--config", str(config), "--root", str(tmp_path / "root"),
             "--state", str(tmp_path / "state"), "--address", str(address)],
            stdout=log, stderr=log,
        )  # fmt: skip
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as there:
                there.connect(str(address))
            break
        except OSError:
            assert running.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    yield ["ctr", "--address", str(address)]
    running.terminate()
    running.wait(20)


@needs_registry
@needs_skopeo
@needs_containerd
@pytest.mark.parametrize("fail_closed", [False, True])
def test_containerd_pulls_through_the_mirror_as_the_robot(
    fail_closed: bool, upstream: Registry, mirror: Registry, ctr: list[str], tmp_path: Path
) -> None:
    token = "cm9ib3Qkbm9kZXM6QWExc2VjcmV0"
    declared = {"upstream": "up.test", "url": f"http://{mirror.address}/hub"}
    mirrors = model(declared, fail_closed=fail_closed)["up.test"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry_mirrors.UPSTREAM_SERVERS, "up.test", f"http://{upstream.address}")
        text = registry_mirrors.hosts_toml("up.test", mirrors, "", {mirror.address: f"Basic {token}"})
    tree = tmp_path / "trees/up.test"
    tree.mkdir(parents=True)
    (tree / "hosts.toml").write_text(text, encoding="utf-8")
    before = len(upstream.asked())

    def fetch(image: str) -> int:
        command = [*ctr, "content", "fetch", "--hosts-dir", str(tree.parent), f"up.test/library/{image}:1"]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode

    assert fetch("tiny") == 0
    assert any(line.startswith("GET /v2/hub/library/tiny/blobs/") for line in mirror.asked())
    assert upstream.asked()[before:] == []
    assert (fetch("only-there") == 0) is not fail_closed
    assert (upstream.asked()[before:] == []) is fail_closed


@needs_registry
@needs_skopeo
@needs_containerd
def test_containerd_asks_the_clusters_registry_for_what_has_no_file(
    upstream: Registry, ctr: list[str], tmp_path: Path
) -> None:
    ours = registry_mirrors.Mirror("any", "http", upstream.address, "", fallback=False)
    tree = tmp_path / "trees" / registry_mirrors.ANY_OTHER
    tree.mkdir(parents=True)
    (tree / "hosts.toml").write_text(registry_mirrors.hosts_toml("any", [ours], "", {}), encoding="utf-8")

    def fetch(image: str) -> str:
        command = [*ctr, "content", "fetch", "--hosts-dir", str(tree.parent), f"undeclared.invalid/{image}:1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.stderr if done.returncode else ""

    assert fetch("library/tiny") == ""
    assert "not found" in fetch("library/nobody-has-it")
    assert any("/v2/library/nobody-has-it/manifests/1" in line for line in upstream.asked())


@needs_registry
@needs_skopeo
@pytest.mark.parametrize("fail_closed", [False, True])
def test_registries_conf_sends_skopeo_to_the_mirror(
    fail_closed: bool, upstream: Registry, mirror: Registry, tmp_path: Path
) -> None:
    declared = {"upstream": upstream.address, "url": f"http://{mirror.address}/hub"}
    # An older skopeo looks at no variable for it, but all look at their user's own file.
    conf = tmp_path / ".config/containers/registries.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(
        registry_mirrors.registries_conf(model(declared, fail_closed=fail_closed)), encoding="utf-8"
    )
    auth = tmp_path / "auth.json"
    auth.write_text(
        f'{{"auths": {{"{mirror.address}": {{"auth": "cm9ib3Qkbm9kZXM6QWExc2VjcmV0"}}}}}}', encoding="utf-8"
    )
    before = len(upstream.asked())

    def inspect(image: str) -> int:
        command = ["skopeo", "inspect", "--raw", "--authfile", str(auth), "--tls-verify=false"]
        return subprocess.run(
            [*command, f"docker://{upstream.address}/library/{image}:1"],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True, timeout=60, check=False,
        ).returncode  # fmt: skip

    assert inspect("tiny") == 0
    assert "GET /v2/hub/library/tiny/manifests/1" in mirror.asked()
    assert upstream.asked()[before:] == []
    assert (inspect("only-there") == 0) is not fail_closed
    assert (upstream.asked()[before:] == []) is fail_closed


def test_a_secret_reaches_the_disk_as_roots_alone(tmp_path: Path) -> None:
    wanted = module.Wanted(tmp_path / "t/docker.io/hosts.toml", 'x\nauthorization = "Basic x"\n')
    module.replace_file(wanted.path, wanted.content, wanted.mode)
    assert stat.S_IMODE(wanted.path.stat().st_mode) == 0o600


def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, check: bool = False, **given: Any
) -> dict[str, Any]:
    """The module as Ansible calls it, on directories of our own."""
    arguments = {
        **options(tmp_path), "record": str(tmp_path / "record"), "daemon_json": str(tmp_path / "daemon.json"),
        "containerd_config": str(tmp_path / "config.toml"), **given,
    }  # fmt: skip
    arguments.update(_ansible_check_mode=check, _ansible_remote_tmp=str(tmp_path / "tmp"))
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    with pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def test_check_mode_says_what_the_run_does_and_a_second_run_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engines = ["docker", "containers"]
    told = run(tmp_path, capsys, check=True, engines=engines)
    assert told["changed"]
    assert not (tmp_path / "registries.conf").exists()
    did = run(tmp_path, capsys, engines=engines)
    assert did["files"] == told["files"]
    assert not run(tmp_path, capsys, engines=engines)["changed"]
    gone = run(tmp_path, capsys, engines=engines, mirrors=[])
    assert gone["files"] == did["files"]
    assert list((tmp_path / "docker").iterdir()) == []
    assert not run(tmp_path, capsys, engines=engines, mirrors=[])["changed"]


def test_dockers_own_list_follows_what_is_declared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {"docker_reads_hosts_toml": False, "docker_version": "20.10"}
    plain = {"upstream": "docker.io", "url": "https://registry01:5000"}
    did = run(tmp_path, capsys, mirrors=[plain], **old)
    assert (did["registry_mirrors"], did["former"]) == (["https://registry01:5000"], [])
    (tmp_path / "daemon.json").write_text(
        '{"registry-mirrors": ["https://registry01:5000"]}', encoding="utf-8"
    )
    later = run(tmp_path, capsys, mirrors=[], **old)
    assert (later["registry_mirrors"], later["former"]) == ([], ["https://registry01:5000"])
    (tmp_path / "daemon.json").write_text("{}", encoding="utf-8")
    assert run(tmp_path, capsys, mirrors=[], **old)["former"] == []
    refused = run(tmp_path, capsys, mirrors=[HUB], fail_closed=True, **old)
    assert refused["failed"]
    assert "Docker 20.10 cannot use these mirrors" in refused["msg"]


@needs_containerd
def test_containerd_is_given_a_tree_once_it_has_taken_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(DEBIANS, encoding="utf-8")
    told = run(tmp_path, capsys, check=True, engines=["containerd"])
    assert config.read_text(encoding="utf-8") == DEBIANS
    did = run(tmp_path, capsys, engines=["containerd"])
    assert did["files"] == told["files"] == [
        str(config), str(tmp_path / "containerd/harbor.lan/hosts.toml"),
        str(tmp_path / "containerd/docker.io/hosts.toml"),
    ]  # fmt: skip
    assert list(tmp_path.glob("config.toml.*~")), "what was there is kept beside it"
    assert not run(tmp_path, capsys, engines=["containerd"])["changed"]
    # A tree of the operator's own is used, and his line stays.
    theirs = config.read_text(encoding="utf-8").replace(
        str(tmp_path / "containerd"), str(tmp_path / "theirs")
    )
    config.write_text(theirs, encoding="utf-8")
    moved = run(tmp_path, capsys, engines=["containerd"])
    assert config.read_text(encoding="utf-8") == theirs
    assert (tmp_path / "theirs/docker.io/hosts.toml").is_file()
    assert str(tmp_path / "containerd/docker.io/hosts.toml") in moved["files"]
    assert not (tmp_path / "containerd/docker.io").exists()


@needs_containerd
@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("version = 2\n[plugins\n", "containerd does not take"),
        ('version = 2\n[plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]\n',
         "has registry.mirrors, beside which containerd takes no config_path"),
        ('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  registry = {config_path = ""}\n',
         "does not take"),
    ],
)  # fmt: skip
def test_a_configuration_that_one_line_does_not_mend_is_left_alone(
    text: str, because: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text, encoding="utf-8")
    refused = run(tmp_path, capsys, engines=["containerd"])
    assert refused["failed"]
    assert because in refused["msg"]
    assert config.read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir() if "clusterctl" in path.name] == []
