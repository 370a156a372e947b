"""What the program shares with nodes is found wherever it is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.tree import ROOT

SHARED = re.compile(r'shared_module\("(\w+)"\)')


def test_each_shared_module_is_loaded_without_ansibles_search_path(tmp_path: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "cli").rglob("*.py"))]
    names = sorted({name for text in texts for name in SHARED.findall(text)})
    assert "no_proxy" in names
    program = "import sys; from clusterctl.content import shared_module as s; list(map(s, sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *names],
        cwd=tmp_path, env={}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
