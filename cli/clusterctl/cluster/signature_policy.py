"""`images_signatures`: which signatures images need, in the form of containers' policy.json.

https://github.com/containers/image/blob/main/docs/containers-policy.json.5.md
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from clusterctl.cluster.record import Record
from clusterctl.errors import ClusterctlError

NAME = "images_signatures"
CODE = "settings.signatures"
MAX_SCOPES = 1000
MAX_REQUIREMENTS = 16
MAX_KEYS = 16
# Base64 of a keyring of 1 MiB.
MAX_KEY_DATA = 1_400_000
# Whoever signs without a key of their own has these checked instead; nothing here does that.
KEYLESS = (
    "fulcio",
    "pki",
    "rekorPublicKeyPath",
    "rekorPublicKeyPaths",
    "rekorPublicKeyData",
    "rekorPublicKeyDatas",
)
KEYLESS_HINT = (
    "Remove it, and name the public key of who signs as keyPath; sign with one: cosign sign --key cosign.key"
)
# A host by itself, or followed by a path, a tag or a digest; or all hosts below a domain.
_SCOPE = re.compile(
    r"(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?)"
    r"(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})?"
)
HUB_HOSTS = ("index.docker.io", "registry-1.docker.io")
_WILDCARD = re.compile(r"\*(\.[A-Za-z0-9-]+)+")
_TAGGED = re.compile(r".+/[^/]*[:@][^/]+")

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
KeyData = Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_DATA)]
KeyPaths = Annotated[tuple[Text, ...], Field(min_length=1, max_length=MAX_KEYS)]
KeyDatas = Annotated[tuple[KeyData, ...], Field(min_length=1, max_length=MAX_KEYS)]


def _full_name(text: str) -> str:
    if not _SCOPE.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a name in full, such as docker.io/library/busybox")
    return text


def one_spelling(name: str) -> str:
    """A scope or an image's name as it is compared: one server has many names, and one policy.

    DNS knows no case, 443 is the port that is asked anyway, and Docker Hub has several hosts.
    """
    host, slash, path = name.partition("/")
    host = re.sub(r":0*([0-9]+)$", r":\1", host.lower()).removesuffix(":443")
    return f"{'docker.io' if host in HUB_HOSTS else host}{slash}{path}"


def _once_each(scopes: dict[str, Any]) -> dict[str, Any]:
    for name, number in Counter(map(one_spelling, scopes)).items():
        if number > 1:
            raise ValueError(f"{name[:80]!r} is there twice, in other letters or with its port")
    return scopes


def _with_tag(text: str) -> str:
    if not _TAGGED.fullmatch(_full_name(text)):
        raise ValueError(f"{text[:80]!r} names neither a tag nor a digest")
    return text


def _scope(text: str) -> str:
    if text and not _SCOPE.fullmatch(text) and not _WILDCARD.fullmatch(text):
        raise ValueError(
            f"{text[:80]!r} is not a scope: write HOST, HOST/PATH (docker.io/library/busybox) or *.DOMAIN"
        )
    return text


Name = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_full_name)]
TaggedName = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_with_tag)]
Scope = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_scope)]


class MatchImage(Record):
    """The signature names the image: exactly, or its repository."""

    type: Literal["matchExact", "matchRepoDigestOrExact", "matchRepository"]


class ExactReference(Record):
    """The signature names this image."""

    type: Literal["exactReference"]
    dockerReference: TaggedName


class ExactRepository(Record):
    """The signature names an image of this repository."""

    type: Literal["exactRepository"]
    dockerRepository: Name


class RemapIdentity(Record):
    """The signature names the image as it is called where it was signed."""

    type: Literal["remapIdentity"]
    prefix: Name
    signedPrefix: Name


SignedIdentity = Annotated[
    MatchImage | ExactReference | ExactRepository | RemapIdentity, Field(discriminator="type")
]
USUAL_IDENTITY = MatchImage(type="matchRepoDigestOrExact")


class AcceptAnything(Record):
    """No signature is needed."""

    type: Literal["insecureAcceptAnything"]


class Reject(Record):
    """No such image is accepted, whoever signed it."""

    type: Literal["reject"]


class _Keyed(Record):
    keyPath: Text | None = None
    keyPaths: KeyPaths | None = None
    keyData: KeyData | None = None
    signedIdentity: SignedIdentity = USUAL_IDENTITY

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that hold the keys."""
        return (self.keyPath,) if self.keyPath is not None else self.keyPaths or ()

    @property
    def data(self) -> tuple[str, ...]:
        """The keys that are written in the settings, in base64."""
        return (self.keyData,) if self.keyData is not None else ()

    @model_validator(mode="after")
    def _has_one_kind_of_key(self) -> _Keyed:
        names = [name for name in type(self).model_fields if name.startswith(("keyPath", "keyData"))]
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"it needs one of {', '.join(names)}, and has {', '.join(given) or 'none'}")
        return self


