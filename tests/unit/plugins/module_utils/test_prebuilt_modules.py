"""Ubuntu's signed modules as data: its metadata and the node's kernels in, packages or a reboot out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from ansible_collections.clusterctl.cluster.plugins.module_utils.driver_plan import Facts, Plan, Request
from ansible_collections.clusterctl.cluster.plugins.module_utils.nvidia_driver_planner import make_plan
from ansible_collections.clusterctl.cluster.plugins.module_utils.prebuilt_modules import (
    merge,
    parse_builds,
    parse_kernel_metapackages,
)
from tests.support.tree import ROOT

COMPAT = yaml.safe_load((ROOT / "roles/nvidia_driver/files/compat.yml").read_text())
OLD, NEW, HWE = "6.8.0-45-generic", "6.8.0-151-generic", "6.11.0-19-generic"
LIBRARIES = ("580.95.05-0ubuntu0.24.04.1", "580.105.08-0ubuntu0.24.04.1")


def modules(suffix: str, version: str, driver: str, depends: str, *, kind: str = "-open") -> str:
    """A stanza as `apt-cache show` prints it, of which only these fields matter."""
    return (
        f"Package: linux-modules-nvidia-580-server{kind}-{suffix}\n"
        f"Architecture: amd64\nVersion: {version}\nSource: linux-restricted-modules\n"
        f"Provides: nvidia-dkms-580-server{kind} (= {driver}-0ubuntu0.24.04.1), nvidia-prebuilt-kernel\n"
        f"Depends: {depends}, nvidia-kernel-common-580-server (<= {driver}-1), "
        f"nvidia-kernel-common-580-server (>= {driver})\n"
        "Description: Linux kernel nvidia modules\n This package pulls in modules: signed.\n\n"
    )


def for_kernel(kernel: str, version: str, driver: str, *, kind: str = "-open") -> str:
    image = f"linux-image-{kernel} | linux-image-unsigned-{kernel}"
    objects = f", linux-objects-nvidia-580-server-{kernel} (= {version})" if not kind else ""
    signed = f"{image}, linux-signatures-nvidia-{kernel} (= {version}){objects}"
    return modules(kernel, version, driver, signed if not kind else image, kind=kind)


def metapackage(flavour: str, kernel: str, version: str, driver: str, *, kind: str = "-open") -> str:
    depends = f"linux-modules-nvidia-580-server{kind}-{kernel} (= {version})"
    return modules(flavour, version, driver, depends, kind=kind)


def kernel_status(flavour: str, kernel: str) -> str:
    """dpkg's status of a kernel and its metapackage."""
    return (
        f"Package: linux-image-{kernel}\nStatus: install ok installed\nVersion: 1\n\n"
        f"Package: linux-image-{flavour}\nStatus: install ok installed\nVersion: 1\n"
        f"Depends: linux-image-{kernel}, linux-firmware\n\n"
    )


ARCHIVE = {
    "": for_kernel(NEW, "6.8.0-151.151+1", "580.105.08")
    + metapackage("generic", NEW, "6.8.0-151.151+1", "580.105.08")
    + for_kernel(HWE, "6.11.0-19.19~24.04.1+1", "580.105.08")
    + metapackage("generic-hwe-24.04", HWE, "6.11.0-19.19~24.04.1+1", "580.105.08"),
    "proprietary": for_kernel(NEW, "6.8.0-151.151+1", "580.105.08", kind=""),
    "old": for_kernel(OLD, "6.8.0-45.45", "580.95.05"),
}
REQUEST = Request("distribution", "open", "580", "", "compute", "auto", True, True, [], True, "refuse")


def facts(*kernels: str, flavours: dict[str, str], archive: str = ARCHIVE[""], **changes: object) -> Facts:
    builds = parse_builds(archive)
    names = ["headless-no-dkms-580-server-open", "headless-no-dkms-580-server", "utils-580-server"]
    names += ["driver-580-server-open"]
    node = Facts(
        os={"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"},
        kernels=list(kernels),
        headers={},
        gpus=[{"address": "0000:07:00.0", "vendor": "0x10de", "device": "0x20b2", "class": "0x030200"}],
        nvswitches=0,
        installed={f"linux-image-{kernel}": "1" for kernel in kernels},
        held=set(),
        record={},
        loaded="",
        loaded_flavor="",
        nouveau=False,
        runfile=False,
        available={
            **{f"nvidia-{name}": list(reversed(LIBRARIES)) for name in names},
            **{name: list(versions) for name, versions in builds.items()},
        },
        builds=builds,
        kernel_metapackages=flavours,
    )
    return replace(node, **changes)


