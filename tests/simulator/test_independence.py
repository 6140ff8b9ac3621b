"""The judge knows nothing of the checker: what is true is not what we think."""

from __future__ import annotations

import subprocess
import sys

ASKED = """
import sys
from tests.simulator.draw_case import case
from tests.simulator.judge import Judge
from tests.simulator.worlds import questions, refusals
for number in range(40):
    drawn = case(f"1/{number}")
    refusals(drawn) or questions(drawn)
print(sorted(name for name in sys.modules if name.startswith("gpuflow.checker")))
"""


def test_drawing_and_judging_load_nothing_of_the_checker() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
