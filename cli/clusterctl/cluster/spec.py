"""What validation needs to know of the cluster, drawn from inventory, settings and the roles' defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from clustercheck.parse.plain_text import shortened
from clustercheck.spec import ClusterSpec, Mount, NodeSettings, NodeSpec
from clusterctl.cluster import job_variables
from clusterctl.cluster.exclusions import exclusions
from clusterctl.cluster.inventory import Host, Inventory
from clusterctl.cluster.mig import DeclaredMig, declared_mig
from clusterctl.cluster.rails import MAX_RAILS, give_rails, refuse_rail
from clusterctl.cluster.settings import values
from clusterctl.cluster.settings.booleans import is_true
from clusterctl.cluster.settings.options import catalogue
from clusterctl.cluster.templating import Variables
from clusterctl.content import content_root
from clusterctl.errors import ClusterctlError

IMAGE = (
    "{{ registry_hostname }}:{{ registry_port }}/{{ training_image_repository }}@{{ training_image_digest }}"
)
CDI_ARGUMENTS = ("--device", "nvidia.com/gpu=all")


def cluster_spec(inventory: Inventory, suite: str = "") -> ClusterSpec:
    """The cluster as declared; quarantined nodes are in it, excluded by name.

    ``suite`` is that whose environment the ranks get. ``image`` is empty if no digest or no registry is
    declared. Raises ClusterctlError for a template that cannot be evaluated.
    """
    nodes = inventory.gpu_nodes
    name = setting(nodes[0], "cluster_name") if nodes else None
    settings = _settings(nodes[0], inventory, suite) if nodes else NodeSettings()
    return ClusterSpec(
        name=str(name or inventory.directory.root.name),
        nodes=tuple(_node(host, inventory, suite) for host in nodes),
        driver_version=settings.driver_version,
        driver_branch=settings.driver_branch,
        image=settings.image,
        container_gpu_arguments=settings.container_gpu_arguments,
        mounts=settings.mounts,
        framework=settings.framework,
        environment=settings.environment,
        exclusions=exclusions({host.name: setting(host, "validation_exclusions") for host in nodes}),
    )


def _settings(host: Host, inventory: Inventory, suite: str) -> NodeSettings:
    """What is asked of this host: group_vars and host_vars may differ by host."""
    cdi = setting(host, "nvidia_container_toolkit_mode") == "cdi"
    return NodeSettings(
        driver_version=_text(host, "nvidia_driver_version"),
        driver_branch=_text(host, "nvidia_driver_branch"),
        image=_image(host, inventory),
        container_gpu_arguments=CDI_ARGUMENTS if cdi else NodeSettings().container_gpu_arguments,
        mounts=_mounts(host),
        framework=_text(host, "validation_framework") or NodeSettings().framework,
        strict=is_true(setting(host, "validation_strict")),
        environment=_environment(host, suite),
        holders_ignored=_holders_ignored(host),
    )


def _holders_ignored(host: Host) -> tuple[str, ...]:
    declared = setting(host, "gpu_holders_ignored") or []
    return tuple(str(name) for name in (declared if isinstance(declared, list) else [declared]))


def _environment(host: Host, suite: str) -> dict[str, str]:
    """The variables of the host's ranks in a suite. Raises ClusterctlError where one may not be given."""
    variables: dict[str, str] = {}
    of_suites = setting(host, job_variables.SUITES_SETTING) or {}
    of_suite = (of_suites.get(suite) or {}) if isinstance(of_suites, Mapping) else of_suites
    all_declared = {
        job_variables.SETTING: setting(host, job_variables.SETTING) or {},
        job_variables.SUITES_SETTING: of_suite,
    }
    for name, declared in all_declared.items():
        if not isinstance(declared, Mapping):
            what = f"{shortened(repr(declared), 80)} is not a mapping"
            raise _refused_environment(host, name, (what, "Write NAME: value."))
        if problems := job_variables.check_all(declared):
            raise _refused_environment(host, name, problems[0])
        variables.update({str(key): str(value) for key, value in declared.items()})
    try:
        return give_rails(_rails(host), variables)
    except ValueError as error:
        problem = (str(error), "Name the same adapters in both, or set one of them.")
        raise _refused_environment(host, job_variables.SETTING, problem) from None


def _refused_environment(host: Host, name: str, problem: job_variables.Refusal) -> ClusterctlError:
    what, hint = problem
    return ClusterctlError(
        f"{name} of {host.name}: {what}",
        code="inventory.environment",
        where=f"{host.name}: {name}",
        hint=hint,
    )


def _rails(host: Host) -> tuple[str, ...]:
    """The declared rails. Raises ClusterctlError where a template makes them something else."""
    declared = setting(host, "hardware_rails") or []
    rails = [str(each) for each in declared] if isinstance(declared, list) else [str(declared)]
    refused = next((found for rail in rails if (found := refuse_rail(rail))), None)
    if refused is None and len(rails) > MAX_RAILS:
        refused = (f"{len(rails)} adapters are named", f"NCCL uses at most {MAX_RAILS}.")
    if refused is not None:
        raise ClusterctlError(
            f"hardware_rails of {host.name}: {refused[0]}",
            code="inventory.rails",
            where=host.name,
            hint=refused[1],
        )
    return tuple(rails)


