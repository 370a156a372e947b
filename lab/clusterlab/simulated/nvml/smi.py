"""The command line of nvidia-smi."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from . import mig, mig_tables, query, tables
from . import node as nvml

CORRUPT_INFOROM = 14  # the exit code of nvidia-smi, which prints everything all the same


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        word = message.rsplit(" ", 1)[-1]
        text = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."
        raise nvml.NvmlError(f"{text}\n({word})", 2)


def main(arguments: list[str], library_version: str, paths: nvml.Paths | None = None) -> int:
    """Run nvidia-smi; prints to standard output and returns the exit code."""
    try:
        text = answer(arguments, library_version, paths)
    except nvml.NvmlError as error:
        sys.stdout.write(f"{error}\n")
        return error.code
    sys.stdout.write(text)
    return CORRUPT_INFOROM if "WARNING: infoROM is corrupted" in text else 0


def answer(arguments: list[str], library_version: str, paths: nvml.Paths | None = None) -> str:
    """What nvidia-smi prints for those arguments; raises NvmlError for what it refuses."""
    if arguments[:1] in (["--version"], ["version"]):
        return _versions(library_version, paths)
    if arguments[:1] in (["-h"], ["--help"]):
        return f"NVIDIA System Management Interface -- v{library_version} (simulated by clusterlab)\n"
    command = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    handlers = {"topo": _topo, "nvlink": _nvlink, "mig": _mig, "": _query}
    if command not in handlers:
        raise nvml.NvmlError(f"Invalid combination of input arguments: {command}", 2)
    options = _parse(command, arguments[1:] if command else arguments)
    node = nvml.connect(library_version, paths)
    gpus = _selected(node, options.id)
    text = handlers[command](node, gpus, options)
    corrupted = [gpu for gpu in gpus if gpu.get("inforom_corrupted")]
    return text + "".join(
        f"WARNING: infoROM is corrupted at gpu {gpu['pci_address'].upper()}\n" for gpu in corrupted
    )


def _parse(command: str, arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="nvidia-smi", add_help=False, allow_abbrev=False)
    parser.add_argument("-i", "--id", default="")
    if command == "topo":
        parser.add_argument("-m", "--matrix", action="store_true")
        parser.add_argument("-p2p", dest="p2p")
    elif command == "nvlink":
        parser.add_argument("-s", "--status", action="store_true")
        parser.add_argument("-e", "--errorcounters", action="store_true")
        parser.add_argument("-R", "--remotelinkinfo", action="store_true")
        parser.add_argument("-p", "--pcibusid", action="store_true")
        parser.add_argument("-c", "--capabilities", action="store_true")
    elif command == "mig":
        parser.add_argument("-lgip", "--list-gpu-instance-profiles", dest="lgip", action="store_true")
        parser.add_argument(
            "-lgipp", "--list-gpu-instance-possible-placements", dest="lgipp", action="store_true"
        )
        parser.add_argument("-lgi", "--list-gpu-instances", dest="lgi", action="store_true")
        parser.add_argument("-lci", "--list-compute-instances", dest="lci", action="store_true")
        parser.add_argument("-cgi", "--create-gpu-instance", dest="cgi")
        parser.add_argument("-dgi", "--destroy-gpu-instance", dest="dgi", action="store_true")
        parser.add_argument("-dci", "--destroy-compute-instance", dest="dci", action="store_true")
        parser.add_argument("-cci", "--create-compute-instance", dest="cci", action="store_true")
        parser.add_argument("-gi", "--gpu-instance-id", dest="gi", default="")
        parser.add_argument("-C", "--default-compute-instance", dest="default", action="store_true")
    else:
        parser.add_argument("-L", "--list-gpus", action="store_true")
        parser.add_argument("-q", "--query", action="store_true")
        parser.add_argument("-x", "--xml-format", action="store_true")
        parser.add_argument("-d", "--display")
        parser.add_argument("-f", "--filename")
        parser.add_argument("-pm", "--persistence-mode", dest="pm")
        parser.add_argument("-mig", "--multi-instance-gpu", dest="mig")
        parser.add_argument("-r", "--gpu-reset", action="store_true")
        parser.add_argument("--query-gpu")
        parser.add_argument("--query-compute-apps", "--query-apps")
        parser.add_argument("--format", default="")
    return parser.parse_args(arguments)


def _selected(node: nvml.Node, wanted: str) -> list[dict[str, Any]]:
    if not wanted:
        return node.gpus
    found = []
    for word in wanted.split(","):
        match = [gpu for gpu in node.gpus if word.lower() in _names(gpu)]
        if not match:
            raise nvml.NvmlError("No devices were found", 6)
        found += match
    return found


def _names(gpu: dict[str, Any]) -> set[str]:
    return {
        str(gpu["index"]),
        gpu["uuid"].lower(),
        gpu["serial"],
        gpu["pci_address"],
        nvml.bus_id(gpu).lower(),
    }


def _query(node: nvml.Node, gpus: list[dict[str, Any]], options: argparse.Namespace) -> str:
    if options.list_gpus:
        text = tables.listing(node, gpus)
        if any(gpu["state"] == "lost" for gpu in gpus):
            raise nvml.NvmlError(text.rstrip("\n"), 15)
        return text
    nvml.require_reachable(gpus)
    for flag, change in (("pm", _persistence), ("mig", _mig_mode)):
        value = getattr(options, flag)
        if value is not None:
            return change(node, gpus, value)
    if options.gpu_reset:
        return _reset(node, gpus)
    if options.query_gpu is not None or options.query_compute_apps is not None:
        return _csv(node, gpus, options)
    if options.query:
        from . import report  # noqa: PLC0415 - the long report alone needs it

        return report.xml(node, gpus) if options.xml_format else report.text(node, gpus)
    return tables.summary(node, gpus)


def _csv(node: nvml.Node, gpus: list[dict[str, Any]], options: argparse.Namespace) -> str:
    formats = set(_words(options.format))
    if "csv" not in formats:
        raise nvml.NvmlError("Output format must be specified: --format=csv", 2)
    if options.query_gpu is not None:
        return query.gpus_csv(node, gpus, _words(options.query_gpu), formats)
    return query.compute_apps_csv(node, gpus, _words(options.query_compute_apps), formats)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _persistence(node: nvml.Node, gpus: list[dict[str, Any]], value: str) -> str:
    enabled = _switch(value)
    state = node.state("persistence.json")
    lines = []
    for gpu in gpus:
        word = "Enabled" if enabled else "Disabled"
        same = "is already " if state.get(gpu["uuid"], False) == enabled else ""
        verb = f"Persistence mode {same}{word} for GPU {nvml.bus_id(gpu)}."
        lines.append(verb if same else f"{word} persistence mode for GPU {nvml.bus_id(gpu)}.")
        state[gpu["uuid"]] = enabled
    node.save_state("persistence.json", state)
    return "".join(f"{line}\n" for line in [*lines, "All done."])


def _mig_mode(node: nvml.Node, gpus: list[dict[str, Any]], value: str) -> str:
    return mig.set_mode(node, gpus, enabled=_switch(value))


def _switch(value: str) -> bool:
    if value.lower() not in ("0", "1", "disabled", "enabled"):
        raise nvml.NvmlError(f"Invalid value: {value}", 2)
    return value.lower() in ("1", "enabled")


def _reset(node: nvml.Node, gpus: list[dict[str, Any]]) -> str:
    lines = []
    for gpu in gpus:
        if node.mig_clients(gpu):
            raise nvml.NvmlError(
                f"GPU {nvml.bus_id(gpu)} is currently in use by one or more other processes "
                "(e.g. Fabric Manager, CUDA application, graphics application such as an X server, or a "
                "monitoring application such as another instance of nvidia-smi). Please first kill all "
                "processes using this GPU and all compute applications running in the system.",
                19,
            )
        if not node.can_reset_alone():
            raise nvml.NvmlError(f"Resetting GPU {nvml.bus_id(gpu)} is not supported.", 3)
        node.save_mig_mode(gpu, node.mig_mode_pending(gpu))
        node.save_mig_instances(gpu, [])
        lines.append(f"GPU {nvml.bus_id(gpu)} was successfully reset.")
    return "".join(f"{line}\n" for line in [*lines, "All done."])


def _topo(node: nvml.Node, gpus: list[dict[str, Any]], options: argparse.Namespace) -> str:
    if options.p2p in ("r", "w", "n"):
        return tables.peer_access(node, gpus, options.p2p)
    if not options.matrix:
        raise nvml.NvmlError("topo: only -m, and -p2p r, w and n are simulated", 2)
    return tables.topology(node, gpus)


def _nvlink(node: nvml.Node, gpus: list[dict[str, Any]], options: argparse.Namespace) -> str:
    nvml.require_reachable(gpus)
    if options.errorcounters:
        return tables.nvlink_errors(node, gpus)
    if options.remotelinkinfo or options.pcibusid:
        return tables.nvlink_remotes(node, gpus)
    return tables.nvlink_status(node, gpus)


def _mig(node: nvml.Node, gpus: list[dict[str, Any]], options: argparse.Namespace) -> str:
    nvml.require_reachable(gpus)
    lists = {"lgip": mig_tables.profiles, "lgipp": mig_tables.placements, "lgi": mig_tables.gpu_instances,
             "lci": mig_tables.compute_instances}  # fmt: skip
    changes = {"cci": mig.create_compute, "dci": mig.destroy_compute, "dgi": mig.destroy}
    for option, table in lists.items():
        if getattr(options, option):
            return table(node, gpus)
    if options.cgi:
        return mig.create(node, gpus, _words(options.cgi), compute=options.default)
    for option, change in changes.items():
        if getattr(options, option):
            return change(node, gpus, [int(word) for word in options.gi.split(",") if word])
    raise nvml.NvmlError("mig: give one of -lgip, -lgipp, -lgi, -lci, -cgi, -cci, -dci, -dgi", 2)


def _versions(library_version: str, paths: nvml.Paths | None) -> str:
    node = nvml.connect(library_version, paths)
    return (
        f"NVIDIA-SMI version  : {node.driver_version} (simulated)\n"
        f"NVML version        : {'.'.join(node.driver_version.split('.')[:2])}\n"
        f"DRIVER version      : {node.driver_version}\n"
        f"CUDA Version        : {node.cuda_version}\n"
    )
