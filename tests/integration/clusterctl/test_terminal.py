"""The real program in a pseudo-terminal, its screen emulated; only Ansible is played (terminal_player.py)."""

from __future__ import annotations

import json
import re
import shlex
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .terminal_screen import SIZES, Terminal, Watched, begun, is_whole, picture

PLAYER = Path(__file__).with_name("terminal_player.py")
# Runs the program with the player as the interpreter that Ansible is started with.
PROGRAM = "import sys; from clusterctl.main import run; sys.executable = {!r}; sys.exit(run())"
LOCKED = "E: Could not get lock /var/lib/dpkg/lock-frontend"


@dataclass
class Site:
    """A cluster directory, and the feed that its Ansible plays."""

    root: Path
    hosts: list[str]

    def play(self, **feed: Any) -> None:
        """Describe the feed."""
        described = {"hosts": self.hosts, "tasks": 4, "seed": 7, **feed}
        (self.root / "feed.json").write_text(json.dumps(described))

    def start(
        self, *words: str, size: tuple[int, int] = (80, 24), out: Path | None = None, **environment: str
    ) -> Terminal:
        """The program with these words, in a terminal; standard output to a file where ``out`` names one."""
        argv = [sys.executable, "-c", PROGRAM.format(str(self.root / "python")), "-C", str(self.root), *words]
        line = f"exec {shlex.join(argv)}" + (f" > {out}" if out else "")
        return begun(["/bin/sh", "-c", line], size, FEED=str(self.root / "feed.json"), **environment)

    def go_on(self) -> None:
        """End what holds the feed."""
        (self.root / "go").touch()


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    return make_site(tmp_path, getattr(request, "param", 3))


