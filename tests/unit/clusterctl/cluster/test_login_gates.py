"""How many log in at a time: by the jump host that sees them, and fewer after one was dropped."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from clusterctl.cluster.endpoint import Endpoint
from clusterctl.cluster.login_gates import PARALLEL_LOGINS_PER_JUMP, LoginGates


@pytest.mark.parametrize(
    "proxy",
    [
        ("-J", "ops@bastion:22", "-W", "[192.0.2.7]:22", "--", "ssh://rack7"),
        ("-J", "bastion,row2", "-W", "[192.0.2.7]:22", "--", "ssh://rack7"),
        ("-W", "[192.0.2.7]:22", "--", "ssh://root@bastion"),
    ],
)
def test_all_who_pass_one_jump_host_first_share_its_gate(proxy):
    """Its sshd drops logins at random from ten on that have not authenticated."""
    gates = LoginGates()
    way = Endpoint(
        "gpu01", "192.0.2.7", 22, "", "192.0.2.7", jump=proxy[-1].removeprefix("ssh://"), proxy=proxy
    )
    plain = Endpoint("gpu02", "192.0.2.8", 22, "", "192.0.2.8", jump="bastion", proxy=("-W", "x"))
    assert gates.gate(way) is gates.gate(plain) is not gates.gate(replace(plain, jump="other"))


def test_a_dropped_login_waits_until_fewer_are_under_way(monkeypatch):
    gates, leave, waits = LoginGates(), threading.Event(), threading.Event()
    every = threading.Barrier(PARALLEL_LOGINS_PER_JUMP + 1)
    wait_for = gates._fewer.wait_for

    def noted(is_enough, _limit_s):
        waits.set()
        return wait_for(is_enough, 30)

    monkeypatch.setattr(gates._fewer, "wait_for", noted)

    def log_in():
        with gates.under_way(again=False):
            every.wait(30)
            leave.wait(30)

    def log_in_again():
        with gates.under_way(again=True):
            return leave.is_set()

    with ThreadPoolExecutor(PARALLEL_LOGINS_PER_JUMP + 1) as pool:
        logins = [pool.submit(log_in) for _ in range(PARALLEL_LOGINS_PER_JUMP)]
        every.wait(30)
        again = pool.submit(log_in_again)
        assert waits.wait(30) and not again.done()
        leave.set()
        assert again.result(30)
        assert [login.result(30) for login in logins] == [None] * PARALLEL_LOGINS_PER_JUMP
