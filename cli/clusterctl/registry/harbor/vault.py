"""The file of secrets: what we made for robots, and by what we know that a secret has changed.

It is written before Harbor is told and after: a run that dies in between leaves ``set: false``, and the
next one sets that secret again. Mode 0600, in .clusterctl/secrets; encrypted by Ansible Vault where a vault
password is configured.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from clusterctl.cluster.bounded_file import UnusableFileError, describe_unusable
from clusterctl.cluster.directory import state_access
from clusterctl.cluster.secret_files import encrypt_at_rest, lacks_encryption, read_secret_text
from clusterctl.cluster.state_files import replace_file
from clusterctl.errors import ClusterctlError
from clusterctl.registry.harbor.fields import is_robot_key
from clusterctl.registry.harbor.secret_text import MAX_FILE_BYTES

FILE = "registry-robots.json"
# Next to it a file a robot with its secret alone, for what takes a password from a file.
PASSWORDS = "robots"
MAX_BYTES = 16 << 20


class Vault:
    """Robots' secrets by their name without Harbor's prefix; fingerprints of the secrets of others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._passwords = path.parent / PASSWORDS
        self._lock = threading.Lock()
        content = _read(path)
        self._robots: dict[str, dict[str, Any]] = {
            key: _hidden(entry) for key, entry in content.get("robots", {}).items()
        }
        self._prints: dict[str, str] = content.get("fingerprints", {})
        self._key: str = content.get("key") or secrets.token_hex(32)

    def robot(self, key: str) -> Mapping[str, Any]:
        """What is known of a robot: user, secret, made, id, set; nothing where it is not known."""
        return self._robots.get(key, {})

    def secrets(self) -> list[tuple[str, SecretStr]]:
        """Each secret that is kept, with the user who logs in with it: empty where that is not known."""
        kept = self._robots.values()
        return [(entry.get("user", ""), entry["secret"]) for entry in kept if "secret" in entry]

    def is_set(self, key: str, robot_id: int) -> bool:
        """Whether this very robot has the secret that we know of."""
        entry = self.robot(key)
        return bool(entry.get("set")) and entry.get("id") == robot_id

    def begin(self, key: str, secret: SecretStr | None, *, now: datetime) -> None:
        """A secret that is about to be given to Harbor. None is one that is not kept here.

        What was kept before stays then, until whoever keeps the new one has it.
        """
        with self._lock:
            kept = {"secret": secret} if secret else {}
            before = self._robots.get(key, {})
            stays = {} if secret or "secret" not in before else {"secret": before["secret"]}
            self._robots[key] = {**stays, **kept, "made": _stamp(now), "set": False}

    def done(
        self, key: str, user: str, robot_id: int, *, keep: bool = True, made: datetime | None = None
    ) -> None:
        """Harbor has it; so may those who log in with it. Without ``keep`` nothing of it is left here.

        ``made`` is Harbor's own time where it has just made the robot. Raises ClusterctlError
        (``cluster.state-not-writable``); the secret then counts as one that is still to be set.
        """
        entry = {**self._robots[key], "user": user, "id": robot_id, "set": True}
        if made is not None:
            entry["made"] = _stamp(made)
        if keep and "secret" in entry:
            with state_access():
                self._passwords.mkdir(mode=0o700, exist_ok=True)
            replace_file(self._password(key), encrypt_at_rest(f"{entry['secret'].get_secret_value()}\n"))
        else:
            entry.pop("secret", None)
            with state_access():
                self._password(key).unlink(missing_ok=True)
        with self._lock:
            self._robots[key] = entry

    def has_password_file(self, key: str) -> bool:
        """Whether the robot's own file holds the secret that is kept, for its owner alone."""
        path, secret = self._password(key), self.robot(key).get("secret")
        try:
            if secret is None:
                return False
            written = read_secret_text(path, MAX_FILE_BYTES, private=True)
            return written == f"{secret.get_secret_value()}\n"
        except (OSError, UnusableFileError):
            return False

    def lacks_encryption(self, key: str) -> bool:
        """Whether its own file, or the file of all, is plain although a vault password is configured."""
        return lacks_encryption(self._password(key)) or lacks_encryption(self.path)

    def made(self, key: str) -> datetime | None:
        """When the secret was made."""
        text = self.robot(key).get("made")
        return datetime.fromisoformat(text) if isinstance(text, str) else None

    def forget(self, key: str) -> None:
        """The robot is gone; of one that was never declared here there is nothing.

        Raises ClusterctlError (``cluster.state-*``).
        """
        with self._lock:
            if self._robots.pop(key, None) is None:
                return
        with state_access():
            self._password(key).unlink(missing_ok=True)

    def knows(self, what: str, secret: SecretStr, stamp: str) -> bool:
        """Whether ``what`` was given this very secret by us, and by its ``stamp`` is as we left it."""
        return hmac.compare_digest(self._prints.get(what, ""), self._print(secret, stamp))

    def given(self, what: str, secret: SecretStr | None, stamp: str) -> None:
        """Remember by a fingerprint what was given to Harbor; None forgets it."""
        with self._lock:
            self._prints.pop(what, None)
            if secret is not None:
                self._prints[what] = self._print(secret, stamp)

    def save(self) -> None:
        """Write it, whole or not at all. Raises ClusterctlError (``cluster.state-not-writable``)."""
        with self._lock:
            content = {"robots": self._robots, "fingerprints": self._prints, "key": self._key}
            text = json.dumps(content, indent=1, sort_keys=True, default=SecretStr.get_secret_value)
            replace_file(self.path, encrypt_at_rest(text + "\n"))

    def _password(self, key: str) -> Path:
        if not is_robot_key(key):
            raise ValueError(f"{key!r} is not the name of a robot")
        return self._passwords / f"{key}.password"

    def _print(self, secret: SecretStr, stamp: str) -> str:
        text = f"{stamp}\n{secret.get_secret_value()}"
        return hmac.new(self._key.encode(), text.encode(), hashlib.sha256).hexdigest()


