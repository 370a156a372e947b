"""How many logins a jump host is given, by what ssh says of its configuration."""

from __future__ import annotations

import pytest

from clusterctl.cluster.inventory import Host
from clusterctl.rollout.opening import logins_at_once


@pytest.mark.parametrize(("count", "jump", "forks"), [(8, True, 64), (9, True, 8), (9, False, 64)])
def test_a_jump_host_is_not_flooded(count, jump, forks):
    arguments = {"ansible_ssh_common_args": "-F none" + (" -J bastion" if jump else "")}
    hosts = [Host(f"gpu{n}", "192.0.2.9", 22, "ops", ("gpu_nodes",), arguments) for n in range(count)]
    assert logins_at_once(hosts) == forks
