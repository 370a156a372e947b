"""A plan for every supported system, source, flavor and scope: first, again, another branch, and back.

The names are written down here, as the publishers have them, and not read from the planner's own data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, Plan, Request
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvidia_driver_planner import make_plan
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import Build
from tests.support.tree import ROOT
from tests.unit.plugins.module_utils.test_nvidia_driver_planner import BARE

COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
OPEN, OWN = "open", "proprietary"
REDHAT = ("rhel", "rocky", "almalinux")
DRIVERS = {"580": "580.95.05", "570": "570.148.08"}
DEBIANS_OWN = {"12": ("535", "535.309.01"), "13": ("550", "550.163.01")}
NAMES = {
    "debian": "Debian GNU/Linux", "ubuntu": "Ubuntu", "rhel": "Red Hat Enterprise Linux",
    "rocky": "Rocky Linux", "almalinux": "AlmaLinux",
}  # fmt: skip
KERNELS = {
    "debian": "6.1.0-38-amd64", "ubuntu": "6.8.0-151-generic",
    **dict.fromkeys(REDHAT, "5.14.0-570.12.1.el9_6.x86_64"),
}  # fmt: skip
# By source and family, flavor and scope; {b} is the branch, {k} the running kernel.
DRIVER = {
    ("cuda", "debian"): {
        (OPEN, "full"): ["nvidia-open-{b}"],
        (OWN, "full"): ["cuda-drivers-{b}"],
        (OPEN, "compute"): ["nvidia-driver-cuda", "nvidia-kernel-open-dkms"],
        (OWN, "compute"): ["nvidia-driver-cuda", "nvidia-kernel-dkms"],
    },
    ("cuda", "ubuntu"): {
        (OPEN, "full"): ["nvidia-open-{b}"],
        (OWN, "full"): ["cuda-drivers-{b}"],
        (OPEN, "compute"): [
            "libnvidia-compute-{b}", "nvidia-compute-utils-{b}", "nvidia-dkms-{b}-open", "nvidia-utils-{b}",
        ],
        (OWN, "compute"): [
            "libnvidia-compute-{b}", "nvidia-compute-utils-{b}", "nvidia-dkms-{b}", "nvidia-utils-{b}",
        ],
    },
    ("cuda", "redhat"): {
        (OPEN, "full"): ["nvidia-open"],
        (OWN, "full"): ["cuda-drivers"],
        (OPEN, "compute"): ["kmod-nvidia-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced"],
        (OWN, "compute"): ["kmod-nvidia-latest-dkms", "nvidia-driver-cuda", "nvidia-persistenced"],
    },
    ("distribution", "ubuntu"): {
        (OPEN, "full"): ["nvidia-driver-{b}-server-open", "nvidia-utils-{b}-server"],
        (OWN, "full"): ["nvidia-driver-{b}-server", "nvidia-utils-{b}-server"],
        (OPEN, "compute"): ["nvidia-headless-no-dkms-{b}-server-open", "nvidia-utils-{b}-server"],
        (OWN, "compute"): ["nvidia-headless-no-dkms-{b}-server", "nvidia-utils-{b}-server"],
    },
    ("distribution", "debian"): {
        (OPEN, "full"): ["nvidia-driver", "nvidia-open-kernel-dkms"],
        (OWN, "full"): ["nvidia-driver", "nvidia-kernel-dkms"],
        (OPEN, "compute"): ["nvidia-open-kernel-dkms"],
        (OWN, "compute"): ["nvidia-kernel-dkms"],
    },
}  # fmt: skip
FABRIC = {
    ("cuda", "debian"): ["nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}"],
    ("cuda", "ubuntu"): ["nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}"],
    ("cuda", "redhat"): ["nvidia-fabricmanager", "libnvidia-nscq"],
    ("distribution", "ubuntu"): ["nvidia-fabricmanager-{b}", "libnvidia-nscq-{b}"],
    ("distribution", "debian"): [],
}
# In the driver's version too; and what has versions of its own.
LIBRARIES = ["libcuda1", "libnvidia-nvvm4", "libnvidia-ptxjitcompiler1", "nvidia-smi"]
BESIDES = {
    ("cuda", "debian"): ["linux-headers-{k}", "nvidia-driver-pinning-{b}"],
    ("cuda", "ubuntu"): ["linux-headers-{k}", "nvidia-driver-pinning-{b}"],
    ("cuda", "redhat"): ["kernel-devel-{k}", "kernel-devel-matched-{k}"],
    ("distribution", "ubuntu"): [],
    ("distribution", "debian"): ["linux-headers-{k}", "nvidia-modprobe", "nvidia-persistenced"],
}
REVISIONS = {"debian": "{v}-1", "ubuntu": "{v}-0ubuntu1", "redhat": "3:{v}-1.el9"}
STREAMS = {OPEN: "{b}-open", OWN: "{b}-dkms"}


@dataclass(frozen=True)
class Case:
    """One kind of node, and what is asked for it."""

    system: str
    release: str
    source: str
    flavor: str
    scope: str

    @property
    def family(self) -> str:
        return "redhat" if self.system in REDHAT else self.system

    @property
    def place(self) -> tuple[str, str]:
        return self.source, self.family

    @property
    def branches(self) -> dict[str, str]:
        """The driver's version by branch, the first one first."""
        return dict([DEBIANS_OWN[self.release]]) if self.place == ("distribution", "debian") else DRIVERS

    @property
    def kernel(self) -> str:
        return KERNELS[self.system]

    def version(self, branch: str) -> str:
        """The version of the driver's packages."""
        return REVISIONS[self.family].format(v=self.branches[branch])

    def names(self, forms: list[str], branch: str) -> list[str]:
        return [form.format(b=branch, k=self.kernel) for form in forms]

    def driver(self, branch: str) -> list[str]:
        """What moves with the driver."""
        libraries = LIBRARIES if self.place == ("distribution", "debian") else []
        return self.names(
            [*DRIVER[self.place][self.flavor, self.scope], *FABRIC[self.place], *libraries], branch
        )

    def modules(self, branch: str) -> list[str]:
        """Ubuntu's signed modules, of the running kernel and of its flavour."""
        if self.place != ("distribution", "ubuntu"):
            return []
        open_ = "-open" if self.flavor == OPEN else ""
        return [f"linux-modules-nvidia-{branch}-server{open_}-{of}" for of in (self.kernel, "generic")]

    def wanted(self, branch: str) -> set[str]:
        return {*self.driver(branch), *self.modules(branch), *self.names(BESIDES[self.place], branch)}

    def facts(self) -> Facts:
        """A bare node of eight A100, with NVSwitches where Fabric Manager is packaged."""
        builds, available = {}, {}
        for branch, version in self.branches.items():
            available |= {
                name: [*available.get(name, []), self.version(branch)] for name in self.driver(branch)
            }
            if self.source == "cuda" and self.family != "redhat":
                available[f"nvidia-driver-pinning-{branch}"] = [f"{branch}-1"]
            for name in self.modules(branch):
                builds[name] = {"6.8.0-151.151+1": Build(version, self.kernel)}
                available[name] = ["6.8.0-151.151+1"]
        streams = [STREAMS[self.flavor].format(b=branch) for branch in self.branches]
        return replace(
            BARE,
            os={"id": self.system, "version": self.release, "name": f"{NAMES[self.system]} {self.release}"},
            kernels=[self.kernel],
            headers={self.kernel: False},
            nvswitches=6 if FABRIC[self.place] else 0,
            installed={},
            available=available,
            builds=builds,
            kernel_metapackages={"generic": self.kernel},
            streams=streams if self.family == "redhat" else [],
        )

    def plan(self, branch: str, facts: Facts) -> Plan:
        words = (self.source, self.flavor, branch, "", self.scope, "auto", True, True, [], True, "refuse")
        return make_plan(Request(*words), facts, COMPAT)

    def after(self, plan: Plan, before: Facts) -> Facts:
        """The node when that plan was carried out."""
        kept = {name: own for name, own in before.installed.items() if name not in plan.remove}
        installed = {**kept, **{name: own or "1" for name, own in plan.packages.items()}}
        held = set(plan.hold) & set(installed)
        return replace(
            before,
            installed=installed,
            held=held,
            headers={self.kernel: True},
            record={"packages": sorted(installed), "held": sorted(held)},
            loaded=plan.version,
            loaded_flavor=self.flavor,
            stream=plan.stream,
        )


