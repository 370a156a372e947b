"""How apt-get is run: where a proxy's password lies, and what becomes of an interrupted transaction."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import apt_run, dnf_run
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies

SECRET = "http://site:canary@proxy:3128"
BROKEN = (100, "", "E: dpkg was interrupted, you must manually run 'dpkg --configure -a'")
REFUSED = (1, "", "dpkg: error processing package x")
WHOLE = (0, "a|1|install ok installed\n", "")
HALF = (
    0,
    "a|1|install reinstreq half-installed\nb:i386|2|hold reinstreq half-installed\nc|3|hold ok installed\n",
    "",
)
GOOD = (0, "", "")


def test_a_proxys_password_is_in_a_file_of_ours_alone_and_not_in_the_environment() -> None:
    with apt_run.environment(Proxies(SECRET, "", "depot,.example.org")) as environment:
        path = Path(environment["APT_CONFIG"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.stat().st_uid == os.geteuid()
        assert f'Acquire::http::Proxy "{SECRET}";\n' in path.read_text()
        assert "canary" not in str(environment)
        assert environment["no_proxy"] == "depot,.example.org"
    assert not path.parent.exists()


@pytest.mark.parametrize("runner", [apt_run.runner, dnf_run.dnf_runner], ids=["apt", "dnf"])
def test_what_a_proxy_says_again_of_its_password_is_masked(runner: Any) -> None:
    words = f"Err: 407 {SECRET} canary {base64.b64encode(b'site:canary').decode()}\n"
    addresses = {"http_proxy": SECRET, "https_proxy": "", "no_proxy": ""}
    answers = {"update": (0, words, words), "install": (1, words, words), "show": (0, "canary\n", words)}
    module = SimpleNamespace(params=addresses, run_command=lambda argv, **_: answers[argv[-1]])
    with runner(module) as run:
        for name in ("update", "install"):
            assert run(["x", name])[1:] == ("Err: 407 http://***@proxy:3128 *** ***\n",) * 2
        # What is read of a program that succeeds is as it is.
        assert run(["x", "show"])[1] == "canary\n"
        assert "canary" not in run(["x", "show"])[2]


@pytest.mark.parametrize(
    ("http", "https", "lines"),
    [
        ("", "", []),
        ("http://a", "", ['Acquire::http::Proxy "http://a";', 'Acquire::https::Proxy "DIRECT";']),
        ("", "http://b", ['Acquire::https::Proxy "http://b";']),
        ("http://a", "http://b", ['Acquire::http::Proxy "http://a";', 'Acquire::https::Proxy "http://b";']),
    ],
)
def test_each_scheme_goes_through_its_own_proxy_or_none(http: str, https: str, lines: list[str]) -> None:
    assert apt_run.settings(Proxies(http, https)).splitlines()[1:] == lines


@pytest.mark.parametrize(
    ("answers", "calls", "code"),
    [
        ([GOOD, WHOLE], ["apt-get", "dpkg-query"], 0),
        ([(100, "", "E: Unable to locate package x"), WHOLE], ["apt-get", "dpkg-query"], 100),
        ([BROKEN, GOOD, WHOLE, GOOD], ["apt-get", "dpkg", "dpkg-query", "apt-get"], 0),
        ([BROKEN, REFUSED, WHOLE, BROKEN], ["apt-get", "dpkg", "dpkg-query", "apt-get"], 1),
        ([BROKEN, GOOD, WHOLE, BROKEN], ["apt-get", "dpkg", "dpkg-query", "apt-get"], 100),
    ],
)
def test_a_transaction_that_was_cut_off_is_completed_once(
    answers: list[tuple[int, str, str]], calls: list[str], code: int
) -> None:
    called: list[str] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        called.append(argv[0])
        return answers[len(called) - 1]

    assert apt_run.completing(run, ["apt-get", "install", "x"])[0] == code
    assert called == calls


@pytest.mark.parametrize(
    ("answers", "again"),
    [
        ([GOOD, HALF, GOOD, WHOLE, GOOD], [["a=1", "b:i386=2"]]),
        # The archive has the version before no more.
        ([GOOD, HALF, (100, "", "E: Version"), HALF, GOOD, GOOD], [["a=1", "b:i386=2"], ["a", "b:i386"]]),
    ],
)
def test_what_was_unpacked_in_part_is_unpacked_again(
    answers: list[tuple[int, str, str]], again: list[list[str]]
) -> None:
    called: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        called.append(argv)
        return answers[len(called) - 1]

    assert apt_run.completing(run, ["apt-get", "install", "x"]) == GOOD
    assert [argv[argv.index("install") + 1 :] for argv in called if "--reinstall" in argv] == again
    assert called[0] == called[-1] == ["apt-get", "install", "x"]


def test_a_source_at_an_address_of_a_network_in_no_proxy_is_reached_directly(tmp_path: Path) -> None:
    sources = tmp_path / "etc/apt/sources.list.d"
    sources.mkdir(parents=True)
    (sources / "site.list").write_text("deb http://10.1.2.3/debian bookworm main\n", encoding="utf-8")
    (sources / "world.sources").write_text("URIs: https://deb.debian.org/debian\n", encoding="utf-8")
    said = apt_run.settings(Proxies("http://proxy:3128", "", "10.0.0.0/8"), tmp_path)
    assert 'Acquire::http::Proxy::10.1.2.3 "DIRECT";\n' in said
    assert "deb.debian.org" not in said


HOLDER = """\
import fcntl, sys
with open(sys.argv[1], "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_the_lists_are_read_when_apt_daily_has_read_them(tmp_path: Path) -> None:
    lock = tmp_path / "lists/lock"
    lock.parent.mkdir()
    # As apt answers beside another one that reads the lists.
    busy = f"E: Could not get lock {lock}. It is held by process 815 (apt-get)\nE: Unable to lock directory"
    asked: list[list[str]] = []
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as daily:
        assert daily.stdout and daily.stdin and daily.stdout.readline() == "locked\n"

        def run(argv: list[str]) -> tuple[int, str, str]:
            asked.append(argv)
            if len(asked) == 1:
                Timer(0.2, daily.stdin.close).start()  # it ends while we wait
                return 100, "", busy
            assert daily.wait(10) == 0
            return GOOD

        assert apt_run.update(run, ["-o", "X=1"]) == GOOD
    assert asked == [["apt-get", "-q", "-o", "X=1", "update"]] * 2


@pytest.mark.parametrize(
    "error", ["E: The repository is not signed.", "E: Could not get lock /nowhere/lists/lock. It is held"]
)
def test_what_waiting_does_not_help_is_answered_at_once(error: str) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return 100, "", error

    assert apt_run.update(run) == (100, "", error)
    assert len(asked) == 1