class SignedBy(_Keyed):
    """GPG simple signing."""

    type: Literal["signedBy"]
    keyType: Literal["GPGKeys"]


class SigstoreSigned(_Keyed):
    """A signature by a cosign key."""

    type: Literal["sigstoreSigned"]
    keyDatas: KeyDatas | None = None

    @property
    def data(self) -> tuple[str, ...]:
        """The keys that are written in the settings, in base64."""
        return self.keyDatas or super().data

    @model_validator(mode="before")
    @classmethod
    def _is_not_keyless(cls, given: Any) -> Any:
        for name in KEYLESS:
            if isinstance(given, Mapping) and name in given:
                raise ValueError(f"{name} is not supported: signatures are verified by a public key alone")
        return given


Requirement = Annotated[AcceptAnything | Reject | SignedBy | SigstoreSigned, Field(discriminator="type")]
KeyRequirement = SignedBy | SigstoreSigned
Requirements = Annotated[tuple[Requirement, ...], Field(min_length=1, max_length=MAX_REQUIREMENTS)]
Scopes = Annotated[dict[Scope, Requirements], Field(max_length=MAX_SCOPES), AfterValidator(_once_each)]
# Scopes of other transports are names of files, not of images.
OtherScopes = Annotated[dict[str, Requirements], Field(max_length=MAX_SCOPES)]
_OTHERS = (
    "atomic", "containers-storage", "dir", "docker-archive", "docker-daemon", "oci", "oci-archive", "ostree",
    "sif", "tarball",
)  # fmt: skip


class Transports(Record):
    """Requirements by scope. Images come by ``docker`` alone; the others are only checked."""

    docker: Scopes = Field(default_factory=dict)
    others: dict[str, OtherScopes] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _set_others_apart(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        others = {name: given[name] for name in _OTHERS if name in given}
        rest = {name: value for name, value in given.items() if name not in others}
        if "others" in rest:
            raise ValueError("there is no transport 'others'")
        return {**rest, **({"others": others} if others else {})}


class SignaturePolicy(Record):
    """The whole policy."""

    default: Requirements
    transports: Transports = Transports()

    def requirements(self, registry: str, repository: str, tag: str, digest: str) -> tuple[Requirement, ...]:
        """What an image needs: the requirements of its most specific scope, and no others."""
        scoped = {one_spelling(scope): found for scope, found in self.transports.docker.items()}
        scope = next((one for one in scopes_of(registry, repository, tag, digest) if one in scoped), None)
        return self.default if scope is None else scoped[scope]

    def has_scope_of(self, registry: str, repository: str, tag: str, digest: str) -> bool:
        """Whether a scope is written for the image, and not only what is for all images."""
        scoped = set(map(one_spelling, self.transports.docker))
        return any(one and one in scoped for one in scopes_of(registry, repository, tag, digest))


def scopes_of(registry: str, repository: str, tag: str, digest: str) -> Iterator[str]:
    """The scopes that an image is in, the most specific first."""
    name = one_spelling(f"{registry}/{repository}")
    if digest:
        yield f"{name}@{digest}"
    if tag:
        yield f"{name}:{tag}"
    while "/" in name:
        yield name
        name = name.rpartition("/")[0]
    yield name
    domain = re.sub(r":[0-9]+$", "", name)
    while "." in domain and not domain.startswith("["):
        domain = domain.partition(".")[2]
        yield f"*.{domain}"
    yield ""


def read(setting: Any) -> SignaturePolicy | None:
    """The policy that a setting holds; None where it holds none. Raises ClusterctlError (``CODE``)."""
    if setting in (None, {}, ""):
        return None
    try:
        return SignaturePolicy.model_validate(setting)
    except ValidationError as error:
        path, sentence, hint = problem(error)
        where = ".".join(str(part) for part in (NAME, *path))
        raise ClusterctlError(
            f"{NAME} cannot be used: {sentence}", code=CODE, where=where, hint=hint
        ) from None


def problem(error: ValidationError) -> tuple[tuple[str | int, ...], str, str]:
    """Where the first thing wrong is, what it is, and what to do."""
    first = error.errors(include_url=False)[0]
    path, kind, context = first["loc"], first["type"], first.get("ctx") or {}
    if kind == "union_tag_invalid":
        known = str(context["expected_tags"]).replace("'", "")
        return path, f"there is no type {str(context['tag'])[:80]!r}", f"Known: {known}."
    if kind == "union_tag_not_found":
        return path, "it has no type", "For example: {type: insecureAcceptAnything}"
    if kind == "extra_forbidden":
        return path, f"there is no {str(path[-1])[:80]!r}", "See containers-policy.json(5)."
    if kind == "missing":
        return path, f"{path[-1]} is missing", "See containers-policy.json(5)."
    sentence = str(first["msg"]).removeprefix("Value error, ")
    keyless = any(sentence.startswith(f"{name} is not supported") for name in KEYLESS)
    return path, sentence, KEYLESS_HINT if keyless else "See containers-policy.json(5)."
