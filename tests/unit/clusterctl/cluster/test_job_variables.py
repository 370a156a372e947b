"""Variables for the jobs: names that NCCL knows, what clusterctl sets itself, values that fit a report."""
# ruff: noqa: E501 - tables of cases are read a case a line

from __future__ import annotations

import re
import string
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from clusterctl.cluster import job_variables
from clusterctl.cluster.job_variables import nccl_names, refuse_name, refuse_value
from clusterctl.cluster.rails import give_rails, refuse_rail


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_SOCKET_IFNAME", "NCCL_TOPO_FILE", "NCCL_NET_PLUGIN",
        "NCCL_NVLS_ENABLE", "NCCL_NET_GDR_LEVEL", "UCX_TLS", "UCX_NET_DEVICES", "GLOO_SOCKET_IFNAME",
        "OMPI_MCA_coll_hcoll_enable", "OPAL_PREFIX", "HPCX_HOME", "SHARP_COLL_LOG_LEVEL", "FI_PROVIDER",
        "FLAGS_nccl_blocking_wait", "CUDA_DEVICE_MAX_CONNECTIONS", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_SOMETHING_OF_NEXT_YEAR",
    ],
)  # fmt: skip
def test_what_jobs_set_may_be_given(name: str) -> None:
    assert refuse_name(name) is None


def test_what_the_guide_shows_may_be_given_and_a_plugin_by_its_path_is_among_it(repository: Path) -> None:
    """HPC-X in the image, where LD_LIBRARY_PATH is refused."""
    guide = (repository / "docs/guide.md").read_text(encoding="utf-8")
    section = guide.partition("### The environment of the jobs\n")[2].partition("\n## ")[0]
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)]
    given = {name: value for one in shown for name, value in one["validation_environment"].items()}
    assert [(name, *refused) for name in given if (refused := refuse_name(name))] == []
    assert [(name, *refused) for name, value in given.items() if (refused := refuse_value(name, value))] == []
    assert given["NCCL_NET_PLUGIN"].startswith("/") and refuse_name("LD_LIBRARY_PATH")
    text = (repository / "docs/reference/settings.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| `validation_environment` |"))
    assert all("NCCL_NET_PLUGIN" in page and "LD_LIBRARY_PATH" in page for page in (section, row))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NCCL_IB_HAC", "Did you mean NCCL_IB_HCA?"),  # swapped
        ("NCCL_IB_HC", "Did you mean NCCL_IB_HCA?"),  # missing
        ("NCCL_SOCKET_IFNAMES", "Did you mean NCCL_SOCKET_IFNAME?"),  # added
        ("NCCL_IB_GID_INDEZ", "Did you mean NCCL_IB_GID_INDEX?"),  # another
        ("NCCL_ib_hca", "Did you mean NCCL_IB_HCA?"),
        ("nccl_ib_hca", "Did you mean NCCL_IB_HCA?"),
        ("IB_HCA", "Did you mean NCCL_IB_HCA?"),
        ("NCLC_IB_TIMEOUT", "Did you mean NCCL_IB_TIMEOUT?"),
        ("SITE_ROOM", "Names start with one of NCCL_, UCX_"),
        ("PADDLE_TRAINER_ID", "is set by clusterctl"),
        ("MASTER_ADDR", "is set by clusterctl"),
        ("NCCL_DEBUG", "is set by clusterctl"),
        ("NCCL_DEBUG_FILE", "is set by clusterctl"),
        ("CUDA_VISIBLE_DEVICES", "is set by clusterctl"),
        ("OMPI_MCA_plm_rsh_agent", "is set by clusterctl"),
        ("OMPI_COMM_WORLD_RANK", "is set by clusterctl"),
        ("LD_PRELOAD", "NCCL_NET_PLUGIN"),
        ("LD_LIBRARY_PATH", "is set by clusterctl"),
        ("PATH", "is set by clusterctl"),
        ("PYTHONPATH", "is set by clusterctl"),
        ("UCX_AUTH_TOKEN", "keep secrets out"),
        ("FLAGS_password", "keep secrets out"),
        ("NCCL-IB-HCA", "Names are letters"),
        ("NCCL_IB_HCA=1", "Names are letters"),
        ("", "Names are letters"),
        ("1NCCL", "Names are letters"),
        ("NCCL_\u0391", "Names are letters"),
        ("NCCL_" + "A" * 96, "Names are letters"),
    ],
)  # fmt: skip
def test_what_may_not_be_given_is_refused_with_what_was_meant(name: str, says: str) -> None:
    refused = refuse_name(name)
    assert refused is not None and says in " | ".join(refused)


