"""apply --offline: what is refused, watched and proved. Ansible is played by data."""

from __future__ import annotations

import json

import pytest

from clusterctl.engine.ledger import HostRecord
from clusterctl.errors import ClusterctlError
from clusterctl.rollout.drift.probe import DriftReport
from clusterctl.runs.store import RunStore

from .played import records


@pytest.fixture
def offline(clusterctl, listing):
    """Apply offline; all sources of packages are a mirror of the site unless ``settings`` say otherwise."""

    def call(*words, **settings):
        urls = ("nvidia_driver_repository_url", "nvidia_container_toolkit_repository_url")
        inside = dict.fromkeys(urls, "http://mirror.site/nvidia") | {"site_offline_hosts": ["mirror.site"]}
        for variables in listing["_meta"]["hostvars"].values():
            variables.update(inside | settings)
        return clusterctl("apply", "--yes", "--offline", *words)

    return call


def watches(ansible):
    return [request.extra_vars for request in ansible.requests if request.playbook == "offline.yml"]


def test_an_offline_apply_proves_that_nobody_else_was_contacted(offline, cluster, ansible, capsys):
    assert offline("--json") == 0
    lines, messages = records(capsys)
    assert lines[-1]["offline"]["proved"]
    assert lines[-1]["offline"]["hosts"]["gpu01"]["inside"] == {"192.0.2.9": 3}
    assert "offline: gpu01-gpu03, registry01 contacted no host but the cluster's (12 contacts" in messages
    began, ended = watches(ansible)
    assert [one["clusterctl_offline_state"] for one in (began, ended)] == ["started", "ended"]
    assert "192.0.2.1/32" in began["clusterctl_offline_allowed"]
    assert "mirror.site" in began["clusterctl_offline_names"]
    assert json.loads(RunStore(cluster).get("last").path("offline.json").read_text())["proved"]


@pytest.mark.parametrize(
    "case",
    [
        ({"outside": [{"address": "151.101.2.132", "protocol": "tcp", "port": 443, "times": 2, "by": "apt"}]},
         1, "it contacted 151.101.2.132:443 (tcp, 2 times) by apt"),
        ({"lost": 7}, 3, "7 packets went by unheard"),
        ({"gaps": 1}, 3, "its watch was interrupted (1 time)"),
        ({"open": [{"address": "151.101.2.132", "protocol": "tcp", "port": 443, "times": 1, "by": "ssh"}]},
         3, "sessions were open before its watch started: 151.101.2.132:443 (tcp, 1 time) by ssh"),
        ({"ended": False}, 3, "its watch did not run to the end"),
        ({"run": "another"}, 3, "its traffic is unknown: the recorder left no record"),
    ],
)  # fmt: skip
def test_what_is_not_proved_is_not_good(offline, ansible, capsys, case):
    heard, code, because = case
    ansible.heard = {"gpu02": heard}
    assert offline("--json") == code
    lines, messages = records(capsys)
    assert not lines[-1]["offline"]["proved"]
    assert lines[-1]["offline"]["hosts"]["gpu01"]["proved"]
    assert f"gpu02: not proved offline: {because}" in messages


@pytest.mark.parametrize("odd", [{"outside": "x"}, {"gaps": "many"}, {"inside": {"a": "b"}}, {"lost": -1},
                                 {"outside": [{"address": 1}]}, {"open": [[]]}], ids=str)  # fmt: skip
def test_a_record_that_cannot_be_read_proves_nothing_of_its_own_host(offline, ansible, capsys, odd):
    ansible.heard = {"gpu02": odd}
    assert offline("--json") == 3
    lines, messages = records(capsys)
    hosts = lines[-1]["offline"]["hosts"]
    assert {name: one["proved"] for name, one in hosts.items()} == {
        "gpu01": True, "gpu02": False, "gpu03": True, "registry01": True,
    }  # fmt: skip
    assert "gpu02: what its watch answers cannot be read" in messages


def test_a_contact_is_bad_though_another_host_was_busy(offline, ansible, capsys):
    ansible.says = {"gpu01": {"busy": "python3 (4711) uses GPU 0"}}
    contact = {"address": "151.101.2.132", "protocol": "tcp", "port": 443, "times": 1}
    ansible.heard = {"gpu02": {"outside": [contact]}}
    assert offline("--json") == 1
    lines, messages = records(capsys)
    assert lines[-1]["exit"] == 1
    assert lines[-1]["offline"]["not_watched"] == {"gpu01": "busy: python3 (4711) uses GPU 0"}
    assert "gpu02: not proved offline: it contacted 151.101.2.132:443" in messages
    assert "offline: gpu01 not watched: nothing was changed there\n" in messages


