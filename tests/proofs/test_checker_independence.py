"""The judge knows nothing of the checker: what is true is not what we think."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.differential.oracle import ENGINES, MODULES, version

ASKED = """
import sys
from proofs.checker.draw_case import case
from proofs.checker.judge import Judge
from proofs.checker.worlds import questions, refusals
for number in range(40):
    drawn = case(f"1/{number}")
    refusals(drawn) or questions(drawn)
print(sorted(name for name in sys.modules if name.startswith("gpuflow.checker")))
"""


def test_drawing_and_judging_load_nothing_of_the_checker() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_judge_is_made_of_the_versions_that_the_checker_models() -> None:
    text = (ENGINES / "simulator" / "go.mod").read_text()
    for engine in ("kubernetes", "kueue"):
        assert re.search(rf"^\s*{re.escape(MODULES[engine])} {re.escape(version(engine))}$", text, re.MULTILINE)
