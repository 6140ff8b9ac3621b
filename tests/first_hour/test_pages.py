"""Every command of README, install page, tutorial, guides and reference works as printed, and prints what they show.

`--update-golden` writes what the commands print now.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.first_hour.pages import ENGINES, HERE, NEEDS_A_CLUSTER, PAGES, READ_ONLY, RUN, text_of
from tests.gitops.guide import BLOCK, COMMAND, Shell, told_again

MINE = [name for name, page in PAGES.items() if HERE in page.environments and page.elsewhere is None]
CHOICE = re.compile(r"(?<=^\$ ENGINE=)\w+", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("name", MINE)
def test_the_page_says_what_its_commands_print(name: str, tmp_path: Path, golden: Callable[[Path, str], None]) -> None:
    page, text = PAGES[name], text_of(name)
    here = tmp_path / "here"
    if page.folder:
        shutil.copytree(ROOT / page.folder, here)
    else:
        here.mkdir()
    (tmp_path / "home").mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {"HOME": str(tmp_path / "home"), "PATH": path, "NO_COLOR": "1", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    again = told_again(CHOICE.sub(HERE, text), Shell(here, env), {None, "timing", HERE})
    golden(ROOT / name, _as_chosen(again, text))


def _as_chosen(again: str, text: str) -> str:
    """The page names one engine where its reader names their own."""
    chosen = iter(CHOICE.findall(text))
    return CHOICE.sub(lambda _: next(chosen), again)


def test_no_page_is_left_out() -> None:
    pages = ["README.md", "docs/install.md", "docs/tutorial.md"]
    pages += [f"docs/guides/{path.name}" for path in (ROOT / "docs" / "guides").glob("*.md")]
    reference = [f"docs/reference/{path.name}" for path in (ROOT / "docs" / "reference").glob("*.md")]
    pages += [name for name in reference if "\n```console" in text_of(name)]
    assert sorted(pages) == sorted(PAGES)
    for page in PAGES.values():
        assert page.elsewhere is None or Path(page.elsewhere).name in {path.name for path in ROOT.rglob("tests/*/*.py")}


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("docs/guides/")])
def test_a_guide_is_read_in_ten_minutes(name: str) -> None:
    assert len(text_of(name).splitlines()) <= 300, "details belong into docs/reference/"


@pytest.mark.parametrize("name", PAGES)
def test_no_block_of_a_page_is_left_out(name: str) -> None:
    """A command is run, or the table says why not; and no command stands where nobody looks for it."""
    read, text = [], text_of(name)
    assert text.count("\n```") == 2 * len(BLOCK.findall(text)), "a block that is not closed, or not at the margin"
    for language, label, body in BLOCK.findall(text):
        if language != "console":
            assert language in READ_ONLY, f"a block of {language or 'no language'}: {body[:60]}"
            continue
        commands = [command for command, _ in COMMAND.findall(body)]
        assert commands and body.startswith("$ "), body[:60]
        if label == "cluster":
            read.append(commands[0])
        else:
            assert (label or None) in RUN, label
    listed = NEEDS_A_CLUSTER.get(name, ())
    assert len(read) == len(listed)
    assert all(command.startswith(begin) for command, begin in zip(read, listed, strict=True)), read


@pytest.mark.parametrize("name", PAGES)
def test_no_page_names_a_place_that_is_not_there(name: str) -> None:
    """Who copies a line gets what it says: no owner, address or version that nobody has published."""
    for block in BLOCK.finditer(text_of(name)):
        assert not re.search(r"\bORG\b|git\+URL|@COMMIT\b|@v0\.|github\.com/", block[0]), block[0][:80]


def test_the_tutorial_has_a_way_to_compile_for_every_engine() -> None:
    labels = [label for language, label, _ in BLOCK.findall(text_of("docs/tutorial.md")) if language == "console"]
    assert set(ENGINES) <= set(labels)