def test_no_name_that_nccl_knows_is_refused_but_what_clusterctl_reads() -> None:
    refused = {name for name in nccl_names() if refuse_name(name)}
    assert refused == {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_COMM_ID"}


def test_the_names_are_a_sorted_list_with_version_and_source() -> None:
    names = job_variables.table()["names"]
    assert all(a < b for a, b in pairwise(names)) and len(names) > 250
    allowed = set(string.ascii_uppercase + string.digits + "_")
    assert all(name.startswith("NCCL_") and set(name) <= allowed for name in names)
    assert job_variables.nccl_version() == "2.30.7" and "nccl" in job_variables.table()["source"]


def test_few_names_of_nccl_are_a_letter_apart_so_that_a_typo_is_one() -> None:
    names = sorted(nccl_names())
    near = [(a, b) for i, a in enumerate(names) for b in names[:i] if job_variables.differs_in_one(a, b)]
    assert near == [
        ("NCCL_THREAD_THRESHOLDS", "NCCL_THREAD_THRESHOLD"),
        ("NCCL_WIN_ENABLE", "NCCL_GIN_ENABLE"),
    ]


@pytest.mark.parametrize("value", ["1", 1, "", "=mlx5_0:1,mlx5_1", "^docker", "a" * 1024, "/opt/hpcx/\u00e4"])
def test_a_value_is_text_or_a_whole_number(value: object) -> None:
    assert refuse_value("NCCL_IB_HCA", value) is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("a\nLD_PRELOAD=x", "control character"),
        ("a\x1b[2J", "control character"),
        ("a\u2028b", "control character"),
        ("a\u202eb", "control character"),
        ("\x00", "control character"),
        ("\ud800", "control character"),
        ("a" * 1025, "1025 characters"),
        (True, "is not text"),
        (1.5, "is not text"),
        (None, "is not text"),
        (["a"], "is not text"),
    ],
)
def test_another_value_is_refused(value: object, says: str) -> None:
    refused = refuse_value("NCCL_IB_HCA", value)
    assert refused is not None and says in refused[0]


@pytest.mark.parametrize(
    ("name", "good", "wrong"),
    [
        ("NCCL_IB_TC", ["0", "255", 106, "-1"], ["256", "0x6a", "", "-2", "1 ", "3.0", "\u0661", "9" * 5000]),
        ("NCCL_IB_SL", ["15"], ["16"]),
        ("NCCL_IB_GID_INDEX", ["-1", "3"], ["three"]),
        ("NCCL_IB_HCA", ["^=mlx5_0,mlx5_1:1", ""], ["mlx5_0, mlx5_1", " mlx5_0"]),
        ("NCCL_SOCKET_IFNAME", ["=eth0"], ["eth0 eth1"]),
        ("NCCL_ALGO", ["allreduce:tree; broadcast:ring"], []),
    ],
)
def test_values_whose_form_checks_rely_on_have_it(name: str, good: list[object], wrong: list[object]) -> None:
    assert [refuse_value(name, value) for value in good] == [None] * len(good)
    assert all(refuse_value(name, value) for value in wrong)


def test_a_name_of_a_newer_nccl_is_a_warning_once(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = {
        "NCCL_IB_TRAFFIC_CLASS": "1",
        "NCCL_OF_NEXT_YEAR_S": "1",
        "UCX_OF_NEXT_YEAR": "1",
        "NCCL_ALGO": "RING",
    }
    job_variables.warn([unknown, unknown])
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("validation_environment sets NCCL_OF_NEXT_YEAR_S, which NCCL up to 2.30.7") == 1
    assert "unless your NCCL is newer" in said
    assert "UCX_OF_NEXT_YEAR" not in said and "NCCL_ALGO" not in said
    job_variables.warn([{"NCCL_IB_GID_INDICES": "3"}])
    assert "Did you mean NCCL_IB_GID_INDEX?" in capsys.readouterr().err


def test_more_than_a_report_can_show_is_refused() -> None:
    many = {f"UCX_OPTION_{n}": "1" for n in range(65)}
    assert "65 variables" in job_variables.check_all(many)[0][0]
    many.popitem()
    assert job_variables.check_all(many) == []


@pytest.mark.parametrize("rail", ["mlx5_0", "mlx5_0:1", "bnxt_re0", "mlx5_bond_0", "rocep12s0f0"])
def test_an_adapter_is_named_as_the_kernel_does(rail: str) -> None:
    assert refuse_rail(rail) is None


@pytest.mark.parametrize(
    "rail", ["", "=mlx5_0", "^mlx5", "mlx5_0,mlx5_1", "mlx5_0:0", "mlx5_0:x", "../mlx5_0", "a b"]
)
def test_what_is_no_adapter_is_refused(rail: str) -> None:
    refused = refuse_rail(rail)
    assert refused is not None and "/sys/class/infiniband" in refused[1]


def test_ranks_are_held_to_the_rails_unless_the_site_says_itself() -> None:
    assert give_rails((), {"NCCL_IB_TC": "1"}) == {"NCCL_IB_TC": "1"}
    assert give_rails(("mlx5_0", "mlx5_1:1"), {}) == {"NCCL_IB_HCA": "=mlx5_0,mlx5_1:1"}
    own = {"NCCL_IB_HCA": "^=mlx5_2"}
    assert give_rails(("mlx5_0", "mlx5_1:1"), own) == own
    second = {"NCCL_IB_HCA": "=mlx5_0:2"}
    assert give_rails(("mlx5_0",), second) == second


@pytest.mark.parametrize("value", ["^=mlx5_1", "=mlx5_0", "=mlx5_0,mlx5_1:2", "mlx4"])
def test_a_choice_that_leaves_out_a_rail_contradicts_the_rails(value: str) -> None:
    with pytest.raises(ValueError, match="leaves out mlx5_"):
        give_rails(("mlx5_0", "mlx5_1:1"), {"NCCL_IB_HCA": value})