def now() -> datetime:
    """The time, as it is written down."""
    return datetime.now(UTC)


def _hidden(entry: dict[str, Any]) -> dict[str, Any]:
    """A robot's entry as the file has it, with its secret where nothing prints it."""
    return {**entry, "secret": SecretStr(entry["secret"])} if "secret" in entry else entry


def _stamp(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


class _Robot(BaseModel):
    model_config = ConfigDict(extra="allow")

    secret: str = ""
    user: str = ""
    id: int = 0
    set: bool = False
    made: str = ""

    @field_validator("made")
    @classmethod
    def _time(cls, made: str) -> str:
        datetime.fromisoformat(made)
        return made


def _robot_key(key: str) -> str:
    if not is_robot_key(key):
        raise ValueError("not the name of a robot")
    return key


class _Content(BaseModel):
    robots: dict[Annotated[str, AfterValidator(_robot_key)], _Robot]
    fingerprints: dict[str, Annotated[str, Field(pattern="^[0-9a-f]+$")]]
    key: Annotated[str, Field(pattern="^[0-9a-f]+$")]


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_secret_text(path, MAX_BYTES, private=True)
        return _Content.model_validate_json(text).model_dump(exclude_unset=True)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _broken(
            path, describe_unusable(error), "Work as the user who owns the cluster directory."
        ) from error
    except UnusableFileError as error:
        hint = "If others may read it, make it mode 0600, and rotate: clusterctl registry rotate"
        raise _broken(path, describe_unusable(error), hint) from error
    except ValidationError:  # it shows what it found
        hint = "Move it away; clusterctl registry apply --adopt then gives every declared robot a new secret."
        raise _broken(path, "it is not what clusterctl writes", hint) from None


def _broken(path: Path, why: str, hint: str) -> ClusterctlError:
    return ClusterctlError(
        f"the file of robots' secrets cannot be used: {why}",
        code="registry.vault",
        where=str(path),
        hint=hint,
    )
