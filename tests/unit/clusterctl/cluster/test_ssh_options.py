"""Every ssh that we start: nothing of this machine goes along, and an address is never an option."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from clusterctl.cluster import endpoint, forward, scan
from clusterctl.cluster.access import Passwords
from clusterctl.cluster.captured import OutputTooLongError
from clusterctl.cluster.directory import ClusterDirectory
from clusterctl.cluster.endpoint import Endpoint
from clusterctl.cluster.inventory import Host, from_listing
from clusterctl.cluster.reach import Deadline, ReachError
from clusterctl.cluster.scan import Reached
from clusterctl.cluster.ssh import OpenSshTransport
from clusterctl.cluster.ssh_options import ALONE, CLOSED
from clusterctl.cluster.sudo_password import PasswordTrial
from clusterctl.content import content_root
from clusterctl.engine.playbook import PlaybookRequest, _ssh_args
from clusterctl.errors import ClusterctlError

ADDRESS = "192.0.2.7"
OWN = {"ansible_ssh_common_args": "-o ForwardAgent=yes -o ForwardX11=yes"}
NODE = Host("gpu01", ADDRESS, 22, "ops", ("gpu_nodes",), OWN)
NOTES = """#!/bin/sh
here=$(dirname "$0")
{ for word; do printf '%s\\037' "$word"; done; echo; } >> "$here/calls"
exit 0
"""


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """The arguments of every ssh that is started from now on."""
    program = tmp_path / "ssh"
    program.write_text(NOTES)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return lambda: [line.split("\x1f")[:-1] for line in (tmp_path / "calls").read_text().splitlines() if line]


def options_of(call: list[str]) -> list[str]:
    return [following for word, following in pairwise(call) if word == "-o"]


def require_closed(call: list[str], wanted: tuple[str, ...]) -> None:
    """Ours come before anything that the inventory says, and the address cannot be taken for an option."""
    options = options_of(call)
    for option in wanted:
        name = option.partition("=")[0]
        assert next(one for one in options if one.startswith(f"{name}=")) == option
    assert call[call.index("--") + 1] == ADDRESS


def test_a_command_its_login_and_its_end_are_closed(noted, tmp_path):
    with OpenSshTransport(ClusterDirectory(tmp_path), [NODE]) as transport:
        transport.run("gpu01", ["true"], timeout_s=5)
    login, command, end = noted()
    require_closed(login, ALONE)
    require_closed(command, ALONE)
    assert "-f" in login
    assert "UpdateHostKeys=no" in options_of(login)
    assert end[-4:] == ["-O", "exit", "--", ADDRESS]


def test_a_forwarded_port_is_ours_alone(noted, tmp_path):
    with OpenSshTransport(ClusterDirectory(tmp_path), [NODE]) as transport:
        with contextlib.suppress(ClusterctlError), forward.forwarded(transport, "gpu01", 443):
            pass
        (call,) = noted()
    require_closed(call, CLOSED)
    assert "ClearAllForwardings=yes" not in call, "it would clear this one, too"
    assert "ExitOnForwardFailure=yes" in options_of(call)


def test_openssh_that_judges_a_certificate_is_closed(monkeypatch, tmp_path):
    seen = []

    def refuse(command, **_):
        seen.append(command)
        raise OutputTooLongError("it is not run here")

    monkeypatch.setattr(scan, "run_captured", refuse)
    way = Endpoint("gpu01", ADDRESS, 22, "ops", ADDRESS, arguments=("-v", ADDRESS))
    look = scan._Look(ClusterDirectory(tmp_path), way, (), Passwords(), Deadline(5), PasswordTrial())
    with pytest.raises(ReachError):
        scan._by_openssh(look, Reached("gpu01", ADDRESS, 22))
    require_closed(seen[0], ALONE)


def test_the_way_through_a_jump_host_is_closed_and_stays_the_operators(monkeypatch):
    monkeypatch.setattr(endpoint, "_ask_ssh", lambda *_: {"hostname": [ADDRESS], "proxyjump": ["a,b"]})
    found = endpoint.endpoint(NODE, 10)
    for option in CLOSED:
        assert option in options_of(list(found.proxy))
    assert found.proxy[-5:] == ("-J", "a", "-W", f"[{ADDRESS}]:22", "--", "ssh://b")[-5:]
    assert found.jump == "b"


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("-A", "-A"),
        ("-o User=x -vvA", "-A"),
        ("-J jump -Y", "-Y"),
        ("-S none", "-S"),
        ("-CM", "-M"),
        ("x -X", "-X"),
    ],
)
def test_a_flag_that_no_option_undoes_is_refused(words, flag):
    """ssh takes the first value of an option, but such a flag wherever it stands."""
    with pytest.raises(ClusterctlError, match=f"ansible_ssh_common_args of gpu01 has {flag}, ") as refused:
        endpoint.inventory_arguments(replace(NODE, variables={"ansible_ssh_common_args": words}))
    assert refused.value.code == "settings.value"


@pytest.mark.parametrize(
    "words", ["-i A -o ProxyCommand='ssh -A -W %h:%p jump'", "-F -A", "-vJ X,Y", "-?", "-a -x -T"]
)
def test_what_only_looks_like_such_a_flag_is_taken(words):
    taken = endpoint.inventory_arguments(replace(NODE, variables={"ansible_ssh_common_args": words}))
    assert taken[-len(shlex.split(words)) :] == tuple(shlex.split(words))


def test_ansible_is_closed_and_keeps_its_shared_connection(tmp_path):
    request = PlaybookRequest("site.yml", tmp_path / "hosts.yml", ("gpu01",), tmp_path)
    options = options_of(shlex.split(_ssh_args(request)))
    assert set(CLOSED) <= set(options)
    assert "ControlPersist=120s" in options
    assert "ClearAllForwardings=yes" not in options, "a site may lead its proxy to its nodes"


def test_plain_ansible_is_closed_too():
    text = Path(content_root() / "ansible.cfg").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("ssh_args"))
    assert set(CLOSED) <= set(options_of(shlex.split(line)))


@pytest.mark.parametrize(
    "value", ["-oProxyCommand=x", "{{ '-oProxyCommand=x' }}", "gpu 01", "a\x1b[2Jb", "x" * 2000]
)
@pytest.mark.parametrize("name", ["ansible_host", "ansible_user", "ansible_ssh_host"])
def test_what_would_be_an_option_of_ssh_is_no_address(tmp_path, name, value):
    listing = {
        "_meta": {"hostvars": {"gpu01": {name: value}}},
        "all": {"children": ["gpu_nodes"]},
        "gpu_nodes": {"hosts": ["gpu01"]},
    }
    with pytest.raises(ClusterctlError) as refused:
        from_listing(ClusterDirectory(tmp_path), listing)
    assert (refused.value.code, refused.value.where) == ("settings.value", f"gpu01: {name}")
