"""Whether an image's own repository has a blob that another of its registry gives: a source can list any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from clusterctl.cluster.lock import LockedImage
from clusterctl.errors import ExplainedError
from clusterctl.parallel import parallel_map_fairly
from clusterctl.registry.images.resolve import SURVEY_S, source_host
from clusterctl.registry.oci.client import Registry
from clusterctl.registry.oci.deadline import within
from clusterctl.registry.oci.manifest import Blob
from clusterctl.registry.oci.reference import parse

# A repository with its registry's host, and a blob.
Question = tuple[str, Blob]


def says_yes(opened: Callable[[LockedImage], Registry], image: LockedImage, blob: Blob) -> bool:
    """Asked as whoever may read the image's own repository; who does not answer does not offer it."""
    try:
        return opened(image).has_blob(parse(image.source).repository, blob.digest)
    except ExplainedError:
        return False


def offered(
    questions: Mapping[Question, LockedImage],
    ask: Callable[[LockedImage, Blob], bool],
    *,
    limit: int,
    stop: threading.Event,
) -> set[Question]:
    """The questions with the answer yes. ``questions`` have the image that asks for each."""
    with within(SURVEY_S):
        answers = parallel_map_fairly(
            lambda question: ask(questions[question], question[1]),
            questions,
            key=lambda question: source_host(questions[question]),
            limit=limit,
            stop=stop,
        )
    return {question for question, there in zip(questions, answers, strict=True) if there}
