"""Packages: what apt is asked for, and whose holds are lifted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.clusterctl.cluster.plugins.module_utils import package_task as task
from ansible_collections.clusterctl.cluster.plugins.modules import debian_packages as module
from hypothesis import given
from hypothesis import strategies as st
from tests.support.limited import without_limit
from tests.support.played_module import PlayedModule, result_of

STATUS = (
    "docker.io|20.10.24+dfsg1-1+deb12u1+b6|install ok installed\n"
    "nvidia-container-toolkit|1.17.8-1|hold ok installed\n"
    "runc||unknown ok not-installed\n"
    "old|1.0-1|deinstall ok config-files\n"
)


def test_dpkgs_status_is_read_installed_ones_alone() -> None:
    assert module.parse_status(STATUS) == {
        "docker.io": ("20.10.24+dfsg1-1+deb12u1+b6", False),
        "nvidia-container-toolkit": ("1.17.8-1", True),
    }


def asked(wanted: dict[str, str], status: task.Status) -> list[str]:
    """What apt-get is asked for."""
    request = module.AptPackages(None).request  # type: ignore[arg-type]
    return list(task.requests(wanted, status, request).values())


@pytest.mark.parametrize(
    ("installed", "wanted", "answer"),
    [
        ("1.18.1-1", "1.18.1", True),
        ("1.18.1-1", "1.18.1-1", True),
        ("1.18.1-1", "", True),
        ("", "", False),
        ("1.18.10-1", "1.18.1", False),
        ("1.18.1-1", "1.18.1-2", False),
        ("1.17.8-1", "1.18.1", False),
    ],
)
def test_a_version_without_revision_asks_for_any_revision(installed: str, wanted: str, answer: bool) -> None:
    assert task.satisfies(installed, wanted) is answer


def test_only_what_differs_is_asked_for_all_of_one_version() -> None:
    status = module.parse_status(STATUS)
    wanted = task.wishes(["nvidia-container-toolkit", "libnvidia-container1"], "1.18.1")
    assert asked(wanted, status) == ["nvidia-container-toolkit=1.18.1-*", "libnvidia-container1=1.18.1-*"]
    assert asked(task.wishes(["docker.io", "runc"], ""), status) == ["runc"]
    assert asked(task.wishes(["docker.io=26.1.5", "runc"], ""), status) == ["docker.io=26.1.5-*", "runc"]


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, min_size=1),
    st.sampled_from(["", "1.0", "1.0-1"]),
)
def test_nothing_is_asked_for_twice(names: list[str], version: str) -> None:
    wanted = task.wishes(names, version)
    assert len(asked(wanted, {})) == len(names)
    assert asked(wanted, dict.fromkeys(names, ("1.0-1", False))) == []


def test_somebody_elses_hold_is_told_from_ours() -> None:
    status = module.parse_status(STATUS)
    names, held = ["nvidia-container-toolkit", "runc"], task.held_of(status)
    assert module.foreign_holds(names, held, set()) == ["nvidia-container-toolkit"]
    assert module.foreign_holds(names, held, {"nvidia-container-toolkit"}) == []


def test_apts_own_complaints_are_what_a_person_reads() -> None:
    out = "Reading package lists...\nErr:1 http://depot/distribution / Packages\n"
    assert module.complaints(out, "E: Unable to locate package skopeo\n") == [
        "E: Unable to locate package skopeo",
        "Err:1 http://depot/distribution / Packages",
    ]


class Dpkg(PlayedModule):
    """A node with packages: version and hold by name; apt-get installs what is asked for, at 2.0-1."""

    def __init__(self, packages: dict[str, tuple[str, bool]], holds: Path, /, **params: object) -> None:
        defaults = {"version": "", "hold": False, "busy": "", "adopt": [], "repository_suite": "/"}
        texts = ("http_proxy", "https_proxy", "no_proxy", "repository_url", "repository_components")
        super().__init__({**defaults, **dict.fromkeys(texts, ""), **params})
        self.packages, self.holds = packages, holds
        self.commands: list[str] = []
        self.recorded_at_hold: list[str] = []
        self.along: list[str] = []
        self.removed: list[str] = []
        self.complaint = ""
        self.sources: list[str] = []

    def run_command(self, argv: list[str], **_: object) -> tuple[int, str, str]:
        argv = without_limit(argv)
        if argv[0] == "dpkg-query":
            known = [name for name in argv[4:] if name in self.packages]
            wants = {name: "hold" if self.packages[name][1] else "install" for name in known}
            lines = [f"{name}|{self.packages[name][0]}|{wants[name]} ok installed\n" for name in known]
            return 0, "".join(lines), ""
        if "-c" in argv and "update" in argv:
            view = Path(argv[argv.index("-c") + 1]).parent
            self.sources = [path.read_text() for path in view.glob("sources.list.d/*")]
        if "--simulate" in argv and self.complaint:
            return 100, "", self.complaint
        if "--simulate" in argv:
            simulated = [f"Inst {name} (2.0-1 depot [amd64])\n" for name in [*self.asked(argv), *self.along]]
            return 0, "".join(simulated) + "".join(f"Remv {name} [1.0]\n" for name in self.removed), ""
        step = "install" if "install" in argv else argv[-1]
        self.commands.append(f"apt-get {step}" if argv[0] == "apt-get" else " ".join(argv))
        if argv[0] == "apt-mark":
            if argv[1] == "hold" and self.holds.is_file():
                self.recorded_at_hold = json.loads(self.holds.read_text())
            for name in argv[2:]:
                self.packages[name] = (self.packages[name][0], argv[1] == "hold")
        if "install" in argv:
            for name in self.asked(argv):
                self.packages[name] = ("2.0-1", self.packages.get(name, ("", False))[1])
        return 0, "", ""

    @staticmethod
    def asked(argv: list[str]) -> list[str]:
        """The packages that apt-get is to install."""
        return [word.partition("=")[0] for word in argv[argv.index("install") + 1 :]]


@pytest.fixture
def bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the module on a node; `ours` are the holds on record."""
    holds = tmp_path / "lib/holds.json"
    monkeypatch.setattr(task, "HOLDS", holds)
    monkeypatch.setattr(module, "ROOT", tmp_path / "root")
    real = task.alone
    monkeypatch.setattr(task, "alone", lambda name, seconds: real(name, seconds, tmp_path))

    def run(
        packages: dict[str, tuple[str, bool]], ours: list[str], /, *, check: bool = False, **params: object
    ):
        along, removed = params.pop("along", []), params.pop("removed", [])
        complaint = params.pop("complaint", "")
        holds.parent.mkdir(exist_ok=True)
        holds.write_text(json.dumps(ours))
        node = Dpkg(packages, holds, **params)
        node.check_mode, node.along, node.removed, node.complaint = check, along, removed, complaint
        monkeypatch.setattr(module, "AnsibleModule", lambda **_: node)
        return result_of(module.main), node, json.loads(holds.read_text())

    return run


