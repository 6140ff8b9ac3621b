"""Every example of Argo's own project is read: what is exact, what is bounded, what is unknown and why.

`docs/design/readers-corpus.md` has the table; `--update-golden` writes it anew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand
from gpuflow.readers import Document, ForeignObject, Library, Options, PassiveObject, foreign_in, read_documents
from tests.conftest import ROOT
from tests.readers.argo.reading import SITE

PAGE = ROOT / "docs" / "design" / "readers-corpus.md"
BEGIN, END = "<!-- Argo: written by tests/readers/argo/test_argo_corpus.py -->\n", "<!-- Argo: end -->\n"
GOLDEN = Path(__file__).parent / "golden" / "corpus.txt"
REASONS = {
    r"which was not given": "a template, or a list of values, that stands in another file",
    r"is only known in the run": "a loop over what a step prints",
    r"calls itself": "a template that calls itself",
    r"an expression that gpuflow does not work out": "a loop over what an expression gives",
    r"is not read yet": "a manifest of a kind that is not read yet",
    r"exclude each other": "conditions that may exclude each other",
    r"may let fewer run at once": "a mutex or semaphore whose limit is not in the file",
    r"parallelism": "children of a template that are more than a pod",
    r"create": "objects that a step creates and leaves behind",
    r"hook": "hooks whose moment is not certain",
}


@dataclass(frozen=True)
class Answer:
    file: str
    kind: str
    bound: str
    value: str
    because: str

    @property
    def line(self) -> str:
        return " ".join(part for part in (self.file, self.kind, self.bound, self.value, self.because) if part)


def answers(corpora: Path, *, together: bool) -> Iterator[Answer]:
    """What is said of each object; each file alone, or with all others at hand."""
    folder = corpora / "argo-workflows" / "examples"
    files = sorted(folder.rglob("*.yaml"))
    read: dict[Path, list[Document]] = {}
    refused: dict[Path, str] = {}
    for file in files:
        try:
            read[file] = read_documents(str(file))
        except GpuflowError as refusal:
            refused[file] = refusal.findings[0].code
    everything = Library(tuple(each for documents in read.values() for each in documents))
    for file in files:
        name = str(file.relative_to(folder))
        if file in refused:
            yield Answer(name, "", "refused", "", refused[file])
            continue
        active, _ = foreign_in(read[file])
        for each in active:
            found = (ForeignObject(each.document, everything) if together else each).demand(Options(SITE))
            if isinstance(found, PassiveObject):
                yield Answer(name, each.document.kind, "passive", "", "")
                continue
            yield _answer(name, each.document.kind, found)


def _answer(name: str, kind: str, demand: Demand) -> Answer:
    if any(finding.severity == "error" for finding in demand.refusals):
        return Answer(name, kind, "never", "", demand.refusals[0].message)
    pods = demand.peak.get("pods")
    if pods is None:
        return Answer(name, kind, "exact", "0", "")
    because = re.sub(r" \([^ ()]*:\d+:\d+\)", "", pods.because or "")
    return Answer(name, kind, pods.bound, "" if pods.value is None else str(pods.value), because)


@pytest.fixture(scope="module")
def alone(corpora: Path) -> list[Answer]:
    return list(answers(corpora, together=False))


@pytest.fixture(scope="module")
def together(corpora: Path) -> list[Answer]:
    return list(answers(corpora, together=True))


def test_every_example_is_answered(alone: list[Answer], golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN, "".join(f"{answer.line}\n" for answer in alone))


def test_what_is_said_with_all_files_at_hand_is_never_less(alone: list[Answer], together: list[Answer]) -> None:
    order = ("unknown", "at-most", "exact")
    for one, other in zip(alone, together, strict=True):
        if one.bound in order and other.bound in order:
            assert order.index(other.bound) >= order.index(one.bound), (one, other)


def test_the_page_says_what_was_found(
    alone: list[Answer], together: list[Answer], request: pytest.FixtureRequest
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    section = _section(alone, together)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(before + BEGIN + section + END + after, encoding="utf-8")
        return
    assert page == before + BEGIN + section + END + after


def _section(alone: list[Answer], together: list[Answer]) -> str:
    words = (
        ("exact", "exact"),
        ("at-most", "at most"),
        ("unknown", "unknown"),
        ("passive", "starts nothing by itself"),
        ("never", "never runs as it is written"),
        ("refused", "not a sound YAML document"),
    )
    lines = ["| answer for `pods` | each file alone | all files at hand |", "|---|---|---|"]
    first, second = (Counter(each.bound for each in found) for found in (alone, together))
    lines += [f"| {said} | {first[word]} | {second[word]} |" for word, said in words if first[word] or second[word]]
    lines += [f"| objects | {len(alone)} | {len(together)} |", ""]
    lines += ["| why not exact | each file alone | all files at hand |", "|---|---|---|"]
    first, second = (Counter(_reason(each) for each in found if each.because) for found in (alone, together))
    reasons = sorted(first.keys() | second.keys(), key=lambda reason: (-first[reason], reason))
    lines += [f"| {reason} | {first[reason]} | {second[reason]} |" for reason in reasons]
    return "\n" + "\n".join(lines) + "\n\n"


def _reason(answer: Answer) -> str:
    if answer.bound == "refused":
        return "a key that stands twice in one map"
    return next((said for pattern, said in REASONS.items() if re.search(pattern, answer.because)), answer.because)
