"""A node as its operator has it, and the road of its driver: each step planned, applied and compared."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from .conftest import RunningLab, json_lines, must_be_good
from .on_node import changes, inside
from .test_runtime_roles import image

NODE = "gpu01"
PARTS = ("--only", "driver,runtime", "--limit", NODE)
DRIVER = ("--only", "driver", "--limit", NODE)
FIRST, NEWER, OTHER_BRANCH = "580.95.05", "580.105.08", "570.148.08"
INSTALLED = "dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n'"
RPMS = "rpm -qa --qf '%{NAME}|%{VERSION}|%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n'"
LOCKS = "/etc/dnf/plugins/versionlock.list"
# What a change of packages or of their sources would leave behind.
STATE = (
    f"{{ {INSTALLED} || rpm -qa | sort; }} 2>/dev/null; "
    "find /etc -type f -not -name '*.lock' -exec sha256sum {} + | sort -k2"
)


class Rack:
    """One GPU node of a lab of its own.

    `kept` is what its operator had, by the command that shows it; `found` is what preflight said in an apply.
    """

    def __init__(self, lab: RunningLab, system: str = "debian12") -> None:
        self.lab, self.system = lab, system
        self.kept: dict[str, str] = {}
        self.found: set[str] = set()

    def shell(self, command: str, *, check: bool = True, host: str = NODE) -> str:
        """What a shell prints as the node's root, without sshd."""
        return inside(self.lab, command, check=check, host=host)

    def write(self, files: Mapping[str, str]) -> None:
        """Files as an operator would put them there."""
        for path, content in files.items():
            command = ["docker", "exec", "-i", self.lab.container(NODE), "sh", "-c"]
            script = f"mkdir -p $(dirname {path}) && cat >{path}"
            subprocess.run([*command, script], input=content, text=True, check=True, timeout=60)

    def copy(self, source: Path, target: str) -> None:
        """A directory or file of this machine, on the node."""
        command = ["docker", "cp", str(source), f"{self.lab.container(NODE)}:{target}"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def declare(self, group: str = "gpu_nodes", **settings: Any) -> None:
        """Settings of the site, added to those of the lab."""
        path = self.lab.cluster / f"group_vars/{group}.yml"
        values = yaml.safe_load(path.read_text(encoding="utf-8")) | settings
        path.write_text(yaml.safe_dump(values), encoding="utf-8")

    def keep(self, *commands: str) -> None:
        """What these print now, they must print after each step."""
        self.kept |= {command: self.shell(command) for command in commands}

    def packages(self) -> list[str]:
        """Installed packages with holds and versions, without the revision of their archive."""
        if self.system == "rocky9":
            return self._rpms()
        installed = [line for line in self.shell(INSTALLED).splitlines() if line[:2] in ("ii", "hi")]
        return sorted(line.partition("-0ubuntu")[0] for line in installed)

    def _rpms(self) -> list[str]:
        """The same of RPMs, as dpkg would list them: held is what versionlock has."""
        locked = self.shell(f"cat {LOCKS}", check=False).split()
        rows = [line.split("|") for line in self.shell(RPMS).splitlines()]
        held = {full for *_, full in rows if any(lock.startswith(f"{full}.") for lock in locked)}
        return sorted(f"{'hi' if full in held else 'ii'} |{name}|{version}" for name, version, full in rows)

    def running(self) -> set[str]:
        """The versions that the module, nvidia-smi and, if it is there, Fabric Manager say of themselves."""
        printed = self.shell(
            "grep -o '  [0-9][0-9.]*  ' /proc/driver/nvidia/version; "
            "nvidia-smi --query-gpu=driver_version --format=csv,noheader; "
            "! command -v nv-fabricmanager >/dev/null || nv-fabricmanager --version"
        )
        return {line.split()[-1] for line in printed.splitlines()}

    def refused(self, words: str) -> None:
        """Plan and apply end before anything is changed, and say why."""
        before = self.shell(STATE)
        for command in (("plan",), ("apply", "--yes")):
            done = self.lab.clusterctl(*command, *PARTS)
            assert done.returncode == 1, done.stderr
            assert words in " ".join((done.stdout + done.stderr).split()), done.stdout + done.stderr
        assert self.shell(STATE) == before

    def step(self, version: str, parts: Sequence[str] = PARTS) -> str:
        """Changes the driver to a version; what plan foretold is what apply did. Returns the plan's words."""
        self.declare(nvidia_driver_version=version, nvidia_driver_branch=version.split(".", maxsplit=1)[0])
        planned = self.lab.clusterctl("plan", "--json", *parts)
        must_be_good(planned)
        changed = [line for line in json_lines(planned) if line["type"] == "change"]
        foretold = {(line["host"], line["task"]) for line in changed}
        applied = self.lab.clusterctl("apply", "--yes", "--json", *parts)
        must_be_good(applied)
        said = json_lines(applied)
        ours = [line for line in said if line.get("type") == "finding" and line["host"] == NODE]
        self.found |= {f"{line['severity']} {line['subject']}: {line['found']}" for line in ours}
        done = changes(said)
        assert foretold == done, f"only planned: {foretold - done}; only done: {done - foretold}"
        self.holds(version)
        return planned.stdout

    def holds(self, version: str) -> None:
        """The node runs this driver and no other, held as a whole; its operator's things are as they were."""
        assert self.running() == {version}
        driver = [
            line for line in self.packages() if line.split("|")[2].startswith((FIRST, NEWER, OTHER_BRANCH))
        ]
        assert driver
        assert {(line[:2], line.split("|")[2].partition("-")[0]) for line in driver} == {("hi", version)}, (
            driver
        )
        failed = self.shell("systemctl --failed --plain --no-legend")
        assert not failed, failed
        there = {command: self.shell(command, check=False) for command in self.kept}
        assert there == self.kept, {one: now for one, now in there.items() if now != self.kept[one]}

    def walk(self) -> str:
        """The whole road: a site with registry and image, nothing more, newer version, another branch, back.

        Returns what the first plan said.
        """
        said = self.step(FIRST, ())
        again = self.lab.clusterctl("apply", "--yes", "--json")
        must_be_good(again)
        assert changes(json_lines(again)) == set()
        first = self.packages()
        self.trains()
        for version in (NEWER, OTHER_BRANCH, FIRST):
            self.step(version, DRIVER)
        back = self.packages()
        assert back == first, set(back) ^ set(first)
        self.trains()
        return said

    def trains(self) -> None:
        """A container of the training image, which came from the cluster's registry, sees every GPU."""
        listed = self.shell(f"docker run --rm --gpus all {image(self.lab)} nvidia-smi -L").splitlines()
        assert len(listed) == int(self.shell("nvidia-smi -L | wc -l")) > 0, listed
