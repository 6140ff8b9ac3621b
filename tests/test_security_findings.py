"""The page of security findings names tests that exist, in the files that it says, and each finding once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "design" / "security-findings.md"
COUNT = 19


def test_every_test_that_the_table_names_is_in_the_file_that_it_names() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| S")]
    numbers = [int(row.split("|")[1].strip().removeprefix("S")) for row in rows]
    assert numbers == list(range(1, COUNT + 1))
    for row in rows:
        told = row.split("|")[4]
        named = re.findall(r"`(test_\w+)`: ([a-z0-9_]+(?:, [a-z0-9_]+)*)", told)
        assert named, row
        for file, tests in named:
            for test in tests.split(", "):
                assert f"def test_{test}(" in files[file], f"{file}: {test}"
        # A name that stands outside of such a list is checked by nobody.
        loose = re.sub(r"`test_\w+`: [a-z0-9_]+(?:, [a-z0-9_]+)*", "", told)
        assert not re.findall(r"\b[a-z0-9]+(?:_[a-z0-9]+){3,}", loose), row


def test_the_pages_on_security_are_linked_from_the_front() -> None:
    assert "docs/security.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "security.md" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