def test_an_operators_hold_stays_while_a_sibling_is_installed(bring) -> None:
    result, node, ours = bring({"docker.io": ("1.0-1", True)}, [], packages=["docker.io", "runc"], hold=True)
    assert result["installed"] == ["runc"]
    assert not any("unhold" in command for command in node.commands)
    assert node.packages["docker.io"] == ("1.0-1", True)
    assert ours == ["runc"]  # and docker.io is still the operator's


def test_our_own_hold_stays_over_the_transaction(bring) -> None:
    packages = {"toolkit": ("1.0-1", True), "other": ("1.0-1", True)}
    result, node, _ = bring(packages, ["toolkit", "other"], packages=["toolkit=2.0"], hold=True)
    assert result["changed"]
    assert node.commands == ["apt-get update", "apt-get install", "apt-mark hold toolkit"]
    assert node.packages["toolkit"] == ("2.0-1", True)


def test_somebody_elses_hold_on_what_comes_along_is_respected(bring) -> None:
    packages = {"containerd": ("1.0-1", True)}
    result, node, _ = bring(packages, [], packages=["docker.io"], along=["containerd"])
    assert (result["code"], node.commands) == ("packages.held", ["apt-get update"])
    assert "someone else holds containerd" in result["msg"]
    assert "failed" not in bring(packages, ["containerd"], packages=["docker.io"], along=["containerd"])[0]


def test_nothing_is_removed_for_it(bring) -> None:
    result, node, _ = bring({}, [], packages=["docker.io"], removed=["podman-docker"])
    assert "apt would remove podman-docker" in result["msg"]
    assert node.commands == ["apt-get update"]


