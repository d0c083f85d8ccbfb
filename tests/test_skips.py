"""In the gate, a skipped test fails unless .ci/skips.json lists its reason: tests/conftest.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest
from tracing import ROOT

LISTED = json.loads((ROOT / ".ci/skips.json").read_text())[0]["what"]


@pytest.mark.parametrize(
    "reason, gate, outcome",
    [("for fun", "1", "1 failed"), (LISTED, "1", "1 skipped"), ("for fun", None, "1 skipped")],
)
def test_a_skip(tmp_path: Path, reason: str, gate: Optional[str], outcome: str) -> None:
    (tmp_path / "test_one.py").write_text(f"import pytest\ndef test_one():\n    pytest.skip({reason!r})\n")
    environment = {**os.environ, "PROBESCOPE_GATE": gate or "", "PYTHONPATH": str(ROOT / "tests")}
    # This test holds "room" already. The pytest below must not wait behind a process that wants to
    # be alone, because that process waits for this test.
    environment.pop("PROBESCOPE_TURNS", None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "conftest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    ran = subprocess.run(
        [*command, str(tmp_path)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert outcome in ran.stdout.splitlines()[-1], ran.stdout
    assert ran.returncode == (1 if "failed" in outcome else 0)
