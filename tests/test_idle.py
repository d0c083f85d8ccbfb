from __future__ import annotations

import shutil
import sys

import pytest
from tracing import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from idle import LIMIT, per_round  # noqa: E402


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
@pytest.mark.skipif(
    sys.version_info[:2] not in ((3, 11), (3, 13)),
    reason="of another CPython: 3.11 or 3.13, because it takes long",
)
@pytest.mark.slow
@pytest.mark.valgrind
def test_a_process_that_nobody_traces_spends_the_same_instructions_loaded_or_not():
    plain = per_round("plain")
    # Hash tables depend on addresses, so two runs of one program sometimes differ by more than
    # LIMIT.
    assert any(abs(per_round("loaded") / plain - 1) <= LIMIT for _ in range(3))
