# ruff: noqa: T201 - these are programs, and this is what they print
"""lsmod, modprobe, rmmod, modinfo, depmod: kmod's options, texts and exit codes over the simulated kernel."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from . import kernel, state

# The distribution's own kmod, where it is installed: for modules that are none of ours.
REAL = state.ROOT / "usr/bin/kmod"
CONFIGURATION = ("etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d")


def lsmod() -> int:
    """Print the loaded modules."""
    print("Module                  Size  Used by")
    for name in reversed(list(kernel.loaded())):
        users = ",".join(kernel.dependents(name))
        count = kernel.reference_count(name)
        print(f"{name:<19} {kernel.SIZES.get(name, 16384):>8}  {count}{' ' + users if users else ''}")
    return 0


def modprobe(arguments: list[str]) -> int:
    """Load or remove modules with what they depend on."""
    parser = argparse.ArgumentParser(prog="modprobe", add_help=False)
    parser.add_argument("-r", "--remove", action="store_true")
    parser.add_argument("--remove-holders", action="store_true")
    parser.add_argument("-a", "--all", action="store_true")
    parser.add_argument("-b", "--use-blacklist", action="store_true")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-n", "--dry-run", "--show", action="store_true")
    parser.add_argument("-f", "--force", action="store_true")
    parser.add_argument("-i", "--ignore-install", action="store_true")
    parser.add_argument("-s", "--syslog", action="store_true")
    parser.add_argument("-c", "--showconfig", action="store_true")
    parser.add_argument("-D", "--show-depends", action="store_true")
    parser.add_argument("--first-time", action="store_true")
    parser.add_argument("-V", "--version", action="store_true")
    parser.add_argument("names", nargs="*")
    options, _ = parser.parse_known_args(arguments)
    if options.version:
        print("kmod version 30 (simulated by clusterlab)")
        return 0
    if options.showconfig:
        print("\n".join(configuration()))
        return 0
    if not options.names:
        print("modprobe: ERROR: missing parameters. See -h.", file=sys.stderr)
        return 1
    names = options.names if options.all or options.remove else options.names[:1]
    return max(_modprobe_one(kernel.canonical(name), options) for name in names)


def _modprobe_one(name: str, options: argparse.Namespace) -> int:  # noqa: PLR0911 - kmod's own cases
    if options.remove:
        return _remove(name, options)
    if options.use_blacklist and name in blacklisted():
        return 0
    if options.show_depends or options.dry_run:
        path = kernel.module_file(name)
        if path is None and not _built_in(name):
            return _fatal(f"Module {name} not found in directory /lib/modules/{kernel.release()}", options)
        if options.show_depends or options.verbose:
            print(f"insmod {path}" if path else f"builtin {name}")
        return 0
    if options.first_time and name in kernel.loaded():
        return _fatal(f"could not insert '{name}': Module already in kernel", options, "ERROR")
    if _built_in(name):
        return 0
    disabled = install_command(name)
    if disabled is not None and not options.ignore_install:
        ending = disabled.split()[0].rsplit("/", 1)[-1]
        return 0 if ending == "true" else 1
    try:
        kernel.load(name)
    except kernel.ModuleError as error:
        if str(error).startswith("Module "):
            return _fatal(str(error), options)
        return _fatal(f"could not insert '{name}': {error}", options, "ERROR")
    return 0


def _remove(name: str, options: argparse.Namespace) -> int:
    if name not in kernel.loaded():
        if options.first_time:
            return _fatal(f"Module {name} is not in kernel.", options)
        return 0
    if options.remove_holders:
        for user in kernel.dependents(name):
            _remove(user, options)
    try:
        kernel.unload(name)
    except kernel.ModuleError:
        return _fatal(f"Module {name} is in use.", options)
    for dependency in kernel.DEPENDS.get(name, ()):
        if dependency in kernel.loaded() and kernel.reference_count(dependency) == 0:
            _remove(dependency, options)
    return 0


def rmmod(arguments: list[str]) -> int:
    """Remove modules that nothing holds."""
    names = [kernel.canonical(Path(item).stem) for item in arguments if not item.startswith("-")]
    if not names:
        print("rmmod: ERROR: missing module name.", file=sys.stderr)
        return 1
    code = 0
    for name in names:
        try:
            kernel.unload(name)
        except kernel.ModuleError as error:
            print(f"rmmod: ERROR: Module {name} {error}", file=sys.stderr)
            code = 1
    return code


def insmod(arguments: list[str]) -> int:
    """Load the module of that file."""
    if not arguments:
        print("insmod: ERROR: missing filename.", file=sys.stderr)
        return 1
    try:
        kernel.load(Path(arguments[0]).stem)
    except kernel.ModuleError as error:
        print(f"insmod: ERROR: could not insert module {arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


def modinfo(arguments: list[str]) -> int:
    """Print what a module's file says of itself."""
    parser = argparse.ArgumentParser(prog="modinfo", add_help=False)
    parser.add_argument("-F", "--field")
    parser.add_argument("-k", "--set-version")
    parser.add_argument("-n", "--filename", action="store_true")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args(arguments)
    code = 0
    for name in options.names:
        given = Path(name)
        path = given if given.suffix == ".ko" else kernel.module_file(name, options.set_version)
        if path is None or not path.exists():
            print(f"modinfo: ERROR: Module {name} not found.", file=sys.stderr)
            code = 1
            continue
        if not kernel.module_info(path) and REAL.exists():
            return _real("modinfo", arguments)
        fields = {"filename": str(path), **kernel.module_info(path)}
        field = "filename" if options.filename else options.field
        if field:
            if field in fields:
                print(fields[field])
            continue
        for key, value in fields.items():
            print(f"{key + ':':<16}{value}")
    return code


def depmod(arguments: list[str]) -> int:
    """Index real modules; simulated ones are found by looking, and kmod would complain of each."""
    simulated = any(kernel.module_info(path) for path in (state.ROOT / "lib/modules").rglob("*.ko"))
    return 0 if simulated or not REAL.exists() else _real("depmod", arguments)


def _real(name: str, arguments: list[str]) -> int:
    return subprocess.run([name, *arguments], executable=REAL, check=False).returncode


def configuration() -> list[str]:
    """The lines of modprobe's configuration, comments left out."""
    files: dict[str, Path] = {}
    for directory in CONFIGURATION:
        for path in sorted((state.ROOT / directory).glob("*.conf")):
            files.setdefault(path.name, path)
    lines = [line.strip() for name in sorted(files) for line in files[name].read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def blacklisted() -> set[str]:
    """Modules that are not to be loaded by themselves."""
    words = [line.split() for line in configuration()]
    return {kernel.canonical(word[1]) for word in words if word[0] == "blacklist" and len(word) > 1}


def install_command(name: str) -> str | None:
    """The command that the configuration runs instead of loading that module."""
    for line in configuration():
        words = line.split(None, 2)
        if words[0] == "install" and len(words) == 3 and kernel.canonical(words[1]) == name:
            return words[2]
    return None


def _built_in(name: str) -> bool:
    simulated = (*kernel.NVIDIA_MODULES, "nouveau")
    return name not in simulated and (kernel.SYS_MODULE / name).is_dir()


def _fatal(text: str, options: argparse.Namespace, level: str = "FATAL") -> int:
    if not options.quiet:
        print(f"modprobe: {level}: {text}", file=sys.stderr)
    return 1
