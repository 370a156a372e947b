"""A real Harbor that the contract tests are run against, and what they leave in it: nothing."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import httpx
import pytest
from pydantic import SecretStr

from clusterctl.registry.harbor.client import Access
from clusterctl.registry.harbor.session import HarborSession
from clusterctl.registry.oci import exchange

# What only a stand-in has.
PLAYED = ("store", "faults", "calls", "asked", "sessions", "password_checks", "shutdown")
# What tests set, and what it is again after each.
SETTINGS = ("robot_name_prefix", "quota_per_project_enable", "read_only")
PAGE = 100
# A job is begun by Harbor's job service within seconds, and those of tests have next to nothing to do.
JOB_S = 120.0


def until(fact: Callable[[], Any]) -> Any:
    """Wait for what a job of Harbor's brings about; Harbor tells nobody."""
    deadline = time.monotonic() + JOB_S
    while not (found := fact()):
        assert time.monotonic() < deadline, "Harbor's job took too long"
        time.sleep(0.5)
    return found


@dataclass
class RealHarbor:
    """Where it is, and who we are there. ``prefix`` begins all names that are ours in a Harbor in use."""

    url: str
    password: SecretStr
    authority: Path | None = None
    in_use: bool = False

    def __post_init__(self) -> None:
        self.prefix = f"contract-{os.urandom(4).hex()}-"
        self.verify = ssl.create_default_context(cafile=str(self.authority)) if self.authority else True
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v2.0", verify=self.verify, headers={"X-Is-Resource-Name": "true"},
            cookies=exchange.NoCookies(), timeout=120, trust_env=False,
        )  # fmt: skip
        self._auth = ("admin", self.password.get_secret_value())
        self._session = HarborSession(self._http, httpx.URL(self.url), *self._auth)
        self.version = str(self.ask("GET", "/systeminfo")["harbor_version"]).partition("-")[0]
        self.scans = any(one.get("is_default") for one in self.ask("GET", "/scanners") or [])
        settings = self.ask("GET", "/configurations")
        self._settings = {name: settings[name]["value"] for name in SETTINGS}

    def __getattr__(self, name: str) -> NoReturn:
        if name in PLAYED:
            pytest.skip(f"looks into the stand-in ({name})")
        raise AttributeError(name)

    @property
    def access(self) -> Access:
        """For the reconciler."""
        return Access(self.url, "admin", self.password, self.authority)

    @property
    def host(self) -> str:
        """As images are named."""
        return httpx.URL(self.url).netloc.decode()

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
        """Its answer, whatever it is."""
        session = self._session.headers({})
        auth = None if session else self._auth
        return self._http.request(method, path, json=body, params=query or None, headers=session, auth=auth)

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Its answer, which must be a good one."""
        answer = self.call(method, path, body, **query)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content.strip() else None

    def knows(self, user: str, password: str) -> bool:
        """Whether someone else may log in."""
        return self._http.get("/users/current/permissions", auth=(user, password)).is_success

    def every(self, path: str, **query: Any) -> Iterator[Any]:
        """All of a list."""
        page, number = [], 1
        while not page or len(page) == PAGE:
            page = self.ask("GET", path, page=number, page_size=PAGE, **query) or []
            yield from page
            if not page:
                return
            number += 1

    def holds(self) -> list[str]:
        """What somebody has made there."""
        found = [f"project {one['name']}" for one in self.every("/projects") if one["name"] != "library"]
        found += [f"repository {one['name']}" for one in self.every("/repositories")]
        lists = {"endpoint": "/registries", "replication": "/replication/policies", "robot": "/robots",
                 "preheat network": "/p2p/preheat/instances"}  # fmt: skip
        for kind, path in lists.items():
            found += [f"{kind} {one['name']}" for one in self.every(path)]
        for name in ("gc", "scanAll"):
            answer = self.call("GET", f"/system/{name}/schedule")
            # Without a scanner Harbor knows of no schedule of scans, not even that there is none.
            if name == "scanAll" and answer.status_code == httpx.codes.PRECONDITION_FAILED:
                continue
            assert answer.is_success, (name, answer.status_code, answer.text)
            schedule = (answer.json() if answer.content.strip() else {}).get("schedule") or {}
            found += [f"schedule of {name}"] if schedule.get("type") not in (None, "", "None") else []
        return found

    def clean(self, *, prefix: str = "") -> None:
        """Delete all whose name begins so; without a prefix end schedules and restore settings, too."""
        if not prefix:
            self.ask("PUT", "/configurations", self._settings)
            for name in ("gc", "scanAll"):
                # Without a scanner there is no schedule of scans to end.
                self.call("PUT", f"/system/{name}/schedule", {"schedule": {"type": "None"}})
        for policy in self._ours("/replication/policies", prefix):
            # Harbor deletes none that is still copying.
            until(lambda number=policy["id"]: not self._copies(number))
            self.ask("DELETE", f"/replication/policies/{policy['id']}")
        for robot in self.every("/robots"):
            if robot["name"].partition("$")[2].startswith(prefix):
                self.ask("DELETE", f"/robots/{robot['id']}")
        for project in self._ours("/projects", prefix):
            self._empty(project["name"], keep=project["name"] == "library")
        for network in self._ours("/p2p/preheat/instances", prefix):
            self.ask("DELETE", f"/p2p/preheat/instances/{network['name']}")
        for end in self._ours("/registries", prefix):
            self.ask("DELETE", f"/registries/{end['id']}")

    def replicate(self, name: str) -> None:
        """Run the replication of that name to its end, which must be a good one."""
        (policy,) = [one["id"] for one in self.every("/replication/policies") if one["name"] == name]
        self.ask("POST", "/replication/executions", {"policy_id": policy})
        until(lambda: not self._copies(policy))
        (run,) = self.ask("GET", "/replication/executions", policy_id=policy)
        assert run["status"] == "Succeed", str(run)

    def _copies(self, policy: int) -> bool:
        runs = self.every("/replication/executions", policy_id=policy)
        return any(one["status"] == "InProgress" for one in runs)

    def _ours(self, path: str, prefix: str) -> list[Any]:
        return [one for one in self.every(path) if one["name"].startswith(prefix)]

    def _empty(self, name: str, *, keep: bool) -> None:
        path = f"/projects/{name}"
        for policy in self.every(f"{path}/preheat/policies"):
            self.ask("DELETE", f"{path}/preheat/policies/{policy['name']}")
        for rule in self.every(f"{path}/immutabletagrules"):
            self.ask("DELETE", f"{path}/immutabletagrules/{rule['id']}")
        for repository in self.every(f"{path}/repositories"):
            inner = quote(quote(repository["name"].partition("/")[2], safe=""), safe="")
            self.ask("DELETE", f"{path}/repositories/{inner}")
        if not keep:
            self.ask("DELETE", path)

    def close(self) -> None:
        """End the connections."""
        self._http.close()


@contextmanager
def real_harbor(
    url: str, password_file: Path, authority: Path | None, *, in_use: bool
) -> Iterator[RealHarbor]:
    """Refuses one that holds anything, unless it is told to be in use. Leaves nothing there."""
    password = SecretStr(password_file.read_text(encoding="utf-8").strip("\n"))
    found = RealHarbor(url.rstrip("/"), password, authority, in_use)
    if not in_use and (held := found.holds()):
        pytest.exit(f"this Harbor holds {', '.join(held[:5])}; use another, or --harbor-in-use", 2)
    try:
        yield found
    finally:
        found.clean(prefix=found.prefix if in_use else "")
        found.close()
