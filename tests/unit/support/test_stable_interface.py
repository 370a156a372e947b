"""The list of names that scripts rely on is written as the generated pages are: a change is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import stable_interface


def test_a_list_that_grew_is_named_and_one_that_did_not_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = tmp_path / "interface.txt"
    golden.write_text("b\n", encoding="utf-8")
    monkeypatch.setattr(stable_interface, "lines", lambda _: ["a", "b"])
    stable_interface.add_to(golden, tmp_path)
    assert golden.read_text(encoding="utf-8") == "a\nb\n"
    assert capsys.readouterr().out == f"written: {golden}\n"
    stable_interface.add_to(golden, tmp_path)
    assert capsys.readouterr().out == ""
