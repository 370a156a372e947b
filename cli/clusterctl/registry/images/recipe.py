"""A site's own image as it is declared: the Dockerfile, what lies next to it, what it is made of."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterctl.cluster.bounded_file import (
    MAX_CERTIFICATES_BYTES,
    UnusableFileError,
    describe_unusable,
    read_trusted,
)
from clusterctl.cluster.inventory import Inventory
from clusterctl.cluster.lock import LockedImage
from clusterctl.cluster.user_path import user_path
from clusterctl.errors import ClusterctlError
from clusterctl.registry.images.declared import asked_host, entries
from clusterctl.registry.images.nccl_tests import (
    NcclTests,
    NotDeclaredWellError,
    UnpinnedSourceError,
    nccl_tests,
)
from clusterctl.registry.images.requirements import has, read_requirements, versions

if TYPE_CHECKING:
    from jinja2 import Template

SETTING = "image_builds"
# Each word of a recipe becomes a word of a Dockerfile: nothing else may pass.
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+)?")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
INDEX = re.compile(r"https?://[^\s@'\"]+")
HTTPS = "https://"
VERSION = re.compile(r"[0-9][0-9A-Za-z.]*")
TARGET = re.compile(r"[a-z0-9]+([._/-][a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
PIP_CA = "/usr/local/share/clusterctl/pip-ca.crt"
PEM = "-----BEGIN CERTIFICATE-----"
RECIPE_LABEL = "io.clusterctl.recipe"
BASE_LABEL = "org.opencontainers.image.base.digest"


@dataclass(frozen=True)
class BuildRecipe:
    """What to make: a base by the name of a locked image, and what is added to it."""

    name: str
    base: str
    target: str
    packages: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    pip_index_url: str = ""
    pip_ca: str = ""
    jupyterlab: str = ""
    user: str = "user"
    uid: int = 1000
    labels: Mapping[str, str] = field(default_factory=dict)
    nccl_tests: NcclTests | None = None

    @property
    def repository(self) -> str:
        """The path in the registry."""
        return self.target.rpartition(":")[0]

    @property
    def tag(self) -> str:
        """The tag in the registry."""
        return self.target.rpartition(":")[2]


def declared_recipes(inventory: Inventory) -> tuple[BuildRecipe, ...]:
    """The recipes of the settings. Raises ClusterctlError (``images.build-declared``)."""
    declared = entries(asked_host(inventory), SETTING)
    root = inventory.directory.root
    found = [_recipe(one, root, f"{SETTING}, entry {number}") for number, one in enumerate(declared, 1)]
    for key in ("name", "target"):
        values = [getattr(one, key) for one in found]
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise _refusal(f"two of them have the {key} {twice[0]}", SETTING)
    return tuple(found)


def context_of(recipe: BuildRecipe, base: LockedImage, registry: str) -> dict[str, str]:
    """The files of the build, by name. Equal settings on an equal base give equal files, to the byte."""
    written = {}
    if recipe.requirements:
        written["requirements.txt"] = "".join(f"{one}\n" for one in recipe.requirements)
    index = [f"index-url = {recipe.pip_index_url}"] if recipe.pip_index_url else []
    if recipe.pip_ca:
        written["pip-ca.crt"] = recipe.pip_ca
        index.append(f"cert = {PIP_CA}")
    if index:
        written["pip.conf"] = "\n".join(["[global]", *index, ""])
    if recipe.nccl_tests is not None:
        written |= recipe.nccl_tests.context()
    labels = {
        **recipe.labels,
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.base.name": f"{registry}/{base.target}",
        BASE_LABEL: base.digest,
        "io.clusterctl.packages": " ".join(recipe.packages),
        "io.clusterctl.requirements": " ".join(versions(recipe.requirements)),
        "io.clusterctl.nccl-tests": recipe.nccl_tests.sha256 if recipe.nccl_tests else "",
    }
    text = _dockerfile(recipe, f"{registry}/{base.target}@{base.digest}", labels)
    digest = fingerprint({**written, "Dockerfile": text})
    return {**written, "Dockerfile": _dockerfile(recipe, f"{registry}/{base.target}@{base.digest}",
                                                 {**labels, RECIPE_LABEL: digest})}  # fmt: skip


def fingerprint(context: Mapping[str, str]) -> str:
    """A digest of all that a build is made of."""
    return hashlib.sha256(json.dumps(dict(context), sort_keys=True).encode()).hexdigest()


def recipe_of(context: Mapping[str, str]) -> str:
    """The fingerprint that the image has as a label."""
    found = re.search(rf'{re.escape(RECIPE_LABEL)}="([0-9a-f]{{64}})"', context["Dockerfile"])
    return found[1] if found else ""


def _dockerfile(recipe: BuildRecipe, base: str, labels: Mapping[str, str]) -> str:
    return _template().render(
        name=recipe.name, base=base, packages=recipe.packages, requirements=recipe.requirements,
        pip_conf=bool(recipe.pip_index_url or recipe.pip_ca), pip_ca=PIP_CA if recipe.pip_ca else "",
        nccl_tests=recipe.nccl_tests, jupyterlab=recipe.jupyterlab,
        user=recipe.user, uid=recipe.uid, gid=recipe.uid,
        labels=sorted((key, value) for key, value in labels.items() if value),
    )  # fmt: skip


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - 50 ms that most calls do not need

    environment = Environment(  # noqa: S701 (a Dockerfile is no HTML; each word was looked at)
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "ensure_ascii": False}
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False).replace("$", "\\$")
    text = (files("clusterctl.registry.images") / "templates" / "Dockerfile.j2").read_text(encoding="utf-8")
    return environment.from_string(text)


def _certificate(file: str, root: Path, where: str) -> str:
    """The text of a certificate that a setting names; "" where it names none."""
    if not file:
        return ""
    try:
        text = read_trusted(root / user_path(file), root, MAX_CERTIFICATES_BYTES).decode("ascii")
    except (OSError, UnusableFileError) as error:
        raise _refusal(f"pip_ca_file cannot be read: {describe_unusable(error)}", where) from None
    except UnicodeDecodeError as error:
        raise _refusal(f"pip_ca_file cannot be read: {error}", where) from None
    if PEM not in text or "PRIVATE KEY" in text:
        raise _refusal("pip_ca_file must contain certificates, and no private key", where)
    return text


def _recipe(record: Mapping[str, Any], root: Path, where: str) -> BuildRecipe:
    try:
        tests = nccl_tests(record.get("nccl_tests") or {}, root)
        declared = [str(one) for one in record.get("requirements") or []]
        requirements = read_requirements(declared, str(record.get("requirements_file") or ""), root)
    except UnpinnedSourceError as error:
        raise _unpinned(str(error), where) from None
    except NotDeclaredWellError as error:
        raise _refusal(str(error), where) from None
    recipe = BuildRecipe(
        nccl_tests=tests,
        name=str(record.get("name") or ""),
        base=str(record.get("base") or ""),
        target=str(record.get("target") or ""),
        packages=tuple(sorted({str(one) for one in record.get("packages") or []})),
        requirements=requirements,
        pip_index_url=str(record.get("pip_index_url") or ""),
        pip_ca=_certificate(str(record.get("pip_ca_file") or ""), root, where),
        jupyterlab=str(record.get("jupyterlab") or ""),
        user=str(record.get("user") or "user"),
        uid=int(record.get("uid") or 1000),
        labels={str(key): str(value) for key, value in (record.get("labels") or {}).items()},
    )
    words = (
        ("name", recipe.name, USER),
        ("base", recipe.base, re.compile(r"\S+")),
        ("target", recipe.target, TARGET),
        ("user", recipe.user, USER),
        *((("jupyterlab", recipe.jupyterlab, VERSION),) if recipe.jupyterlab else ()),
        *((("pip_index_url", recipe.pip_index_url, INDEX),) if recipe.pip_index_url else ()),
        *(("packages", one, PACKAGE) for one in recipe.packages),
        *(("labels", key, re.compile(r"[a-z0-9][a-z0-9._-]*")) for key in recipe.labels),
    )  # fmt: skip
    for key, value, pattern in words:
        if not pattern.fullmatch(value):
            shown = "it holds a password" if key == "pip_index_url" and "@" in value else repr(value)
            raise _refusal(f"{key} is not as it must be: {shown}", where)
    if recipe.pip_index_url and not recipe.pip_index_url.startswith(HTTPS):
        raise _unpinned(f"pip_index_url is not an https URL: {recipe.pip_index_url}", where)
    if recipe.jupyterlab and not has(recipe.requirements, "jupyterlab", recipe.jupyterlab):
        raise _unpinned(
            f"jupyterlab=={recipe.jupyterlab} and its hashes are not among the requirements", where
        )
    if recipe.uid < 1:
        raise _refusal("uid must not be root's", where)
    if any("\n" in value for value in recipe.labels.values()):
        raise _refusal("a label has one line", where)
    return recipe


def _unpinned(because: str, where: str) -> ClusterctlError:
    return ClusterctlError(
        f"a build would fetch what is not pinned: {because}",
        code="images.build-unpinned",
        where=where,
        hint="Name as requirements_file what this writes: uv pip compile --generate-hashes --python-version "
        "VERSION_OF_THE_BASE -o FILE.lock FILE.in. URLs are https, with a sha256.",
    )


def _refusal(because: str, where: str) -> ClusterctlError:
    return ClusterctlError(
        f"a build is not well declared: {because}",
        code="images.build-declared",
        where=where,
        hint="For example: {name: notebook, base: training, target: site/notebook:1, packages: [vim]}",
    )