def make_site(root: Path, number: int) -> Site:
    """A site of so many GPU nodes."""
    hosts = [f"gpu{n:03d}" for n in range(1, number + 1)]
    lines = "".join(f"    {host}: {{ansible_host: 192.0.2.{n}}}\n" for n, host in enumerate(hosts, 1))
    (root / "hosts.yml").write_text(f"gpu_nodes:\n  hosts:\n{lines}")
    (root / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S {PLAYER} "$@"\n')
    (root / "python").chmod(0o755)
    return Site(root, hosts)


def counts(drawn: list[str]) -> dict[str, int]:
    """The hosts by state, from the line that has them."""
    (line,) = [line for line in drawn if re.match(r"\d+ (failed|unreachable|busy|at work|waiting)\b", line)]
    found = re.findall(r"(\d+) (failed|unreachable|busy|at work|waiting)\b", line)
    return {word: int(number) for number, word in found}


def held(site: Site, at_work: int) -> Callable[[Watched], bool]:
    """Whether the feed waits, and the screen shows all that came before."""

    def is_held(screen: Watched) -> bool:
        shown = any(f"{at_work} at work" in line for line in screen.display)
        return (site.root / "held").exists() and shown and screen.cursor.x == 0

    return is_held


@dataclass(frozen=True)
class Case:
    """A command on so many hosts at once, and who fails."""

    words: str
    at_once: int
    failing: tuple[str, ...]
    dead: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.words.split()[0]


APPLY = "apply --yes --canary 0"
CASES = {
    "apply-3": (3, Case(APPLY, 3, ("gpu002",))),
    "plan-3": (3, Case("plan", 3, ("gpu001",), ("gpu003",))),
    "apply-100": (100, Case(APPLY, 64, ("gpu002", "gpu013", "gpu044"), ("gpu009",))),
    "plan-100": (
        100,
        Case("plan", 100, tuple(f"gpu{n:03d}" for n in range(5, 100, 7)), ("gpu001", "gpu100")),
    ),
}
IN_EVERY_SIZE = ("apply-3", "plan-100")
COMBINED = {
    f"{name}-{size}": (*CASES[name], size)
    for name in CASES
    for size in SIZES[: 3 if name in IN_EVERY_SIZE else 1]
}


@pytest.mark.drawn("windows of an apply or a plan")
@pytest.mark.parametrize(("site", "case", "size"), COMBINED.values(), indirect=["site"], ids=list(COMBINED))
def test_the_picture_fits_its_window_names_what_failed_and_leaves_a_whole_screen(site, case, size):
    site.play(failing=dict.fromkeys(case.failing, LOCKED), unreachable=case.dead, hold=3)
    alive = case.at_once - len(case.failing) - len(case.dead)
    terminal = site.start(*case.words.split(), size=size)
    terminal.until(held(site, alive - alive // 2))
    drawn = picture(terminal.screen, case.title)
    assert terminal.screen.wraps == 0
    assert len(drawn) < size[1]
    assert max(map(len, drawn)) < size[0]
    assert all(any(host in line for line in drawn) for host in case.failing + case.dead)
    expected = {"failed": len(case.failing), "unreachable": len(case.dead), "at work": alive - alive // 2,
                "waiting": alive // 2}  # fmt: skip
    assert counts(drawn) == {word: count for word, count in expected.items() if count}
    if case.at_once == 3:
        assert [line.split()[0] for line in drawn[1:-1]] == site.hosts
    site.go_on()
    assert terminal.ended() == 1
    said = " ".join(terminal.screen.everything())
    assert re.search(rf"{alive} ok, .*\b{len(case.failing)} failed", said)
    assert f"{case.title} ·" not in said, "the picture is gone"
    assert "hint:  Another package operation runs on" in said
    assert "main.yml:2" in said
    assert not case.dead or "Connection refused" in said
    assert terminal.modes == termios.tcgetattr(terminal.child.child_fd)
    assert not terminal.screen.hidden_once
    assert not re.search(rb"\x1b\[2[JK]", terminal.raw), "nothing is blanked before it is drawn"


@pytest.mark.parametrize("site", [3, 100], indirect=True)
def test_a_window_that_changes_its_size_shows_one_whole_picture(site):
    site.play(failing={"gpu002": LOCKED}, hold=3)
    terminal = site.start("plan", size=(100, 30))
    alive = len(site.hosts) - 1
    terminal.until(held(site, alive - alive // 2))
    # Lines still on their way while a window changes are drawn for its old size, by any program.
    terminal.until(lambda screen: any("packages.locked" in line for line in screen.everything()))
    for columns, lines in ((60, 20), (44, 12), (140, 40), (80, 24)):
        before = len(terminal.raw)
        terminal.screen.resize(lines, columns)
        terminal.child.setwinsize(lines, columns)
        # What was on its way for the old size comes first.
        terminal.until(lambda screen, before=before: len(terminal.raw) > before and is_whole(screen, "plan"))
        drawn = picture(terminal.screen, "plan")
        assert len(drawn) < lines
        assert max(map(len, drawn)) < columns
        assert any("gpu002" in line for line in drawn)
    site.go_on()
    assert terminal.ended() == 1


@pytest.mark.drawn("plain lines of an apply")
@pytest.mark.parametrize("site", [3, 100], indirect=True)
@pytest.mark.parametrize(
    "setting", [{"NO_COLOR": "1"}, {"CI": "true"}, {"TERM": "dumb"}], ids=["NO_COLOR", "CI", "dumb"]
)
def test_where_no_screen_is_wanted_there_are_plain_lines_and_not_one_for_each_host_and_task(site, setting):
    site.play(tasks=10, failing=dict.fromkeys(site.hosts[1::7], LOCKED), unreachable=site.hosts[3:5])
    terminal = site.start("plan", **setting)
    assert terminal.ended() == 1
    progress = [line for line in terminal.raw.decode().splitlines() if re.match(r"\[ *\w+\] ", line)]
    assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", terminal.raw)
    assert len(progress) < 10 * 2 + 10
    said = "\n".join(progress)
    assert "nvidia_driver: Install part 9 of what the site declares" in said
    assert all(host in terminal.raw.decode() for host in (*site.hosts[1::7], *site.hosts[3:5]))
    assert (
        f"{len(site.hosts[1::7])} failed, {len(site.hosts[3:5])} unreachable" in said or len(site.hosts) == 3
    )


def test_messages_and_results_keep_apart_while_the_screen_is_live(site):
    site.play(failing={"gpu002": LOCKED})
    out = site.root / "out"
    terminal = site.start("apply", "--yes", "--canary", "0", out=out)
    assert terminal.ended() == 1
    assert "apply · nodes · 3 hosts" in terminal.raw.decode()
    assert "\x1b" not in out.read_text()
    assert "hint:" not in out.read_text()
    assert [line.split()[:2] for line in out.read_text().splitlines() if line.startswith("gpu00")] == [
        ["gpu001", "good"], ["gpu002", "failed"], ["gpu003", "good"],
    ]  # fmt: skip


def test_json_stays_pure_in_a_terminal(site):
    site.play(failing={"gpu002": LOCKED})
    out = site.root / "out"
    terminal = site.start("apply", "--yes", "--canary", "0", "--json", out=out)
    assert terminal.ended() == 1
    assert "apply ·" not in terminal.raw.decode()
    assert [json.loads(line) for line in out.read_text().splitlines()][-1]["type"] == "summary"


def test_ctrl_c_is_answered_at_once_and_leaves_the_terminal_as_it_was(site):
    site.play(hold=2)
    terminal = site.start("apply", "--yes", "--canary", "0")
    terminal.until(held(site, 2))
    assert not termios.tcgetattr(terminal.child.child_fd)[3] & termios.ECHO
    terminal.child.sendintr()
    assert terminal.ended() == 130
    said = "\n".join(terminal.screen.everything())
    assert "interrupted: stopping" in said
    assert "3 interrupted" in said
    assert "apply ·" not in said
    assert terminal.modes == termios.tcgetattr(terminal.child.child_fd)
    assert not terminal.screen.hidden_once
    assert terminal.screen.cursor.x == 0


def test_keys_pressed_meanwhile_neither_break_the_picture_nor_answer_a_question(site):
    site.play(hold=0, hold_preflight=True)
    terminal = site.start("apply", "--canary", "0")
    terminal.until(held(site, 2))
    before = picture(terminal.screen, "apply")
    terminal.child.send("\r\r\rn\r")
    terminal.until(lambda screen: picture(screen, "apply") != before)
    site.go_on()
    terminal.until(lambda screen: any("? [y/N]:" in line for line in screen.display))
    assert terminal.child.isalive()
    terminal.child.send("y\r")
    assert terminal.ended() == 0
    assert any("nodes: 3 ok" in line for line in terminal.screen.everything())


@pytest.mark.parametrize("site", [3, 100], indirect=True)
def test_a_long_task_shows_on_which_host_it_is_and_since_when(site):
    site.play(hold=1)
    terminal = site.start("plan")
    slow = re.compile(r"  (gpu\d+) +nvidia_driver: Install part 1 of what the site declares +(\d+)s$")
    seen: list[int] = []

    def ticks(screen: Watched) -> bool:
        found = [slow.match(line.rstrip()) for line in screen.display]
        seen.extend(int(match[2]) for match in found if match)
        return len(set(seen)) > 1

    terminal.until(ticks)
    site.go_on()
    assert terminal.ended() == 0
