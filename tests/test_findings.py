"""The pages of findings name tests that exist, in the files that they say, and each finding once.

A row that is open may have no test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DESIGN = ROOT / "docs" / "design"
LETTERS = {"A": 9, "B": 3, "C": 3, "D": 3, "E": 10, "F": 1, "G": 4}
"""The letters of the findings on the checker, and how many each has."""
THIRD = {"H": 5, "M": 8, "L": 14, "V": 8, "S": 5, "G": 14, "K": 8, "A": 6}
PAGES = {
    "security-findings": [f"S{number}" for number in range(1, 20)],
    "retries-findings": [f"R{number}" for number in range(1, 11)],
    "first-hour-findings": [f"F{number}" for number in range(1, 9)],
    "kubeflow-findings": [f"K{number}" for number in range(1, 16)],
    "airflow-findings": [f"A{number}" for number in range(1, 33)],
    "second-review": [
        *(f"N{number}" for number in (*range(1, 12), 13)),
        *(f"R{number}" for number in (*range(1, 9), 11, 12)),
        *("A1", "A2", "C2", "C3", "C4", "C5", "C7", "G1", "G3", "K0", "L1", "L2", "L3", "L4", "L5", "T11"),
    ],
    "third-review": [
        *(f"{letter}{number}" for letter, last in THIRD.items() for number in range(1, last + 1)),
    ],
    "checker-findings": [
        *(f"{letter}{number}" for letter, last in LETTERS.items() for number in range(1, last + 1)),
    ],
}
NAMED = r"`(test_\w+)`: ([a-z0-9_]+(?:, [a-z0-9_]+)*)"


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_the_table_names_is_in_the_file_that_it_names(page: str) -> None:
    files: dict[str, str] = {}  # two folders may have a file of one name
    for path in (ROOT / "tests").rglob("test_*.py"):
        files[path.stem] = files.get(path.stem, "") + path.read_text(encoding="utf-8")
    lines = (DESIGN / f"{page}.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if re.match(r"\| [A-Z]+[0-9]+ \|", line)]
    assert [row.split("|")[1].strip() for row in rows] == PAGES[page]
    for row in rows:
        told = row.split("|")[4]
        named = re.findall(NAMED, told)
        is_open = row.split("|")[3].lstrip().startswith("open")
        assert named or (is_open and told.strip() == "–"), row
        for file, tests in named:
            for test in tests.split(", "):
                assert f"def test_{test}(" in files[file], f"{file}: {test}"
        # A name that stands outside of such a list is checked by nobody.
        assert not re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+){3,}", re.sub(NAMED, "", told)), row


def test_the_pages_on_security_are_linked_from_the_front() -> None:
    assert "docs/security.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "security.md" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
