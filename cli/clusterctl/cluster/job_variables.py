"""Variables for the jobs of a validation: which may be given to their ranks, and which names NCCL knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from clusterctl import console
from clusterctl.cluster.settings.options import is_secret
from clusterctl.cluster.suggestion import did_you_mean

SETTING = "validation_environment"
SUITES_SETTING = "validation_environment_suites"
MAX_VARIABLES, MAX_NAME, MAX_VALUE = 64, 96, 1024  # characters of a name and of a value
NCCL = "NCCL_"
# NCCL and its plugins, UCX, Gloo, Open MPI, HPC-X, verbs, libfabric, the frameworks.
PREFIXES = (
    NCCL, "UCX_", "GLOO_", "OMPI_", "OPAL_", "PMIX_", "PRTE_", "HPCX_", "HCOLL_", "SHARP_", "UCC_",
    "OFI_NCCL_", "FI_", "IBV_", "RDMAV_", "MLX5_", "TORCH_NCCL_", "FLAGS_", "CUDA_DEVICE_MAX_",
)  # fmt: skip
# What clusterctl sets itself, or reads: where a rank is, its GPU, how it starts, and NCCL's log.
OWN_PREFIXES = ("CLUSTERCTL_", "PADDLE_", "LD_", "PYTHON", "OMPI_COMM_", "OMPI_UNIVERSE_", "PMIX_RANK")
OWN = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PATH", "HOME",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS", "FLAGS_selected_gpus", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS",
    "NCCL_COMM_ID", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent",
    "OMPI_MCA_plm_rsh_no_tree_spawn", "PRTE_MCA_plm_ssh_no_tree_spawn",
}  # fmt: skip
OWN_HINT = (
    "Remove it. A plugin that NCCL is to load is named by its path: NCCL_NET_PLUGIN, NCCL_TUNER_PLUGIN."
)
# The greatest besides -1, which is the choice of NCCL: fields of a packet, a port's table of addresses.
MAX_NUMBERS = {"NCCL_IB_TC": 255, "NCCL_IB_FIFO_TC": 255, "NCCL_IB_SL": 15, "NCCL_IB_GID_INDEX": 255}
LISTS = ("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME")
Refusal = tuple[str, str]  # what is wrong, and a hint


@cache
def table() -> Mapping[str, Any]:
    """NCCL's names, with the newest version that has been read and the source."""
    text = Path(__file__).with_name("nccl_variables.yml").read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return read


@cache
def nccl_names() -> frozenset[str]:
    """Every variable that a version of NCCL reads."""
    return frozenset(table()["names"])


def nccl_version() -> str:
    """The newest version of NCCL whose variables are known."""
    return str(table()["version"])


def refuse_name(name: str) -> Refusal | None:
    """Why ranks are not given a variable of this name; None if they may be."""
    if not _is_name(name):
        return (
            f"{name[:MAX_NAME]!r} is not a name of a variable",
            "Names are letters, digits and underscores.",
        )
    if is_secret(name):
        return f"{name} looks like a secret", "What ranks are given stands in the report: keep secrets out."
    if name in OWN or name.startswith(OWN_PREFIXES):
        return f"{name} is set by clusterctl", OWN_HINT
    if not name.startswith(PREFIXES):
        near = next((known for known in (name.upper(), NCCL + name.upper()) if known in nccl_names()), "")
        hint = f"Did you mean {near}?" if near else did_you_mean(name, nccl_names(), 0.8)
        return f"{name} is not a variable of NCCL or another library of the jobs", hint or (
            f"Names start with one of {', '.join(PREFIXES)}."
        )
    if name.startswith(NCCL) and (meant := _one_letter_off(name)):
        return f"NCCL knows no {name}", f"Did you mean {meant}?"
    return None


def refuse_value(name: str, value: Any) -> Refusal | None:
    """Why a variable may not have this value; None if it may."""
    if isinstance(value, (bool, float)) or not isinstance(value, (str, int)):
        return f"the value of {name} is not text", 'Write it in quotes, as in a shell: "1".'
    text = str(value)
    if len(text) > MAX_VALUE:
        return f"the value of {name} has {len(text)} characters", f"It has at most {MAX_VALUE}."
    if not text.isprintable():
        return f"the value of {name} has a control character", "Write it on one line, without tabs."
    most = MAX_NUMBERS.get(name)
    if most is not None and not (
        text == "-1" or (text.isascii() and text.isdecimal() and len(text) < 5 and int(text) <= most)
    ):
        return (
            f"{name} is not a number up to {most}: {text[:40]!r}",
            "Write it in decimal digits; 106 for 0x6a.",
        )
    if name in LISTS and " " in text:
        return (
            f"{name} has a blank: {text[:80]!r}",
            "NCCL takes it as part of a name: separate by commas alone.",
        )
    return None


def unknown_names(variables: Mapping[str, str]) -> list[str]:
    """Names that start as NCCL's and that no version up to ours reads: a newer one may."""
    return [name for name in variables if name.startswith(NCCL) and name not in nccl_names()]


def warn(environments: Iterable[Mapping[str, str]]) -> None:
    """Say which variables no known version of NCCL reads: it ignores what it does not know."""
    unknown = dict.fromkeys(name for variables in environments for name in unknown_names(variables))
    for name in unknown:
        hint = (
            did_you_mean(name, nccl_names(), 0.8) or "It has no effect unless your NCCL is newer and has it."
        )
        console.tell(
            f"warning: {SETTING} sets {name}, which NCCL up to {nccl_version()} does not have",
            ("hint: ", hint),
            style="yellow",
        )


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier() and len(name) <= MAX_NAME


def _one_letter_off(name: str) -> str:
    """The known name that this is, with one letter wrong, missing, added or swapped with its neighbour.

    Only two pairs of NCCL's 275 names are that near: an unknown name that near to a known one is a typo.
    """
    if name in nccl_names():
        return ""
    if name.upper() in nccl_names():
        return name.upper()
    return next((known for known in sorted(nccl_names()) if differs_in_one(name, known)), "")


def differs_in_one(a: str, b: str) -> bool:
    """Whether two different names differ by one letter, or by two neighbours that are swapped."""
    if abs(len(a) - len(b)) > 1:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest, other = a[start:], b[start:]
    swapped = rest[1:2] + rest[:1] + rest[2:]
    return other in (rest[1:], swapped) or other[1:] in (rest, rest[1:])


def check_all(variables: Mapping[Any, Any]) -> Sequence[Refusal]:
    """What is wrong with the variables of one host."""
    found = []
    if len(variables) > MAX_VARIABLES:
        found.append((f"{len(variables)} variables are set", f"At most {MAX_VARIABLES} are given to ranks."))
    for name, value in list(variables.items())[:MAX_VARIABLES]:
        refused = refuse_name(str(name)) or refuse_value(str(name), value)
        found += [refused] if refused else []
    return found
