# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see plugins/LICENSE)
"""What skopeo says when it fails: on which side that was, and what is to be done there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.clusterctl.cluster.plugins.module_utils.image_digest import (
    EXPIRED,
    ITS_OWN_ERROR,
    REFUSED,
    TOO_MANY,
    failure,
)

# What a copy is doing when it fails; the first of its words tells the side.
DOING = re.compile(
    r"(?P<source>initializing source|reading |fetching )"
    r"|(?P<destination>at destination|initializing destination|writing |uploading )",
    re.IGNORECASE,
)
# The registry answered, and has no such manifest.
ABSENT = re.compile(
    r"manifest unknown|name unknown|reading manifest .* not found"
    r"|StatusCode: 404|status code from registry 404"
)
NOT_UP = re.compile(r"connection refused|no such host")


def reason_of(err: str) -> str:
    """Its last word, without the log line around it."""
    found = re.findall(r'msg="((?:[^"\\]|\\.)*)"', err)
    return (found[-1] if found else err.strip()).replace('\\"', '"')[-600:]


def side_of(reason: str) -> str:
    """Which side of a copy failed, by what it was doing: "source", "destination", or "" for neither."""
    # A copy reads while it writes, and names the reading last.
    if "happened during read" in reason:
        return "source"
    found = DOING.search(reason)
    return (found.lastgroup or "") if found else ""


def explain_copy(err: str, options: Mapping[str, Any]) -> str:
    """A failed copy in one sentence, with what to do on the side that failed."""
    reason = reason_of(err)
    sides = {"source": _at_source, "destination": _at_destination}
    cures, otherwise = sides.get(side_of(reason), _at_neither)(options)
    return failure(
        f"{options['source']}@{options['digest']} could not be copied", reason, reason, cures, otherwise
    )


def explain_look(err: str, options: Mapping[str, Any]) -> str:
    """Why it is not known whether the destination has the image, in one sentence."""
    reason = reason_of(err)
    what = f"{options['destination']}@{options['digest']} could not be looked for"
    return failure(what, reason, reason, *_at_destination(options))


def _at_source(options: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    given = options["source_auth_file"]
    login = (
        f"the source refuses the credentials in {given} (training_image_source_auth_file): correct them"
        if given
        else "the source asks for a password: set training_image_source_auth_file"
    )
    return {
        EXPIRED: "the source's certificate has expired: it is renewed where the source is run; or the clock "
        "of this host is wrong",
        r"x509": "the registry host does not trust the source's certificate: put its CA into the OS's store",
        r"manifest unknown|StatusCode: 404": "the source does not have this digest: correct "
        "training_image_digest",
        r"no such host": "the source's name is not known here: correct training_image_source, or DNS",
        r"no space left": "the disk of this host is full: make room",
        r"names other addresses": "declare the digest of an image that has all its layers (of a list, that "
        "of its image for Linux) in training_image_digest",
        r"reading or writing more than": "the source sends more than the image has: see who answers for it",
        TOO_MANY: "the source limits how often it is asked: apply again later, or as a user whom it allows "
        "more (training_image_source_auth_file)",
        REFUSED: login,
        ITS_OWN_ERROR: "the source has an error of its own: apply again later",
    }, "see that this host reaches the source"


def _at_destination(options: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    host, given = options["destination"].partition("/")[0], options["destination_auth_file"]
    return {
        EXPIRED: f"the certificate of {host} has expired: provide a new one (harbor_certificate); one of "
        "clusterctl's own is renewed by clusterctl apply --only registry",
        r"x509": f"this host does not trust the certificate of {host}: clusterctl apply --only registry",
        r"no such host": f"the name of {host} is not known here: give it to DNS, or to /etc/hosts",
        r"no space left": "the registry's disk is full: make room in registry_data_dir",
        TOO_MANY: f"{host} limits how often it is asked: apply again later",
        REFUSED: f"{host} refuses the credentials in {given}: clusterctl apply --only registry writes those "
        "that are declared",
        ITS_OWN_ERROR: f"{host} has an error of its own: see its log, and its disk (registry_data_dir)",
    }, f"see that {host} serves: clusterctl apply --only registry"


def _at_neither(_options: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    cures = {r"no space left": "the disk of this host is full: make room"}
    return cures, "see that this host reaches the source, and that the registry serves"
