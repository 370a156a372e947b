"""A mapping of variables: are its names known, and its values allowed?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clusterctl.cluster import ssh_options
from clusterctl.cluster.public_keys import public_key
from clusterctl.cluster.settings import values
from clusterctl.cluster.settings.booleans import FALSE
from clusterctl.cluster.settings.connection import CONNECTION_VARIABLES, connection_variable
from clusterctl.cluster.settings.options import SITE_PREFIX, Option, catalogue
from clusterctl.cluster.settings.problem import SettingsProblem, at
from clusterctl.cluster.settings.yaml_nodes import entries
from clusterctl.cluster.suggestion import did_you_mean

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# These reach ssh's argument list: a word that starts with a dash would be an option of it.
REACH_SSH = ("ansible_host", "ansible_user", "ansible_ssh_host", "ansible_ssh_user")
HOST_KEY_CHECKING = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")
# The least that a number may be; its description says so, too.
LEAST = {
    "harbor_jobservice_max_hours": 24,
    "harbor_upload_purging_age_h": 2,
    "harbor_upload_purging_interval_h": 2,
    "harbor_min_free_gb": 0,
    "harbor_database_max_open_conns": 0,
    "harbor_backup_keep": 0,
    "preflight_gpu_count": -1,
    "training_image_min_free_gb": 0,
    "training_image_room_factor": 0,
    "training_image_link_mbps": 0,
    "training_image_registry_link_mbps": 0,
}
OWN_NAMES = f"A variable of your own starts with {SITE_PREFIX}."
NEARLY_THE_SAME = 0.9
KEY_FINGERPRINTS = "_repository_key_fingerprints"
# As `gpg --show-keys` prints it, with or without blanks.
FINGERPRINT = re.compile(r"([0-9A-Fa-f]{4} *){10}")


def check(file: Path, node: MappingNode) -> Iterator[SettingsProblem]:
    """What is wrong with the variables in one mapping."""
    known = catalogue()
    for key, value in entries(node):
        option = known.get(key.value) or connection_variable(key.value)
        if option is not None:
            yield from values.check(file, option, value, key.value)
            yield from _below_least(file, option, value)
            yield from _reaching_ssh(file, option, value)
            yield from _shell_words(file, option, value)
            yield from _against_host_keys(file, option, value)
            yield from _fingerprints(file, option, value)
            yield from _bundle_signers(file, option, value)
        else:
            yield from _unknown(file, key)


def names(node: MappingNode) -> set[str]:
    """The variables that one mapping sets."""
    return {key.value for key, _ in entries(node)}


def _unknown(file: Path, key: ScalarNode) -> Iterator[SettingsProblem]:
    name = key.value
    everything = [*catalogue(), *CONNECTION_VARIABLES]
    if not NAME.fullmatch(name):
        hint = "Names are letters, digits and underscores, and start with no digit."
        yield at(file, key, f"{name!r} is not a valid setting name", hint, "settings.name")
    elif name.startswith(SITE_PREFIX):
        site = [word for word in everything if word.startswith(SITE_PREFIX)]
        if near := did_you_mean(name, site, NEARLY_THE_SAME):
            yield at(file, key, f"unknown setting {name}", near, "settings.unknown")
    else:
        hint = did_you_mean(name, everything) or OWN_NAMES
        yield at(file, key, f"unknown setting {name}", hint, "settings.unknown")


def _against_host_keys(file: Path, option: Option, value: Node) -> Iterator[SettingsProblem]:
    """Host keys are always checked: a setting that says otherwise would be respected by nobody."""
    if option.name == "ansible_ssh_args":
        hint = "Write what ssh needs, a jump host for one, into ansible_ssh_common_args."
        yield at(file, value, "ansible_ssh_args is set by clusterctl", hint, "settings.host-keys")
    off = isinstance(value, ScalarNode) and value.value.strip().lower() in FALSE
    if option.name in HOST_KEY_CHECKING and off:
        hint = "Remove it. Pin the keys of new hosts with: clusterctl hosts scan"
        yield at(file, value, f"{option.name} must not be false", hint, "settings.host-keys")


def _below_least(file: Path, option: Option, value: Node) -> Iterator[SettingsProblem]:
    least = LEAST.get(option.name)
    if least is None or not isinstance(value, ScalarNode) or not values.NUMBER.fullmatch(value.value.strip()):
        return
    if float(value.value) < least:
        what = f"{option.name} must be {least} or more, not {value.value.strip()}"
        yield at(file, value, what, option.description, "settings.value")


def _reaching_ssh(file: Path, option: Option, value: Node) -> Iterator[SettingsProblem]:
    if option.name not in REACH_SSH or not isinstance(value, ScalarNode) or "{" in value.value:
        return
    text = value.value
    kind = "address" if option.name.endswith("host") else "user name"
    if not text or not ssh_options.is_word(text):
        yield at(
            file,
            value,
            f"{option.name} is not {'an' if kind == 'address' else 'a'} {kind}: {text!r}",
            "Write a name or an IP address." if kind == "address" else "Write a user name.",
            "settings.value",
        )


def _shell_words(file: Path, option: Option, value: Node) -> Iterator[SettingsProblem]:
    if option.name not in ssh_options.SHELL_WORDS or not isinstance(value, ScalarNode) or "{" in value.value:
        return
    try:
        ssh_options.split_words(value.value)
    except ValueError as error:
        what = f"{option.name} {error}"
        yield at(file, value, what, ssh_options.SHELL_WORDS_HINT, "settings.value")


def _bundle_signers(file: Path, option: Option, value: Node) -> Iterator[SettingsProblem]:
    if option.name != "images_bundle_signers" or not isinstance(value, SequenceNode):
        return
    for item in value.value:
        if isinstance(item, ScalarNode) and "{" not in item.value and public_key(item.value) is None:
            hint = "Write the line of a .pub file: ssh-ed25519 AAAAC3... release@site"
            yield at(
                file, item, f"an entry of {option.name} is not an SSH public key", hint, "settings.value"
            )


def _fingerprints(file: Path, option: Option, value: Node) -> Iterator[SettingsProblem]:
    """Keys are compared by their whole fingerprints: a short key ID is easily made again."""
    if not option.name.endswith(KEY_FINGERPRINTS) or not isinstance(value, SequenceNode):
        return
    for item in value.value:
        if isinstance(item, ScalarNode) and "{" not in item.value and not FINGERPRINT.fullmatch(item.value):
            hint = "`gpg --show-keys FILE` prints the fingerprints of a key file."
            what = f"{item.value!r} in {option.name} is not a fingerprint of 40 hexadecimal digits"
            yield at(file, item, what, hint, "settings.value")
