"""docs/guides/argo-gitops.md: its commands print what it says. `--update-golden` writes what they print now."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.engines import build
from tests.gitops import action
from tests.gitops.conftest import WHO, git, no_index
from tests.gitops.guide import Shell, matches, steady, told_again

GUIDE = ROOT / "docs" / "guides" / "argo-gitops.md"
DETAILS = ROOT / "docs" / "reference" / "gitops.md"


@pytest.fixture
def shell(checkout: Path, tmp_path: Path) -> Shell:
    """An empty home; the address of gpuflow is that of the copy of this checkout."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "LANG"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    source = {"URL": f"file://{checkout}", "COMMIT": git(checkout, "rev-parse", "HEAD").strip()}
    return Shell(tmp_path, {**kept, **WHO, **source, "HOME": str(home), "PATH": path, "NO_COLOR": "1"})


def summary(shell: Shell, checkout: Path, temp: Path) -> str:
    """What the Action of the guide's workflow writes for the guide's change."""
    workflow = yaml.safe_load((shell.folder / ".github" / "workflows" / "gpuflow.yaml").read_text())
    (given,) = [step["with"] for step in workflow["jobs"]["check"]["steps"] if step["uses"] == "./.gpuflow"]
    git(shell.folder, "update-ref", "refs/remotes/origin/main", "HEAD~1")
    temp.mkdir()
    ended = action.run(shell.folder, temp, checkout, given, installed=False)
    if ended.status:
        no_index(ended.log)
    return ended.summary


def test_the_guide_says_what_its_commands_print(
    shell: Shell, checkout: Path, tmp_path: Path, golden: Callable[[Path, str], None]
) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    again = told_again(text, shell, {None})
    written = steady(summary(shell, checkout, tmp_path / "runner"))
    block = re.compile(r"(^```markdown summary\n).*?(^```$)", re.DOTALL | re.MULTILINE)
    golden(GUIDE, again)
    details = DETAILS.read_text(encoding="utf-8")
    assert block.search(details)
    golden(DETAILS, block.sub(lambda found: found[1] + written + found[2], details))


@pytest.mark.go
def test_what_kubectl_builds_in_the_guide(shell: Shell, golden: Callable[[Path, str], None]) -> None:
    """Only gpuflow and kubectl: the hooks have their own test, and nothing here is committed."""
    build.build(["kubectl"])
    shell.env["PATH"] = os.pathsep.join([str(build.binary("kubectl").parent), shell.env["PATH"]])
    text = GUIDE.read_text(encoding="utf-8")
    before, mark, after = text.partition("## 3. A hook\n")
    golden(GUIDE, told_again(before, shell, {None, "kubectl"}) + mark + after)


def test_dots_stand_for_any_lines_and_nothing_else_is_forgiven() -> None:
    assert matches("a\nb\nc\n", "a\n...\nc\n")
    assert matches("a\nc\n", "a\n...\nc\n")
    assert not matches("a\nb\n", "a\n")
    assert not matches("a.\n", "ab\n")


def test_dots_do_not_hide_a_command_that_failed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    page = "```console\n$ echo a; exit 3\n...\n$ echo b; false\nb\n$ true\n$ true\n...\n```"
    shell = Shell(tmp_path, {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]})
    told = told_again(page.replace("exit 3", "(exit 3)"), shell, {None})
    assert told == "```console\n$ echo a; (exit 3)\na\n(exit code 3)\n$ echo b; false\nb\n$ true\n$ true\n...\n```"


def test_variables_and_lines_that_go_on_reach_the_next_command(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    page = '```console\n$ cat > f << EOF\n> a: $A\n> EOF\n$ B="x \\\n  y"\n$ cat f; echo $B\na: 1\nx y\n```'
    shell = Shell(tmp_path, {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"], "A": "1"})
    assert told_again(page, shell, {None}) == page