def test_check_mode_foretells_what_comes_along_and_changes_nothing(bring) -> None:
    asked = {"packages": ["docker.io"], "along": ["containerd"]}
    foretold, node, _ = bring({"containerd": ("1.0-1", False)}, [], check=True, **asked)
    assert node.commands == ["apt-get update"]  # into lists of its own
    assert node.packages == {"containerd": ("1.0-1", False)}
    done, _, _ = bring({"containerd": ("1.0-1", False)}, [], **asked)
    assert foretold["changes"] == done["changes"] == {"containerd": ["", "2.0-1"], "docker.io": ["", "2.0-1"]}
    assert foretold["diff"] == done["diff"]


def test_check_mode_ends_as_an_apply_would(bring) -> None:
    held = {"containerd": ("1.0-1", True)}
    for refused in ({"along": ["containerd"]}, {"removed": ["podman-docker"]}):
        foretold, node, _ = bring(dict(held), [], check=True, packages=["docker.io"], **refused)
        done, _, _ = bring(dict(held), [], packages=["docker.io"], **refused)
        assert (foretold["failed"], foretold["msg"]) == (True, done["msg"])
        assert node.packages == held


def test_what_the_sources_do_not_tell_is_warned_of_and_what_is_asked_for_remains(bring) -> None:
    complaint = "E: Unable to locate package docker.io"
    result, node, _ = bring({}, [], check=True, packages=["docker.io"], complaint=complaint)
    assert (result["changed"], result["changes"]) == (True, {})
    assert result["diff"] == {"before": "", "after": "docker.io\n"}
    assert node.warned == [f"What else docker.io would change is not known: {complaint}."]


def test_a_repository_that_is_not_configured_yet_is_in_the_view(bring) -> None:
    named = {"repository_url": "http://mirror/docker", "repository_suite": "noble"}
    components = {"repository_components": "stable"}
    _, node, _ = bring({}, [], check=True, packages=["docker-ce"], **named, **components)
    (source,) = node.sources
    assert "URIs: http://mirror/docker\nSuites: noble\nComponents: stable\n" in source
    _, node, _ = bring({}, [], packages=["docker-ce"], **named, **components)
    assert node.sources == []


def test_a_hold_is_on_record_before_it_is_set(bring) -> None:
    _, node, ours = bring({"runc": ("1.0-1", False)}, ["old"], packages=["runc"], hold=True)
    assert node.recorded_at_hold == ours == ["old", "runc"]


def test_hold_false_releases_ours_alone_and_once(bring) -> None:
    packages = {"docker.io": ("1.0-1", True), "runc": ("1.0-1", True)}
    result, node, ours = bring(packages, ["runc"], packages=["docker.io", "runc"], check=True)
    assert (result["changed"], result["released"], node.commands) == (True, ["runc"], [])
    result, node, ours = bring(packages, ["runc"], packages=["docker.io", "runc"])
    assert (result["changed"], result["released"], ours) == (True, ["runc"], [])
    assert node.packages == {"docker.io": ("1.0-1", True), "runc": ("1.0-1", False)}
    assert bring(packages, ours, packages=["docker.io", "runc"])[0]["changed"] is False


def test_an_installed_version_stays_while_the_host_is_busy_and_a_missing_one_comes(bring) -> None:
    result, node, _ = bring(
        {"docker.io": ("1.0-1", False)}, [], packages=["docker.io=2.0"], busy="2 containers run"
    )
    assert (result["changed"], node.commands) == (False, [])
    assert "would replace installed packages: 2 containers run" in result["clusterctl"]["busy"]
    result, node, _ = bring(
        {"docker.io": ("2.0-1", False)}, [], packages=["docker.io=2.0", "runc"], busy="2 containers run"
    )
    assert result["installed"] == ["runc"]


def test_what_another_run_has_installed_in_the_meantime_is_not_installed_again(
    bring, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages: dict[str, tuple[str, bool]] = {}

    @contextmanager
    def after_another_run(_name: str, _seconds: float) -> Iterator[None]:
        packages["runc"] = ("2.0-1", False)
        yield

    monkeypatch.setattr(task, "alone", after_another_run)
    result, node, _ = bring(packages, [], packages=["runc"])
    assert (result["changed"], result["installed"], node.commands) == (False, [], [])