def test_hosts_on_which_nothing_was_to_be_changed_are_named_and_prove_nothing(
    offline, cluster, ansible, capsys, monkeypatch
):
    def left_as_they_were(*names):
        look = DriftReport({name: HostRecord(name) for name in names})
        monkeypatch.setattr("clusterctl.rollout.drift.probe.DriftProbe.inspect", lambda _self: look)

    left_as_they_were("gpu02", "gpu03")
    assert offline("--json") == 0
    lines, messages = records(capsys)
    assert lines[-1]["offline"]["proved"] is True
    assert set(lines[-1]["offline"]["hosts"]) == {"gpu01", "registry01"}
    reason = "nothing to do: the drift probe repeated 0 tasks"
    assert lines[-1]["offline"]["not_watched"] == {"gpu02": reason, "gpu03": reason}
    assert "offline: gpu01, registry01 contacted no host but the cluster's" in messages
    assert "offline: gpu02, gpu03 not watched: nothing was changed there\n" in messages
    ansible.requests.clear()
    left_as_they_were("gpu01", "gpu02", "gpu03", "registry01")
    assert offline("--json") == 0
    lines, messages = records(capsys)
    assert lines[-1]["offline"]["proved"] is None
    assert set(lines[-1]["offline"]["not_watched"]) == {"gpu01", "gpu02", "gpu03", "registry01"}
    assert "not watched: nothing was changed there, so that nothing is proved" in messages
    assert watches(ansible) == []


def test_watches_that_cannot_be_ended_leave_the_outcome_and_no_proof(offline, ansible, monkeypatch, capsys):
    def broken(*_):
        raise ClusterctlError("Ansible did not start", code="engine.ansible")

    monkeypatch.setattr("clusterctl.rollout.offline._end", broken)
    assert offline("--json") == 3
    lines, messages = records(capsys)
    assert lines[-1]["changed"] == 4
    assert not lines[-1]["offline"]["proved"]
    assert "the watches could not be ended: Ansible did not start" in messages


def test_settings_that_reach_out_are_refused_before_any_host_is_touched(offline, ansible, capsys):
    away = {
        "nvidia_container_toolkit_repository_url": "https://nvidia.github.io/libnvidia-container",
        "registry_client_mirrors": [{"upstream": "docker.io", "url": "https://registry01:5000"}],
        "site_http_proxy": "http://user:word@192.0.2.200:3128",
    }
    assert offline(**away) == 2
    said = capsys.readouterr().err
    assert "nvidia_container_toolkit_repository_url names nvidia.github.io" in said
    assert "registry_client_mirrors falls back to docker.io" in said
    assert "site_http_proxy names 192.0.2.200" in said
    assert "user:word" not in said
    assert "offline.settings" in said
    assert ansible.requests == []


@pytest.mark.parametrize("proxy", ["http://localhost:3128", "http://127.0.0.1:3128", "http://[::1]:3128"])
def test_a_proxy_on_the_node_itself_is_refused_for_it_may_be_a_tunnel(offline, ansible, capsys, proxy):
    assert offline(site_http_proxy=proxy, site_offline_hosts=["127.0.0.0/8", "::1"]) == 2
    assert "site_http_proxy names" in capsys.readouterr().err
    assert ansible.requests == []


def test_what_harbor_itself_would_fetch_is_refused_too(offline, ansible, capsys):
    away = {
        "registry_kind": "harbor",
        "harbor_installer_url": "https://github.com/goharbor/harbor/releases/harbor.tgz",
        "harbor_trivy_enabled": True,
    }
    assert offline(**away) == 2
    said = capsys.readouterr().err
    assert "harbor_installer_url names github.com" in said
    assert "harbor_trivy_db_repository names ghcr.io" in said
    assert offline(**away, harbor_trivy_offline=True) == 2
    assert "ghcr.io" not in capsys.readouterr().err
    assert ansible.requests == []


def test_sources_of_packages_elsewhere_stop_an_offline_apply_and_no_watch_stays(offline, ansible, capsys):
    ansible.sources = {"gpu03": {"deb.debian.org": ["/etc/apt/sources.list"]}}
    assert offline() == 2
    assert "deb.debian.org in /etc/apt/sources.list (gpu03)" in capsys.readouterr().err
    assert ansible.touched == []
    assert watches(ansible)[-1]["clusterctl_offline_state"] == "ended"
    assert ansible.holds == {}
