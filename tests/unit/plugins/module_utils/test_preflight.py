"""Findings as data: what is wrong, how grave, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.apt_view import Proxies
from ansible_collections.clusterctl.cluster.plugins.module_utils.package_managers import APT, DNF
from ansible_collections.clusterctl.cluster.plugins.module_utils.preflight_facts import (
    apt_proxies,
    apt_uris,
    firewall,
    free_space,
    headers_offered,
    others,
    others_uris,
    unreachable,
)
from ansible_collections.clusterctl.cluster.plugins.module_utils.preflight_judge import judge
from tests.support.tree import ROOT

COMPAT_DIRECTORY = ROOT / "cli/clusterctl/cluster/compat"
COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
A100 = {"address": "0000:07:00.0", "vendor": "0x10de", "device": "0x20b2", "class": "0x030200"}
B200 = [{**A100, "device": "0x2901"}] * 8
GB200 = [{**A100, "device": "0x2941"}] * 4
ROCKY = {"id": "rocky", "version": "9.6", "name": "Rocky Linux 9.6"}
WANTED = {
    "gpu_count": 8,
    "nvswitches": "auto",
    "driver_branch": "580",
    "driver_flavor": "open",
    "needs_headers": True,
    "enroll_key": False,
    "existing": "refuse",
    "registry": False,
    "min_free_gb": 20,
    "max_clock_skew_s": 15,
    "sudo_error": "",
    "today": "2026-11-20",
}
GOOD = {
    "os": {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12 (bookworm)"},
    "kernel": "6.1.0-38-amd64",
    "root": True,
    "clock_skew_s": 0.4,
    "hostname_resolves": True,
    "unresolved": [],
    "unreachable": {},
    "unreachable_others": {},
    "free_gb": {"/": 400.0},
    "memlock_kib": 8192,
    "secure_boot": "disabled",
    "signing_key": {"certificate": "/var/lib/dkms/mok.pub", "state": ""},
    "gpus": [A100] * 8,
    "nvswitches": 6,
    "nvswitch_bridges": 0,
    "rdma_adapters": 0,
    "headers_missing": [],
    "dkms_missing": False,
    "manager": APT,
    "firewalls": [],
    "selinux": "disabled",
    "others": {},
    "packages": {},
    "held": set(),
    "our_holds": set(),
    "record": {},
    "loaded": "",
    "nouveau": False,
    "busy": [],
    "holders": [],
}


def secure_boot(state: str) -> dict:
    """Secure Boot is on, and its list of keys is in this state."""
    return {"secure_boot": "enabled", "signing_key": {"certificate": "/var/lib/dkms/mok.pub", "state": state}}


def found(facts: dict | None = None, wanted: dict | None = None) -> list[tuple[str, str, str]]:
    judged = judge({**GOOD, **(facts or {})}, {**WANTED, **(wanted or {})}, COMPAT)
    assert all(f["remedy"] and f["expected"] for f in judged)
    return [(f["severity"], f["subject"], f["found"]) for f in judged]


def test_a_good_node_has_no_findings() -> None:
    assert found() == []


def test_of_an_unsupported_system_nothing_else_is_said() -> None:
    rocky = {"id": "rocky", "version": "8.9", "name": "Rocky Linux 8.9"}
    several = found({"os": rocky, "headers_missing": ["kernel-headers"], "unresolved": ["depot"]})
    assert [subject for _, subject, _ in several] == ["operating system"]


@pytest.mark.parametrize(
    ("facts", "wanted", "severity", "subject", "words"),
    [
        (
            {"os": {"id": "rocky", "version": "8.9", "name": "Rocky Linux 8.9"}},
            {},
            "error",
            "operating system",
            "Rocky Linux 8.9: its dnf has bindings only for Python 3.6",
        ),
        ({"kernel": "3.10.0-1160"}, {}, "error", "kernel", "3.10"),
        ({"root": False}, {"sudo_error": "Missing sudo password"}, "error", "sudo", "Missing sudo password"),
        ({"clock_skew_s": -3600.0}, {}, "error", "clock", "3600 s behind"),
        ({"clock_skew_s": 60.0}, {}, "error", "clock", "60 s ahead"),
        ({"unresolved": ["depot"]}, {}, "error", "DNS", "depot"),
        ({"hostname_resolves": False}, {}, "warning", "DNS", "own name"),
        ({"unreachable": {"http://m/": "HTTP 404"}}, {}, "error", "package source", "HTTP 404"),
        ({"unreachable_others": {"http://m/": "HTTP 404"}}, {}, "warning", "package source", "HTTP 404"),
        ({"unreachable": {"http://u:secret@m/": "-"}}, {}, "error", "package source", "http://***@m/: -"),
        ({"firewalls": ["ufw"]}, {}, "warning", "firewall", "ufw"),
        ({"free_gb": {"/var": 3.25}}, {}, "error", "disk", "3.2 GB free on /var"),
        ({"rdma_adapters": 8}, {}, "warning", "memlock", "8192"),
        ({"gpus": [A100] * 7}, {}, "error", "GPUs", "7 on the PCI bus"),
        ({"gpus": [A100]}, {"gpu_count": 0}, "error", "GPUs", "1 on"),
        ({"gpus": [{**A100, "device": "0x1db5"}] * 8}, {}, "error", "GPUs", "older than Turing"),
        (
            {"gpus": [A100] * 7 + [{**A100, "device": "0x20b0"}]},
            {},
            "warning",
            "GPUs",
            "models 0x20b0, 0x20b2",
        ),
        ({"nvswitches": 0}, {"nvswitches": "true"}, "error", "NVSwitch", "none"),
        (
            {"nvswitches": 0, "nvswitch_bridges": 4, "gpus": B200},
            {"nvswitches": "true"},
            "info",
            "NVLink fabric",
            "4 adapters lead to the NVSwitches",
        ),
        (
            {"nvswitches": 0, "gpus": B200},
            {},
            "warning",
            "NVLink fabric",
            "GPUs of an HGX board with NVSwitches, and no adapter",
        ),
        (
            {"nvswitches": 0, "gpus": GB200},
            {"gpu_count": 4},
            "info",
            "NVLink fabric",
            "the rack's switch trays",
        ),
        (
            {"nvswitches": 0, "gpus": GB200, "packages": {"nvidia-fabricmanager-580": "580.95.05-1"}},
            {"gpu_count": 4, "driver_branch": ""},
            "warning",
            "NVLink fabric",
            "nvidia-fabricmanager-580 is installed",
        ),
        ({"headers_missing": ["linux-headers-6.1"]}, {}, "error", "kernel headers", "linux-headers-6.1"),
        (secure_boot("absent"), {}, "error", "Secure Boot", "mok.pub not enrolled"),
        (secure_boot("no key"), {}, "error", "Secure Boot", "no key to sign with yet"),
        (secure_boot("absent"), {"enroll_key": True}, "warning", "Secure Boot", "not enrolled"),
        (secure_boot("requested"), {}, "warning", "Secure Boot", "mok.pub requested"),
        (secure_boot("unknown: no mokutil"), {}, "error", "Secure Boot", "unknown: no mokutil"),
        (
            secure_boot("blocked"),
            {"enroll_key": True},
            "error",
            "Secure Boot",
            "mok.pub on a list of blocked",
        ),
        (secure_boot("absent"), {"needs_headers": False}, "info", "Secure Boot", "signed by Ubuntu"),
        (secure_boot("enrolled"), {}, "info", "Secure Boot", "mok.pub enrolled"),
        ({"selinux": "enforcing"}, {}, "info", "SELinux", "enforcing"),
        ({"os": ROCKY, "dkms_missing": True}, {}, "error", "dkms", "offered nowhere"),
        ({"os": ROCKY, "manager": DNF}, {"registry": True}, "error", "registry", "on Rocky Linux 9.6"),
        ({"nouveau": True}, {}, "info", "nouveau", "loaded"),
        ({"others": {"runfile": "550.54"}}, {"existing": "adopt"}, "error", "driver", ".run"),
        ({"others": {"gpu_operator": "/run/nvidia/driver"}}, {}, "error", "driver", "GPU Operator"),
        (
            {"others": {"dgx_os": "/etc/dgx-release"}},
            {"existing": "adopt"},
            "warning",
            "DGX OS",
            "own driver",
        ),
        ({"others": {"docker_snap": "/snap/docker"}}, {}, "error", "Docker", "snap"),
        ({"others": {"ofed": "/etc/infiniband/info"}}, {}, "info", "OFED", "installed"),
        ({"others": {"kubelet": "k3s-agent"}}, {}, "warning", "Kubernetes", "is set up to (k3s-agent)"),
        ({"packages": {"libcuda1": "535.1-1"}}, {}, "error", "driver", "libcuda1 535.1"),
        ({"packages": {"libcuda1": "535.1-1"}}, {"existing": "adopt"}, "warning", "driver", "libcuda1 535.1"),
        (
            {"packages": {"libcuda1": "580.95.05-1"}, "held": {"libcuda1"}},
            {},
            "warning",
            "held packages",
            "libcuda1",
        ),
        ({}, {"driver_branch": "570"}, "warning", "driver branch", "570: support ended 2026-02-28"),
        ({}, {"driver_branch": "550"}, "warning", "driver branch", "550: support ended already"),
        ({}, {"driver_branch": "601"}, "info", "driver branch", "601"),
        (
            {"holders": ["dcgm-exporter", "Xorg"]},
            {},
            "info",
            "GPUs",
            "held by dcgm-exporter, Xorg, not by a job",
        ),
        ({"busy": ["1 compute process: python3 (13)"]}, {}, "warning", "busy", "python3"),
    ],
)
def test_each_trouble_is_one_finding(facts, wanted, severity: str, subject: str, words: str) -> None:
    findings = found(facts, wanted)
    assert len(findings) == 1
    assert findings[0][:2] == (severity, subject)
    assert words in findings[0][2]


def test_signed_modules_are_the_first_remedy_where_there_are_some() -> None:
    for system, first in (
        ("ubuntu", "use Ubuntu's signed modules"),
        ("debian", "set nvidia_driver_enroll_key"),
    ):
        release = {"id": system, "version": {"ubuntu": "24.04", "debian": "12"}[system], "name": system}
        (one,) = judge({**GOOD, **secure_boot("absent"), "os": release}, WANTED, COMPAT)
        assert one["remedy"].startswith(first)


def test_all_troubles_come_at_once_with_the_grave_ones_first() -> None:
    findings = found({"gpus": [], "firewalls": ["ufw"], "nouveau": True, "unresolved": ["a", "b"]})
    assert [severity for severity, _, _ in findings] == ["error", "error", "error", "warning", "info"]


def test_what_we_installed_and_held_is_no_finding() -> None:
    ours = {"packages": ["libcuda1"], "held": ["libcuda1"]}
    assert found({"packages": {"libcuda1": "570.1-1"}, "held": {"libcuda1"}, "record": ours}) == []
    docker = {"packages": {"docker.io": "20.10"}, "held": {"docker.io"}}
    assert found(docker)[0][1] == "held packages"
    assert found({**docker, "our_holds": {"docker.io"}}) == []


def test_a_registry_host_needs_no_driver() -> None:
    assert found({"gpus": [], "nvswitches": 0}, {"gpu_count": 0, "driver_branch": ""}) == []


def test_the_day_after_the_end_is_past_it() -> None:
    assert found({}, {"driver_branch": "570", "today": "2026-02-28"}) == []
    assert found({}, {"driver_branch": "570", "today": "2026-03-01"})


def answers(known: dict[str, str]):
    def run(argv: list[str]) -> tuple[int, str, str]:
        for words, output in known.items():
            if " ".join(argv).startswith(words):
                return 0, output, ""
        return 1, "", ""

    return run


def test_firewalls_are_found_by_what_they_do() -> None:
    assert firewall(answers({})) == []
    assert firewall(answers({"iptables -S INPUT": "-P INPUT ACCEPT\n-A INPUT -i lo -j ACCEPT\n"})) == []
    assert firewall(answers({"iptables -S INPUT": "-P INPUT DROP\n"})) == ["iptables (INPUT)"]
    inactive = {"systemctl is-active --quiet ufw": "", "ufw status": "Status: inactive\n"}
    assert firewall(answers(inactive)) == []
    assert firewall(answers({**inactive, "ufw status": "Status: active\n"})) == ["ufw"]


NFTABLES = """
table inet filter {
	chain input {
		type filter hook input priority filter; policy %s;
		ct state established,related accept
		ip saddr 192.0.2.7 drop
		%s
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
"""


@pytest.mark.parametrize(
    ("policy", "last", "found"),
    [
        ("accept", "tcp dport 22 accept", []),
        ("drop", "tcp dport 22 accept", ["nftables (inet filter input)"]),
        ("accept", "counter packets 12 bytes 720 drop", ["nftables (inet filter input)"]),
        ("accept", "reject with icmpx admin-prohibited", ["nftables (inet filter input)"]),
    ],
)
def test_a_native_ruleset_of_nftables_is_read(policy: str, last: str, found: list[str]) -> None:
    assert firewall(answers({"nft list ruleset": NFTABLES % (policy, last)})) == found


def test_free_space_is_seen_where_a_directory_will_be(tmp_path: Path) -> None:
    (tmp_path / "var/lib").mkdir(parents=True)
    assert set(free_space(tmp_path, ["/var/lib/clusterctl/registry"])) == {"/var/lib"}
    assert set(free_space(tmp_path, ["/", "/var/lib/clusterctl/registry"])) == {"/"}  # one filesystem, once


def test_a_source_that_the_settings_name_is_judged_once() -> None:
    named = ["http://depot/cuda/repos/debian12/x86_64/Release"]
    uris = ["http://depot/cuda/repos/debian12/x86_64/./InRelease", "http://depot/distribution/./InRelease"]
    assert others_uris(uris, named) == ["http://depot/distribution/./InRelease"]


def test_what_others_installed_is_found_by_its_traces(tmp_path: Path) -> None:
    places = ("etc/dgx-release", "snap/docker/x", "run/nvidia/driver/x", "usr/bin/nvidia-uninstall")
    for place in (*places, "etc/kubernetes/kubelet.conf"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("")
    run = answers({})
    assert set(others(tmp_path, {"docker-ce": "5:27"}, run)) == {
        "dgx_os",
        "docker_snap",
        "gpu_operator",
        "kubelet",
        "runfile",
        "docker_ce",
    }
    assert "runfile" not in others(tmp_path, {"nvidia-smi": "1"}, run)


def test_apts_own_sources_and_proxies_are_used() -> None:
    uris = "'http://depot/distribution/./InRelease' depot_InRelease 0 \n'http://depot/x/Packages.xz' y 0 \n"
    assert apt_uris(answers({"apt-get update --print-uris": uris})) == [
        "http://depot/distribution/./InRelease"
    ]
    dump = 'Acquire "";\nAcquire::http::Proxy "http://p:1";\nAcquire::http::Proxy::depot "DIRECT";\n'
    site = Proxies("http://site:2", "", "depot")
    own = apt_proxies(answers({"apt-config": dump}), site)
    assert own == Proxies("http://p:1", "http://p:1", "depot")
    assert apt_proxies(answers({}), site) == site


def test_an_address_that_is_none_is_said_and_breaks_nothing() -> None:
    assert set(unreachable(["[]", "nonsense://x"], Proxies())) == {"[]", "nonsense://x"}


def test_the_data_of_branches_and_cuda_hold_together() -> None:
    assert COMPAT["recommended_branch"] in COMPAT["branches"]
    assert not COMPAT["branches"][COMPAT["recommended_branch"]]["ended"]
    cuda = yaml.safe_load((COMPAT_DIRECTORY / "cuda.yml").read_text())
    paddle = yaml.safe_load((COMPAT_DIRECTORY / "paddle.yml").read_text())
    for variant in paddle["variants"].values():
        assert variant["cuda"] in cuda["toolkit_driver"]["versions"]
        assert variant["cuda"].split(".", maxsplit=1)[0] in cuda["minimum_driver"]["versions"]
    assert set(COMPAT["packages"]["cuda"]) == set(COMPAT["supported_os"])
    assert set(COMPAT["packages"]["distribution"]) == {"debian", "ubuntu"}  # RHEL packages no driver


def test_headers_are_looked_for_by_the_sites_proxies(tmp_path: Path) -> None:
    read: list[str] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        if argv[-1] == "update":
            read.append(Path(argv[argv.index("-c") + 1]).read_text())
        return 0, "linux-headers-6.1 | 1 | depot Packages\n" if read else "", ""

    (tmp_path / "etc/apt").mkdir(parents=True)
    proxies = Proxies("http://proxy:3128", "", "")
    assert headers_offered(run, tmp_path, ["linux-headers-6.1"], proxies) == {"linux-headers-6.1"}
    assert 'Acquire::http::Proxy "http://proxy:3128";' in read[0]
