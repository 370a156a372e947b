"""States that an operator, a package or an accident may leave a host of the lab in, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

BACKUP = "/root/drift-backup"
# One state in so many is two of them on the same host.
DOUBLE = 5


@dataclass(frozen=True)
class State:
    """``command`` brings a host into it, as root; ``undo`` ends it, whatever Ansible has done meanwhile."""

    name: str
    command: str
    undo: str
    double: bool = False

    def __add__(self, other: State) -> State:
        return State(
            f"{self.name} and {other.name}",
            f"{self.command}; {other.command}",
            f"{other.undo}; {self.undo}",
            double=True,
        )


GPU_FILES = (
    "/etc/apt/keyrings/clusterctl-cuda.gpg",
    "/etc/apt/keyrings/clusterctl-container-toolkit.asc",
    "/etc/apt/preferences.d/clusterctl-nvidia-driver",
    "/etc/apt/sources.list.d/clusterctl-container-toolkit.sources",
    "/etc/apt/sources.list.d/clusterctl-cuda.sources",
    "/etc/default/docker",
    "/etc/docker/certs.d/registry01:5000/ca.crt",
    "/etc/docker/daemon.json",
    "/etc/docker/key.json",
    "/etc/modprobe.d/clusterctl-nouveau.conf",
    "/etc/modprobe.d/nvidia.conf",
    "/etc/nvidia-container-runtime/config.toml",
    "/run/cdi/nvidia.yaml",
    "/usr/local/share/ca-certificates/clusterctl-lab.crt",
    "/var/lib/clusterctl/holds.json",
    "/var/lib/clusterctl/nvidia_driver.json",
)
REGISTRY_FILES = (
    "/etc/clusterctl/registry/ca.crt",
    "/etc/clusterctl/registry/clusterctl-registry-push.htpasswd",
    "/etc/clusterctl/registry/clusterctl-registry-push.yml",
    "/etc/clusterctl/registry/clusterctl-registry.yml",
    "/etc/clusterctl/registry/push.auth.json",
    "/etc/clusterctl/registry/tls.crt",
    "/etc/clusterctl/registry/tls.key",
    "/etc/containers/registries.conf",
    "/etc/docker/registry/config.yml",
    "/etc/systemd/system/clusterctl-registry-push.service",
    "/etc/systemd/system/clusterctl-registry.service",
)
# What is done to a file; {0} is its path.
CHANGES_OF_FILES: Mapping[str, str] = {
    "edited": "echo '# drift' >> {0}",
    "emptied": ": > {0}",
    "removed": "rm {0}",
    "closed": "chmod 0400 {0}",
    "writable": "chmod o+w {0}",
    "another's": "chown nobody {0}",
    "another group's": "chgrp daemon {0}",
    "a link to itself elsewhere": "mv {0} {0}.moved; ln -s {0}.moved {0}",
    "older": "touch -d 2020-01-01 {0}",
}
EDIT_JSON = (
    'python3 -c \'import json; p="{path}"; d=json.load(open(p)); {change}; json.dump(d, open(p, "w"))\''
)
DAEMON_JSON = {
    "without a runtime": 'd["runtimes"].pop("nvidia")',
    "with an operator's option": 'd["shutdown-timeout"] = 20',
    "with another runtime": 'd["runtimes"]["other"] = {"path": "/bin/true"}',
    "with another path of the runtime": 'd["runtimes"]["nvidia"]["path"] = "/bin/true"',
}
GPU_PACKAGES = (
    "libcuda1", "libnvidia-container1", "libnvidia-ml1", "nvidia-container-toolkit",
    "nvidia-container-toolkit-base", "nvidia-fabricmanager-580", "nvidia-kernel-support", "nvidia-modprobe",
    "nvidia-persistenced",
)  # fmt: skip
OTHER_VERSIONS = (
    "libnvidia-container1=1.17.8-1", "nvidia-container-toolkit=1.17.8-1", "nvidia-persistenced=580.105.08-1",
    "libnvidia-ml1=580.105.08-1",
)  # fmt: skip
GPU_UNITS = (
    "docker.service docker.socket", "containerd.service", "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
)  # fmt: skip
REGISTRY_UNITS = ("clusterctl-registry.service", "clusterctl-registry-push.service")
IMAGE = "$(sudo docker images --quiet | head -1)"
BLOBS = "/var/lib/clusterctl/registry/docker/registry/v2"
GPU_ALONE = (
    State("the image is gone", "docker image prune --all --force", ":"),
    State("the image has one more tag", f"docker tag {IMAGE} other:tag", "docker rmi other:tag"),
    State("a container runs", f"docker run -d --name drift {IMAGE} sleep 900", "docker rm -f drift"),
    State("a container has ended", f"docker run --name drift {IMAGE} true", "docker rm -f drift"),
    State("a module is not loaded", "modprobe nvidia_uvm; rmmod nvidia_uvm", "modprobe nvidia_uvm"),
    State("no module is loaded", "modprobe nvidia_uvm; "
          "systemctl stop nvidia-persistenced nvidia-fabricmanager; rmmod nvidia_uvm nvidia",
          "modprobe -a nvidia nvidia_uvm; systemctl start nvidia-persistenced nvidia-fabricmanager"),
    State("persistence mode is off", "nvidia-smi -pm 0", "nvidia-smi -pm 1"),
    State("Docker was restarted", "systemctl restart docker", ":"),
    State("a package of the system is held", "apt-mark hold bash", "apt-mark unhold bash"),
    State("the package lists are gone", "rm -rf /var/lib/apt/lists/*", "apt-get -qq update"),
    State("an operator's drop-in for Docker", "mkdir -p /etc/systemd/system/docker.service.d; "
          "printf '[Service]\\nEnvironment=X=1\\n' > /etc/systemd/system/docker.service.d/x.conf; "
          "systemctl daemon-reload", "rm -rf /etc/systemd/system/docker.service.d; systemctl daemon-reload"),
    State("a proxy that is no longer declared", "mkdir -p /etc/systemd/system/docker.service.d; "
          "printf '[Service]\\n' > /etc/systemd/system/docker.service.d/clusterctl-proxy.conf",
          "rm -rf /etc/systemd/system/docker.service.d; systemctl daemon-reload"),
)  # fmt: skip
REGISTRY_ALONE = (
    State("a tag is gone", f"rm -rf {BLOBS}/repositories/library/paddle/_manifests", ":"),
    State("a layer is gone", f"rm -rf {BLOBS}/blobs/sha256/f1", ":"),
    State("the package's own service may start", "rm /etc/systemd/system/docker-registry.service",
          "ln -sf /dev/null /etc/systemd/system/docker-registry.service"),
    State("the registry's package is gone", "dpkg --remove --force-depends docker-registry", ":"),
    State("skopeo is gone", "dpkg --remove --force-depends skopeo", ":"),
    State("the listener was killed", "systemctl kill --signal KILL clusterctl-registry.service", ":"),
)  # fmt: skip
ANYWHERE = (
    State("an operator's file", "echo x > /etc/motd.drift", "rm -f /etc/motd.drift"),
    State("another name in /etc/hosts", "echo '192.0.2.9 other' >> /etc/hosts", ":"),
    State("another user", "userdel -f drifted; useradd drifted", "userdel drifted"),
    State("the system calls itself otherwise",
          f"mkdir -p {BACKUP}; [ -e {BACKUP}/os ] || cp /etc/os-release {BACKUP}/os; "
          "sed -i --follow-symlinks 's/^PRETTY_NAME=.*/PRETTY_NAME=Drifted/' /etc/os-release",
          f"cat {BACKUP}/os > /etc/os-release"),
    State("nothing has changed", ":", ":"),
)  # fmt: skip


def of_files(paths: Sequence[str]) -> Iterator[State]:
    """Every change of every file; a change of JSON that is not JSON would not be drift but damage."""
    for path in paths:
        undo = f"rm -rf {path} {path}.moved; cp -a {BACKUP}{path} {path}"
        for name, change in CHANGES_OF_FILES.items():
            if not (path.endswith("daemon.json") and name in ("edited", "emptied")):
                yield State(f"{path} is {name}", f"{_backup(path)}; {change.format(path)}", undo)
    if "/etc/docker/daemon.json" in paths:
        path = "/etc/docker/daemon.json"
        for name, change in DAEMON_JSON.items():
            command = EDIT_JSON.replace("{path}", path).replace("{change}", change)
            yield State(f"{path} is {name}", f"{_backup(path)}; {command}", f"cp -a {BACKUP}{path} {path}")


def _backup(path: str) -> str:
    """Keeps the first one: the second state of two must not keep what the first has left."""
    kept = f"{BACKUP}{path}"
    return f"[ -e {kept} ] || {{ mkdir -p $(dirname {kept}) && cp -a {path} {kept}; }}"


def of_packages() -> Iterator[State]:
    """Packages that are not held, not there, or of another version."""
    for package in GPU_PACKAGES:
        yield State(f"{package} is not held", f"apt-mark unhold {package}", f"apt-mark hold {package}")
        keep, undo = _package(package)
        yield State(f"{package} is gone", f"{keep}; dpkg --remove --force-depends {package}", undo)
    for other in OTHER_VERSIONS:
        keep, undo = _package(other.partition("=")[0])
        fetch = f"cd /root && rm -f *.deb && apt-get -qq download {other}"
        yield State(f"{other} is installed", f"{keep}; {fetch} && dpkg --install --force-all *.deb", undo)


def _package(package: str) -> tuple[str, str]:
    """How to keep which version there is, and how to have it again."""
    file = f"{BACKUP}/{package}"
    options = "--fix-broken --allow-downgrades --allow-change-held-packages"
    query = "dpkg-query -W -f '${Package}=${Version}'"
    return (
        f"mkdir -p {BACKUP}; [ -e {file} ] || {query} {package} > {file}",
        f"apt-get -qq -y {options} install $(cat {file}) && apt-mark hold {package}",
    )


def of_units(units: Sequence[str]) -> Iterator[State]:
    """Units that do not run, or will not after a boot."""
    for unit in units:
        undo = f"systemctl unmask {unit}; systemctl enable --now {unit}"
        yield State(f"{unit} is stopped", f"systemctl stop {unit}", undo)
        yield State(f"{unit} is disabled", f"systemctl disable {unit}", undo)
        yield State(
            f"{unit} is masked", f"systemctl mask --runtime {unit}", f"systemctl unmask --runtime {unit}"
        )


FAMILIES: Mapping[str, tuple[tuple[State, ...], ...]] = {
    "gpu": (
        tuple(of_files(GPU_FILES)),
        tuple(of_packages()),
        tuple(of_units(GPU_UNITS)),
        GPU_ALONE,
        ANYWHERE,
    ),
    "registry": (tuple(of_files(REGISTRY_FILES)), tuple(of_units(REGISTRY_UNITS)), REGISTRY_ALONE, ANYWHERE),
}


def draw_state(role: str, seed: str) -> State:
    """Returns the state that a seed draws for a host of a role: of any family alike, some of them double."""
    chosen = random.Random(seed)  # noqa: S311 - a choice that can be repeated, and no secret
    state = chosen.choice(chosen.choice(FAMILIES[role]))
    if chosen.randrange(DOUBLE) == 0:
        state += chosen.choice(chosen.choice(FAMILIES[role]))
    return state
