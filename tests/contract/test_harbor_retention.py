"""A project that names a retention policy which is gone, as after half a restore of Harbor's database."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from tests.support.harbor_play import applied, changes, site_of, states

from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor import projects
from clusterlab.simulated.harbor.api.faults import Fault
from clusterlab.simulated.harbor.api.server import StandIn

KEEP = [{"keep": "always"}]


def lose_policies(harbor: StandIn) -> None:
    for one in harbor.store.all("retention"):
        harbor.store.remove("retention", one["id"])


def test_a_policy_that_is_gone_is_made_anew(harbor: StandIn, tmp_path: Path) -> None:
    raw = {"registry_projects": [{"name": "gpu", "retention": KEEP}]}
    applied(harbor.url, tmp_path, raw)
    lose_policies(harbor)
    done = applied(harbor.url, tmp_path, raw)
    assert states(done) == {(projects.KIND, "gpu"): "done"}
    (made,) = harbor.store.all("retention")
    assert harbor.store.all("project")[1]["metadata"]["retention_id"] == str(made["id"])
    assert changes(applied(harbor.url, tmp_path, raw)) == []


def test_one_that_is_gone_and_not_wanted_is_no_matter(harbor: StandIn, tmp_path: Path) -> None:
    applied(harbor.url, tmp_path, {"registry_projects": [{"name": "gpu", "retention": KEEP}]})
    lose_policies(harbor)
    assert changes(applied(harbor.url, tmp_path, {"registry_projects": [{"name": "gpu"}]})) == []


def test_one_that_harbor_cannot_show_is_not_taken_for_gone(harbor: StandIn, tmp_path: Path) -> None:
    raw = {"registry_projects": [{"name": "gpu", "retention": KEEP}]}
    applied(harbor.url, tmp_path, raw)
    harbor.faults.add(Fault(500, path=r"retentions/\d+$", times=99))
    with pytest.raises(ClusterctlError) as caught:
        applied(harbor.url, tmp_path, raw)
    assert "retention of project gpu" in caught.value.what


def test_a_name_is_found_while_other_threads_make_objects(harbor: StandIn, tmp_path: Path) -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with site_of(harbor.url, tmp_path) as site:
            site.ids |= {("project", str(number)): number for number in range(1000)}

            def make() -> None:
                site.ids |= {("project", str(number)): number for number in range(1000, 50_000)}

            maker = threading.Thread(target=make)
            maker.start()
            while maker.is_alive():
                assert site.name_of("endpoint", 1) == ""
                assert not site.has_any("endpoint")
            maker.join()
    finally:
        sys.setswitchinterval(usual)
