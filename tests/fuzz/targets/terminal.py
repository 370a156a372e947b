"""What is printed on a terminal, by each command, of a text that others chose."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.target import Target
from tests.support.hostile import TEXTS, require_plain
from tests.support.renderings import RENDERINGS, captured

from clusterctl.cluster.untrusted import MAX_TEXT
from clusterctl.errors import ExplainedError


def _terminal(data: bytes) -> None:
    """The first byte chooses the command, and whether colours are on; on arrival each text was shortened."""
    text = data[1:].decode(errors="replace")[:MAX_TEXT]
    number, colours = divmod(data[0] if data else 0, 2)
    render = list(RENDERINGS.values())[number % len(RENDERINGS)]
    try:
        printed = captured(render, text, colours=bool(colours))
    except ExplainedError:
        return
    require_plain(printed.out, printed.err, styled=bool(colours))


def _terminal_seeds() -> list[bytes]:
    texts = [text.encode(errors="replace") for text in (*TEXTS, "a kernel", Path(__file__).name)]
    return [bytes([number]) + text for number in range(2 * len(RENDERINGS)) for text in texts]


TARGETS: dict[str, Target] = {
    target.name: target for target in (Target("terminal", _terminal_seeds, _terminal),)
}
