"""nvidia-ctk: `runtime configure`, `cdi generate`, `cdi list`, `--version`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from . import cdi, edits

DOCKER = Path("/etc/docker/daemon.json")
CONTAINERD = Path("/etc/containerd/conf.d/99-nvidia.toml")
RUNTIME = "/usr/bin/nvidia-container-runtime"


def main(arguments: list[str], version: str) -> int:
    """Run nvidia-ctk; returns the exit code."""
    if arguments[:1] in (["--version"], ["-v"]):
        sys.stdout.write(f"NVIDIA Container Toolkit CLI version {version} (simulated)\ncommit: simulated\n")
        return 0
    parser = argparse.ArgumentParser(prog="nvidia-ctk", allow_abbrev=False)
    groups = parser.add_subparsers(dest="group", required=True)
    runtime = groups.add_parser("runtime").add_subparsers(dest="command", required=True)
    configure = runtime.add_parser("configure", allow_abbrev=False)
    configure.add_argument("--runtime", default="docker", choices=["docker", "containerd"])
    configure.add_argument("--config", type=Path)
    configure.add_argument("--drop-in-config", type=Path)
    configure.add_argument("--nvidia-runtime-name", default="nvidia")
    configure.add_argument("--nvidia-runtime-path", default="nvidia-container-runtime")
    configure.add_argument("--set-as-default", "--nvidia-set-as-default", action="store_true")
    configure.add_argument("--cdi.enabled", "--cdi.enable", dest="cdi", action="store_true")
    configure.add_argument("--dry-run", action="store_true")
    specifications = groups.add_parser("cdi").add_subparsers(dest="command", required=True)
    generate = specifications.add_parser("generate", allow_abbrev=False)
    generate.add_argument("--output", type=Path)
    generate.add_argument("--format", default="yaml", choices=["yaml", "json"])
    specifications.add_parser("list", allow_abbrev=False)
    options = parser.parse_args(arguments)
    commands = {"configure": _configure, "generate": _generate, "list": _list}
    return commands[options.command](options)


def _configure(options: argparse.Namespace) -> int:
    if options.runtime == "containerd":
        target = options.drop_in_config or CONTAINERD
        text = containerd_config(options.nvidia_runtime_name, default=options.set_as_default)
    else:
        target = options.config or DOCKER
        _log(f"Loading config from {target}")
        existing = json.loads(target.read_text() or "{}") if target.exists() else {}
        text = json.dumps(docker_config(existing, options), indent=4) + "\n"
    if options.dry_run:
        sys.stdout.write(text)
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    _log(f"Wrote updated config to {target}")
    _log(f"It is recommended that {options.runtime} daemon be restarted.")
    return 0


def docker_config(existing: dict[str, object], options: argparse.Namespace) -> dict[str, object]:
    """daemon.json with NVIDIA's runtime in it and everything else as it was."""
    runtimes = existing.get("runtimes")
    merged = dict(runtimes) if isinstance(runtimes, dict) else {}
    merged[options.nvidia_runtime_name] = {"args": [], "path": options.nvidia_runtime_path}
    config = {**existing, "runtimes": merged}
    if options.set_as_default:
        config["default-runtime"] = options.nvidia_runtime_name
    if options.cdi:
        features = existing.get("features")
        config["features"] = {**(features if isinstance(features, dict) else {}), "cdi": True}
    return config


def containerd_config(name: str, *, default: bool) -> str:
    """A drop-in of containerd's configuration, version 2."""
    plugin = 'plugins."io.containerd.grpc.v1.cri".containerd'
    chosen = f'  default_runtime_name = "{name}"\n' if default else ""
    return (
        f"version = 2\n\n[{plugin}]\n{chosen}\n[{plugin}.runtimes.{name}]\n"
        f'  runtime_type = "io.containerd.runc.v2"\n\n[{plugin}.runtimes.{name}.options]\n'
        f'  BinaryName = "{RUNTIME}"\n'
    )


def _generate(options: argparse.Namespace) -> int:
    try:
        document = cdi.specification()
    except edits.ToolkitError as error:
        sys.stderr.write(f"ERRO[0000] failed to generate CDI spec: failed to initialize NVML: {error}\n")
        return 1
    text = cdi.to_yaml(document) if options.format == "yaml" else json.dumps(document, indent=2)
    if options.output is None:
        sys.stdout.write(f"---\n{text}\n" if options.format == "yaml" else f"{text}\n")
        return 0
    options.output.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.output.with_name(f".{options.output.name}.new")
    temporary.write_text(f"---\n{text}\n" if options.format == "yaml" else f"{text}\n")
    temporary.replace(options.output)
    _log(f"Generated CDI spec with version {document['cdiVersion']}")
    return 0


def _list(_options: argparse.Namespace) -> int:
    found = cdi.names()
    _log(f"Found {len(found)} CDI devices")
    sys.stdout.write("".join(f"{name}\n" for name in found))
    return 0


def _log(message: str) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stderr.write(f'time="{moment}" level=info msg="{message}"\n')
