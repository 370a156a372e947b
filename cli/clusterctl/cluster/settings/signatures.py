"""`images_signatures` and `images_signatures_lookaside`: can the policy be used, and its keys be read?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from clusterctl.cluster.settings.problem import SettingsProblem, at
from clusterctl.cluster.settings.yaml_nodes import ANSIBLE_TAGS, TAG, entries
from clusterctl.cluster.signature_keys import UnusableKeyError, keys
from clusterctl.cluster.signature_lookaside import NAME as LOOKASIDE
from clusterctl.cluster.signature_lookaside import UnusableLocationError, require_location, require_scope
from clusterctl.cluster.signature_policy import (
    CODE,
    NAME,
    KeyRequirement,
    SignaturePolicy,
    SignedBy,
    SigstoreSigned,
    problem,
)
from clusterctl.cluster.templating import is_template

KEY_HINT = "A public key is a file of the cluster directory, such as keys/cosign.pub, or base64 as keyData."


def check(file: Path, variables: MappingNode, root: Path) -> Iterator[SettingsProblem]:
    """What is wrong with the signature settings in one mapping; keys are looked for below ``root``."""
    for key, value in entries(variables):
        if not isinstance(value, MappingNode) or not value.value:
            continue
        if key.value == NAME and not _is_templated(value):
            yield from _policy(file, value, root)
        elif key.value == LOOKASIDE:
            yield from _locations(file, value)


def _policy(file: Path, node: MappingNode, root: Path) -> Iterator[SettingsProblem]:
    try:
        policy = SignaturePolicy.model_validate(_plain(node))
    except ValidationError as error:
        path, sentence, hint = problem(error)
        yield at(file, _node_at(node, path), f"{NAME}: {sentence}", hint, CODE)
        return
    for scope, number, requirement in _keyed(policy):
        path = ("default",) if scope is None else ("transports", "docker", scope)
        here = _node_at(node, (*path, number))
        try:
            list(keys(requirement, root))
        except UnusableKeyError as error:
            yield at(file, here, f"{NAME}: {error}", KEY_HINT, CODE)


def _keyed(policy: SignaturePolicy) -> Iterator[tuple[str | None, int, KeyRequirement]]:
    """Each requirement with a key, with its scope (None is the default) and its number there."""
    for scope, requirements in ((None, policy.default), *policy.transports.docker.items()):
        for number, requirement in enumerate(requirements):
            if isinstance(requirement, SignedBy | SigstoreSigned):
                yield scope, number, requirement


def _locations(file: Path, node: MappingNode) -> Iterator[SettingsProblem]:
    for key, value in entries(node):
        if not isinstance(value, ScalarNode) or is_template(value.value) or value.tag in ANSIBLE_TAGS:
            continue
        try:
            require_scope(key.value)
            require_location(value.value)
        except UnusableLocationError as error:
            yield at(file, value, f"{LOOKASIDE}: {error}", error.hint, CODE)


def _is_templated(node: Node) -> bool:
    """Whether its values are known only to Ansible."""
    if isinstance(node, ScalarNode):
        return node.tag in ANSIBLE_TAGS or is_template(node.value)
    if isinstance(node, MappingNode):
        return any(_is_templated(key) or _is_templated(value) for key, value in node.value)
    return any(_is_templated(item) for item in node.value)


def _plain(node: Node) -> Any:
    """The values of a node. A policy has no others than text: a number stands for all else."""
    if isinstance(node, MappingNode):
        return {key.value: _plain(value) for key, value in entries(node)}
    if isinstance(node, SequenceNode):
        return [_plain(item) for item in node.value]
    return node.value if node.tag == f"{TAG}str" else 0


def _node_at(node: Node, path: tuple[str | int, ...]) -> Node:
    """The node at a path of keys and numbers; what of the path no node has is passed over."""
    for part in path:
        if isinstance(node, MappingNode):
            node = next((value for key, value in entries(node) if key.value == part), node)
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
    return node
