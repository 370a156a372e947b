"""`clusterctl explain CODE`: what an error's code means, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict

import click

from clusterctl import console
from clusterctl.cluster.suggestion import did_you_mean
from clusterctl.errors import ClusterctlError
from clusterctl.explanations import Explanation, explanations


@click.command("explain")
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per code.")
def command(code: str | None, as_json: bool) -> None:
    """Explain an error's CODE: its meaning, usual causes, and remedy. Without a code: list all codes."""
    known = explanations()
    if code is not None and code not in known:
        raise ClusterctlError(
            f"there is no error code {code!r}",
            code="explain.unknown-code",
            hint=did_you_mean(code, known) or "clusterctl explain lists them all.",
        )
    chosen = [known[code]] if code else list(known.values())
    for one in chosen:
        if as_json:
            console.emit({"type": "code", **asdict(one)})
        else:
            console.write(_in_full(one) if code else f"{one.code:<30} {one.means}\n")


def _in_full(one: Explanation) -> str:
    parts = [f"{one.code} (exit code {one.exit_code})", one.means]
    for title, sentences in (("usual causes", one.causes), ("what to do", one.remedy)):
        parts.append("\n".join([f"{title}:", *(f"  - {sentence}" for sentence in sentences)]))
    return "\n\n".join(parts) + "\n"