def plan(node: Facts, **changes: object) -> Plan:
    return make_plan(replace(REQUEST, **changes), node, COMPAT)


def test_the_driver_of_a_package_is_in_what_it_provides_and_not_in_its_version() -> None:
    build = parse_builds(ARCHIVE[""])[f"linux-modules-nvidia-580-server-open-{NEW}"]["6.8.0-151.151+1"]
    assert (build.driver, build.kernel, build.parts) == ("580.105.08", NEW, {})
    name = f"linux-modules-nvidia-580-server-{NEW}"
    parts = parse_builds(ARCHIVE["proprietary"])[name]["6.8.0-151.151+1"].parts
    assert parts == {
        f"linux-signatures-nvidia-{NEW}": "6.8.0-151.151+1",
        f"linux-objects-nvidia-580-server-{NEW}": "6.8.0-151.151+1",
    }
    without = ARCHIVE["old"].replace("Provides:", "Enhances:")
    (old,) = parse_builds(without)[f"linux-modules-nvidia-580-server-open-{OLD}"].values()
    assert old.driver == "580.95.05"


@pytest.mark.parametrize(
    ("flavour", "kernel"),
    [
        ("generic", NEW),
        ("generic-hwe-24.04", HWE),
        ("lowlatency", "6.8.0-151-lowlatency"),
        ("nvidia", "6.8.0-1025-nvidia"),
        ("nvidia-hwe-22.04", "6.8.0-1025-nvidia"),
    ],
)
def test_each_flavour_gets_the_modules_of_its_kernel_and_its_own_metapackage(flavour, kernel) -> None:
    flavours = parse_kernel_metapackages(kernel_status(flavour, kernel))
    assert flavours == {flavour: kernel}
    offered = for_kernel(kernel, "1.2+1", "580.105.08") + metapackage(flavour, kernel, "1.2+1", "580.105.08")
    # The plain metapackage, of another kernel, is offered too.
    other = metapackage("generic", "6.8.0-999-generic", "9+1", "580.105.08")
    made = plan(facts(kernel, flavours=flavours, archive=offered + (other if flavour != "generic" else "")))
    assert made.problems == []
    assert made.packages == {
        "nvidia-headless-no-dkms-580-server-open": LIBRARIES[1],
        "nvidia-utils-580-server": LIBRARIES[1],
        f"linux-modules-nvidia-580-server-open-{kernel}": "1.2+1",
        f"linux-modules-nvidia-580-server-open-{flavour}": "1.2+1",
    }
    assert (made.reboot, made.warnings) == ("", [])
    assert not plan(facts(kernel, flavours=flavours, archive=offered, secure_boot=True)).signing


def test_a_metapackage_that_would_bring_another_kernel_is_not_asked_for() -> None:
    archive = ARCHIVE[""] + for_kernel(OLD, "6.8.0-45.45+2", "580.105.08")
    made = plan(facts(OLD, flavours={"generic": OLD}, archive=archive))
    assert f"linux-modules-nvidia-580-server-open-{OLD}" in made.packages
    assert "linux-modules-nvidia-580-server-open-generic" not in made.packages


def test_the_version_is_one_that_the_running_kernel_has_modules_of() -> None:
    archive = ARCHIVE[""] + ARCHIVE["old"]
    made = plan(facts(OLD, NEW, flavours={"generic": NEW}, archive=archive))
    assert made.version == "580.95.05"
    assert made.packages["nvidia-utils-580-server"] == LIBRARIES[0]
    assert made.reboot == ""
    assert made.warnings == [
        f"kernel {NEW}, which the next reboot starts, has no prebuilt modules of driver 580.95.05"
    ]
    newer = plan(facts(OLD, NEW, flavours={"generic": NEW}, archive=archive), version="580.105.08")
    assert f"linux-modules-nvidia-580-server-open-{NEW}" in newer.packages
    assert newer.reboot == (f"kernel {OLD} has no prebuilt modules of driver 580.105.08, kernel {NEW} does")


