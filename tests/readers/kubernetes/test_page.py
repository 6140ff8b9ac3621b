"""The page of kinds names every kind, every finding, and what silences it."""

from __future__ import annotations

import re

from gpuflow.core.codes import CODES
from gpuflow.readers.findings.rules import ANNOTATION
from gpuflow.readers.kubernetes.kinds import KINDS
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "foreign-kinds.md").read_text()


def test_every_kind_is_on_the_page() -> None:
    named = set(re.findall(r"[A-Z][A-Za-z]+", PAGE))
    assert {kind for kind, _ in KINDS} <= named


def test_every_finding_about_documents_of_others_is_on_the_page() -> None:
    assert {code for code in CODES if "GF761" <= code <= "GF784"} <= set(re.findall(r"GF[0-9]{3}", PAGE))
    assert ANNOTATION in PAGE
