"""Every relative link of the documentation leads to a file that is there, and its anchor to a heading of that file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)>\s]+)>?(?: \"[^\"]*\")?\)")
PATH = re.compile(r"`((?:gpuflow|tests|proofs|docs|locks|bench|tools)/[\w./-]*)`")
FOLDERS = ("docs", "proofs", "argo_templates", "kfp_components", "dags")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md")))
)


def prose(path: Path) -> str:
    return FENCED.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path: Path) -> frozenset[str]:
    """The names that GitHub gives to the headings of a page, and those that it sets itself."""
    text, found = prose(path), set[str]()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        number = next(n for n in range(1000) if (f"{name}-{n}" if n else name) not in found)
        found.add(f"{name}-{number}" if number else name)
    return frozenset(found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)))


def test_headings_have_the_anchors_of_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b_c`: d, e\n## Twice\n## Twice\n```\n# no heading\n```\n### [Link](x.md) – dash\n")
    assert anchors(page) == {"a-b_c-d-e", "twice", "twice-1", "link--dash"}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    broken = []
    for link in LINK.findall(re.sub(r"(`+).*?\1", "", prose(ROOT / page))):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (ROOT / page).parent / place if place else ROOT / page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.resolve())):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize(
    ("page", "least"), [("docs/follow-a-release.md", 20), ("CONTRIBUTING.md", 5), ("proofs/README.md", 3)]
)
def test_a_page_that_shows_the_way_names_files_that_are_there(page: str, least: int) -> None:
    named = PATH.findall(prose(ROOT / page))
    assert len(named) > least
    assert [path for path in named if not (ROOT / path).exists()] == []