def test_a_running_kernel_without_modules_is_a_reboot_into_the_newer_one() -> None:
    made = plan(facts(OLD, NEW, flavours={"generic": NEW}))
    assert made.problems == []
    assert made.reboot == f"kernel {OLD} has no prebuilt modules of driver 580.105.08, kernel {NEW} does"
    assert not any("headers" in name for name in made.packages)
    assert made.packages["linux-modules-nvidia-580-server-open-generic"] == "6.8.0-151.151+1"
    rebooted = facts(
        NEW,
        flavours={"generic": NEW},
        installed={**made.packages, f"linux-image-{OLD}": "1", f"linux-image-{NEW}": "1"},
    )
    again = plan(rebooted)
    assert (again.missing, again.remove, again.reboot) == ([], [], "")


def test_where_no_kernel_of_the_node_has_modules_the_remedy_is_one_that_has() -> None:
    (problem,) = plan(facts(OLD, flavours={"generic": OLD})).problems
    assert f"no linux-modules-nvidia-580-server-open-{OLD}" in problem["what"]
    assert (
        f"apt-get install linux-image-{NEW}"
        in plan(facts(OLD, flavours={"generic": OLD}, archive=for_kernel(NEW, "1+1", "580.105.08"))).problems[
            0
        ]["remedy"]
    )
    assert "headers" not in problem["remedy"]
    (none,) = plan(facts(OLD, flavours={}, archive="")).problems
    assert "for no other kernel" in none["what"]
    (asked,) = plan(facts(NEW, flavours={}), version="580.95.05").problems
    assert "of driver 580.95.05" in asked["what"]


def applied(kind: str = "-open") -> Facts:
    archive = ARCHIVE["" if kind else "proprietary"]
    node = facts(NEW, flavours={"generic": NEW}, archive=ARCHIVE[""] + ARCHIVE["proprietary"])
    made = plan(node, flavor="open" if kind else "proprietary")
    installed = {**node.installed, **made.packages}
    held = set(made.hold) & set(installed)
    return replace(
        node,
        installed=installed,
        held=held,
        record={"packages": sorted(held), "held": sorted(held)},
        loaded=made.version,
        loaded_flavor="open" if kind else "proprietary",
        available={},
        builds={name: found for name, found in parse_builds(archive).items() if name in installed},
    )


@pytest.mark.parametrize("kind", ["-open", ""])
def test_an_applied_node_needs_nothing_and_no_package_lists(kind: str) -> None:
    again = plan(applied(kind), flavor="open" if kind else "proprietary")
    assert (again.problems, again.missing, again.remove) == ([], [], [])
    assert not again.transaction
    assert not again.activation


def test_proprietary_modules_come_with_their_signatures_whose_abi_is_no_branch() -> None:
    node = applied("")
    assert node.installed[f"linux-signatures-nvidia-{NEW}"] == "6.8.0-151.151+1"
    assert plan(node, flavor="proprietary").remove == []


def test_modules_of_dkms_and_of_the_other_flavour_and_driver_give_way() -> None:
    node = applied("")
    old = parse_builds(ARCHIVE["old"])
    name = f"linux-modules-nvidia-580-server-open-{OLD}"
    more = {name: "6.8.0-45.45", "nvidia-dkms-580-server": LIBRARIES[1]}
    packages = sorted({*node.record["packages"], *more})
    node = replace(
        node,
        installed={**node.installed, **more},
        record={**node.record, "packages": packages},
        builds=merge(node.builds, old, parse_builds(ARCHIVE[""])),
        available=facts(NEW, flavours={}).available,
    )
    made = plan(node, flavor="open")
    assert made.problems == []
    assert set(made.remove) == {
        name,
        "nvidia-dkms-580-server",
        "nvidia-headless-no-dkms-580-server",
        f"linux-modules-nvidia-580-server-{NEW}",
    }


def test_the_display_comes_only_by_name() -> None:
    node = facts(NEW, flavours={"generic": NEW})
    assert "nvidia-driver-580-server-open" in plan(node, scope="full").packages
    assert not any("driver" in name for name in plan(node).packages)
