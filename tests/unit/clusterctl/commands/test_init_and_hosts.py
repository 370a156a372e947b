"""`init` and the parts of `hosts` that ask no host."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from clusterctl.cluster import quarantine, settings
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.engine import mutex
from clusterctl.errors import ClusterctlError
from clusterctl.main import cli


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False)


def error(result: Result) -> ClusterctlError:
    assert isinstance(result.exception, ClusterctlError), result.exception
    return result.exception


def test_init_makes_a_directory_that_is_valid_and_says_what_comes_next(tmp_path: Path) -> None:
    target = tmp_path / "my site"
    done = call("init", str(target))
    assert done.exception is None
    assert settings.check(ClusterDirectory(target)) == []
    assert (target / ".gitignore").read_text().endswith("/.clusterctl/\n")
    assert not (target / "gitignore").exists()
    steps = [line for line in done.stderr.splitlines() if line.startswith("  ")]
    assert [step.split(".")[0].strip() for step in steps] == ["1", "2", "3"]
    assert "clusterctl -C '" in done.stderr
    assert "hosts scan" in steps[1]


def test_init_makes_nothing_that_others_may_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        call("init", str(tmp_path / "site"))
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "site").rglob("*") if path.stat().st_mode & 0o022]
    assert made == []
    assert (tmp_path / "site/hosts.yml").exists()


def test_init_declares_the_hosts_it_is_given(tmp_path: Path) -> None:
    done = call(
        "init", str(tmp_path), "--hosts", "n1=10.0.0.1, n2=10.0.0.2", "--registry", "hub=10.0.0.9", "--json"
    )
    assert done.exception is None
    assert sorted(json.loads(done.stdout)["files"]) == [
        ".gitignore", "group_vars/all.yml", "group_vars/gpu_nodes.yml", "hosts.yml"
    ]  # fmt: skip
    listed = [
        json.loads(line) for line in call("-C", str(tmp_path), "hosts", "list", "--json").stdout.splitlines()
    ]
    assert [(h["host"], h["address"], h["groups"]) for h in listed] == [
        ("n1", "10.0.0.1", ["gpu_nodes"]),
        ("n2", "10.0.0.2", ["gpu_nodes"]),
        ("hub", "10.0.0.9", ["registry"]),
    ]
    assert settings.check(ClusterDirectory(tmp_path)) == []
    assert "# Servers with GPUs." in (tmp_path / "hosts.yml").read_text()


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("mine\n")
    refused = error(call("init", str(tmp_path)))
    assert (refused.code, refused.exit_code) == ("init.exists", 2)
    assert refused.what == "hosts.yml would be overwritten"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hosts.yml"]


def test_init_in_a_repository_leaves_its_ignore_file(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.o\n")
    done = call("init", str(tmp_path))
    assert "add /.clusterctl/ to" in done.stderr
    assert (tmp_path / ".gitignore").read_text() == "*.o\n"


@pytest.mark.parametrize("hosts", ["gpu01", "gpu01=", "=1", "a=1,a=2", "a=1,b=1", "a=-oX", "-a=1", "a b=1"])
def test_init_refuses_hosts_that_are_none(tmp_path: Path, hosts: str) -> None:
    target = tmp_path / "new"
    assert error(call("init", str(target), "--hosts", hosts)).exit_code == 2
    assert not target.exists()


@pytest.mark.parametrize(
    ("option", "given", "because", "example"),
    [
        ("--hosts", "a=1,gpu01", "'gpu01' in --hosts is not NAME=ADDRESS", "gpu02=10.0.0.2"),
        ("--hosts", "a=-oX", "'a=-oX' in --hosts has an address that begins with a dash", "gpu02=10.0.0.2"),
        ("--hosts", "a=1, a=2", "'a=2' in --hosts names a a second time", "gpu02=10.0.0.2"),
        ("--hosts", "a=1,b=1", "'b=1' in --hosts has the address of a", "gpu02=10.0.0.2"),
        ("--registry", "hub", "'hub' in --registry is not NAME=ADDRESS", "--registry registry01="),
    ],
)
def test_init_says_what_is_wrong_with_which_host(
    tmp_path: Path, option: str, given: str, because: str, example: str
) -> None:
    refused = error(call("init", str(tmp_path / "new"), option, given))
    assert refused.code == "init.hosts"
    assert refused.what.startswith(because)
    assert example in refused.hint


@pytest.fixture
def site(tmp_path: Path) -> Path:
    call("init", str(tmp_path))
    return tmp_path


def hosts(site: Path, *arguments: str) -> Result:
    return call("-C", str(site), "hosts", *arguments)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["gpu01", "10.0.0.1"], "hosts-file.exists"),
        (["gpu03", "-oProxyCommand=id"], "hosts.add"),
        (["gpu03", "10.0.0.3", "--user", "a b"], "hosts.add"),
        (["gpu03", "10.0.0.3", "--group", "gpu_node"], "hosts.group"),
        (["gpu 03", "10.0.0.3"], "hosts-file.name"),
    ],
)
def test_add_refuses_what_could_not_be_reached(site: Path, arguments: list[str], code: str) -> None:
    before = (site / "hosts.yml").read_text()
    # Behind --, as an address that starts with a dash is an option to click.
    (*options,) = arguments[2:]
    assert error(hosts(site, "add", *options, "--", *arguments[:2])).code == code
    assert (site / "hosts.yml").read_text() == before


@pytest.mark.parametrize(
    "arguments", [["quarantine", "gpu9", "--reason", "x"], ["replace", "gpu9"], ["remove", "gpu9"]]
)
def test_a_host_that_is_not_there_is_not_touched(site: Path, arguments: list[str]) -> None:
    refused = error(hosts(site, *arguments))
    assert refused.code == "inventory.unknown-host"
    assert "Did you mean gpu0" in refused.hint


def test_wrong_settings_stop_every_command_before_a_host_is_asked(site: Path) -> None:
    with (site / "group_vars/all.yml").open("a") as stream:
        stream.write("nvidia_driver_brnach: 580\n")
    for arguments in (["list"], ["scan"], ["quarantine", "gpu01", "--reason", "x"], ["replace", "gpu01"]):
        refused = error(hosts(site, *arguments))
        assert refused.exit_code == 2
        assert refused.hint == "Did you mean nvidia_driver_branch?"
        assert refused.where.split(":")[0].endswith("group_vars/all.yml")


def test_scan_refuses_a_fingerprint_that_is_none(site: Path) -> None:
    for word in ("gpu01", "gpu01=MD5:aa", "gpu9=SHA256:x"):
        assert error(hosts(site, "scan", "--expect", word)).code == "hosts.expect"


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "gpu03", "10.0.0.3"],
        ["replace", "gpu01"],
        ["remove", "gpu01", "--yes"],
        ["forget", "gpu01", "--yes"],
        ["quarantine", "gpu01", "--reason", "x"],
    ],
)
def test_hosts_are_not_changed_while_an_apply_works_on_them(site: Path, arguments: list[str]) -> None:
    before = (site / "hosts.yml").read_text()
    with mutex.held(ClusterDirectory(site), "apply"):
        refused = error(hosts(site, *arguments))
    assert (refused.code, refused.exit_code) == ("engine.held", 2)
    assert "has been running apply on this cluster since" in refused.what
    assert (site / "hosts.yml").read_text() == before
    assert quarantine.entries(ClusterDirectory(site)) == {}


def test_forget_is_a_deprecated_name_of_remove(site: Path) -> None:
    done = hosts(site, "forget", "gpu9", "--yes")
    assert error(done).code == "inventory.unknown-host"
    assert "The command 'forget' is deprecated. Use clusterctl hosts remove." in done.stderr
    assert "forget" not in hosts(site, "--help").output


@pytest.mark.parametrize("how", ["another user's directory", "another user's link", "world-writable"])
def test_init_writes_into_no_directory_of_others(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, elsewhere, lstat = tmp_path / "new", tmp_path / "elsewhere", Path.lstat
    for directory in (target, elsewhere):
        directory.mkdir(mode=0o755)
    (target / "group_vars").symlink_to(elsewhere)
    foreign = {"another user's directory": target, "another user's link": target / "group_vars"}.get(how)

    def of_another(path: Path) -> os.stat_result:
        state = lstat(path)
        return os.stat_result((*state[:4], 64001, *state[5:])) if path == foreign else state

    monkeypatch.setattr(Path, "lstat", of_another)
    if how == "world-writable":
        target.chmod(0o777)
    assert error(call("init", str(target))).code == "cluster.not-trusted"
    assert list(elsewhere.iterdir()) == []


def test_init_says_what_it_may_not_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lstat = Path.lstat

    def forbidden(path: Path) -> os.stat_result:
        if path.parent == tmp_path / "new":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", forbidden)
    refused = error(call("init", str(tmp_path / "new")))
    assert (refused.code, refused.where) == ("init.not-writable", str(tmp_path / "new/.gitignore"))