def _mounts(host: Host) -> tuple[Mount, ...]:
    """Declared mounts. Raises ClusterctlError where a template makes them something else."""
    declared = setting(host, "validation_mounts") or []
    try:
        return tuple(
            Mount(
                **{name: str(value or "") for name, value in each.items() if name != "measure"},
                measure=is_true(each.get("measure")),
            )
            for each in declared
        )
    except (TypeError, AttributeError):
        raise ClusterctlError(
            f"validation_mounts of {host.name} is not a list of mounts: {declared!r}",
            code="inventory.mounts",
            where=host.name,
        ) from None


def setting(host: Host, name: str, default: Any = None) -> Any:
    """A setting of a host: the inventory's word, else the default of the role that owns it."""
    return settings_of(host).value(name, default)


def checked_setting(host: Host, name: str) -> Any:
    """The same, where a template made it: of the type that is declared, as what is written out is.

    Raises ClusterctlError (``settings.type``, ``settings.choice``, ``settings.value``).
    """
    value = setting(host, name)
    option = catalogue().get(name)
    if value is None or option is None:
        return value
    where = f"{host.name}: {name}"
    try:
        node = yaml.compose(json.dumps(value), Loader=yaml.SafeLoader)
    except (TypeError, ValueError, RecursionError, yaml.YAMLError):
        node = None
    if node is None:
        raise ClusterctlError(f"{name} is no value of YAML", code="settings.value", where=where)
    for problem in values.check(Path(name), option, node):
        raise ClusterctlError(problem.what, code=problem.code, where=where, hint=problem.hint)
    return value


def settings_of(host: Host) -> Variables:
    """All settings of a host, with the roles' defaults."""
    return Variables({**role_defaults(), **host.variables}, host.context, host.name)


def _node(host: Host, inventory: Inventory, suite: str) -> NodeSpec:
    mig = mig_of(host)
    return NodeSpec(
        name=host.name,
        address=host.address,
        gpu_count=declared_gpu_count(host),
        gpu_model=_text(host, "hardware_gpu_model"),
        profile=_text(host, "hardware_profile"),
        excluded=f"quarantined: {host.quarantined}" if host.quarantined is not None else "",
        settings=_settings(host, inventory, suite),
        memory_gib=_number(host, "hardware_memory_gib", code="inventory.memory"),
        rdma_ports=_number(host, "hardware_rdma_ports", code="inventory.rdma"),
        rdma_gbps=_number(host, "hardware_rdma_gbps", code="inventory.rdma"),
        leaf_switch=_text(host, "hardware_leaf_switch"),
        mig=mig.of_others,
        mig_by_gpu=mig.by_gpu,
        rails=_rails(host),
        nvme=_number(host, "hardware_nvme", code="inventory.nvme"),
    )


def _number(host: Host, name: str, *, code: str) -> int | None:
    """A whole number, None where it is not declared. Raises ClusterctlError where it is none."""
    value = setting(host, name)
    try:
        return None if value in (None, "") else int(value)
    except (TypeError, ValueError, OverflowError):
        raise ClusterctlError(
            f"{name} of {host.name} is {shortened(repr(value), 80)}, which is not a number",
            code=code,
            where=f"{host.name}: {name}",
        ) from None


def declared_gpu_count(host: Host) -> int | None:
    """The number of GPUs; None where it is not declared. Raises ClusterctlError where it is none."""
    return _number(host, "hardware_gpu_count", code="inventory.gpu-count")


def mig_of(host: Host) -> DeclaredMig:
    """The declared MIG layouts. Raises ClusterctlError where they are none."""
    return declared_mig(host.name, setting(host, "hardware_mig"), _text(host, "hardware_gpu_model"))


def _text(host: Host, name: str) -> str:
    return str(setting(host, name) or "")


def _image(host: Host, inventory: Inventory) -> str:
    if not setting(host, "training_image_digest") or not _is_wanted(host):
        return ""
    if not inventory.registry_hosts and not host.variables.get("registry_hostname"):
        return ""
    variables = Variables({**role_defaults(), **host.variables, "_image": IMAGE}, host.context, host.name)
    if not variables.value("registry_hostname") or not variables.value("training_image_repository"):
        return ""
    return str(variables.value("_image"))


def _is_wanted(host: Host) -> bool:
    return is_true(setting(host, "training_image_enabled", True))


@cache
def role_defaults() -> Mapping[str, Any]:
    """The defaults of all roles; their names carry the role's prefix, so none hides another."""
    merged: dict[str, Any] = {}
    for path in sorted((content_root() / "roles").glob("*/defaults/main.yml")):
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ClusterctlError(
                f"the role's defaults cannot be read: {' '.join(str(error).split())}",
                code="content.defaults",
                where=str(path),
                hint="Install clusterctl again.",
            ) from error
        merged.update(values or {})
    return merged