CASES = [
    Case(system, release, source, flavor, scope)
    for system, releases in COMPAT["supported_os"].items()
    for release in releases
    for source in (("cuda", "distribution") if system not in REDHAT else ("cuda",))
    for flavor in (OPEN, OWN)
    for scope in ("compute", "full")
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda one: "-".join((one.system, one.release, one.source, one.flavor, one.scope))
)
def test_a_plan_names_the_packages_of_the_system_and_of_another_branch_and_back(case: Case) -> None:
    first, *others = case.branches
    node = case.facts()
    for branch in (first, *others, first) if others else (first,):
        plan = case.plan(branch, node)
        assert plan.problems == []
        assert plan.version == case.branches[branch]
        wanted = case.wanted(branch)
        assert set(plan.packages) == {name for name in wanted if not is_there(name, node)}
        assert {plan.packages[name] for name in case.driver(branch)} == {case.version(branch)}
        assert plan.stream == (STREAMS[case.flavor].format(b=branch) if case.family == "redhat" else "")
        assert (plan.transaction, plan.activation) == (True, True)
        assert plan.fabric_manager is bool(FABRIC[case.place])
        # What bears another branch in its name goes, and nothing else.
        numbers = tuple(f"-{other}" for other in case.branches if other != branch)
        others_names = {name for name in set(node.installed) - wanted if any(one in name for one in numbers)}
        assert set(plan.remove) == others_names
        assert {*case.driver(branch), *case.modules(branch)} <= set(plan.hold)
        node = case.after(plan, node)
        again = case.plan(branch, replace(node, available={}))
        assert (again.problems, again.missing, again.remove) == ([], [], [])
        assert (again.transaction, again.activation) == (False, False)


def is_there(name: str, node: Facts) -> bool:
    """Headers that are installed are not asked for again: they have no version of the driver's."""
    return name in node.installed and name.startswith(("linux-headers-", "kernel-devel-"))


def test_every_supported_system_is_planned_for() -> None:
    planned = {(case.system, case.release) for case in CASES}
    assert planned == {(name, one) for name, releases in COMPAT["supported_os"].items() for one in releases}
