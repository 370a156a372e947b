"""Repositories by name. A slash in a name wants to be encoded twice, for a proxy in between decodes once."""

from __future__ import annotations

from urllib.parse import unquote

from . import projects
from .asked import Answer, Asked, matching, route
from .errors import missing
from .store import Object

KIND = "repository"


@route("GET", "/projects/{project}/repositories")
def every(asked: Asked) -> Answer:
    """Of one project."""
    number = projects.get(asked, asked.names["project"])["project_id"]
    found = [one for one in asked.store.all(KIND) if one["project_id"] == number]
    return asked.page(matching(asked, found))


@route("GET", "/projects/{project}/repositories/{repository}")
def one(asked: Asked) -> Answer:
    """By name."""
    return Answer(200, _get(asked))


@route("DELETE", "/projects/{project}/repositories/{repository}")
def delete(asked: Asked) -> Answer:
    """Gone."""
    asked.store.remove(KIND, _get(asked)["id"])
    return Answer()


def _get(asked: Asked) -> Object:
    project = projects.get(asked, asked.names["project"])
    name = f"{project['name']}/{unquote(asked.names['repository'])}"
    for one in asked.store.all(KIND):
        if one["name"] == name:
            return one
    raise missing(f"repository {name} not found")
