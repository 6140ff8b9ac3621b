"""For every pipeline of the corpus that is there as IR and as compiled workflow, both readers say the same.

Tasks, their order and the limits of loops are equal in all pairs. So are the numbers, wherever both readers have one;
`golden/agreement.txt` lists what only one of them can know, with the reason.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuflow.demands import Bound, Demand
from gpuflow.quantity import Quantity
from gpuflow.readers import read_documents
from tests.conftest import CORPORA
from tests.readers.agreement import (
    FOLDER,
    Reading,
    pairs,
    read_ir,
    read_workflow,
    tasks_of_ir,
    tasks_of_workflow,
)

GOLDEN = Path(__file__).parent / "golden" / "agreement.txt"
WORDS = {
    "items": "how many items a loop has, the workflow gets from a driver's output; the IR has the list or its default",
    "patch": "the recording of Kubeflow's driver has no patch for a task: it was made without the inputs around it",
    "claim": "a claim is created inside the driver's program, which the workflow does not show",
    "cache": "the workflow shows that a task whose result is cached has no pod, so two such tasks may not run together",
    "alternatives": "the IR shows which branches exclude each other: one runs, and of the others their drivers alone",
}
"""Why the two may differ."""


@cache
def pair(name: str) -> tuple[Demand, Demand]:
    _, ir, workflow = next(each for each in pairs(CORPORA) if each[0] == name)
    recorded = json.loads((CORPORA / FOLDER / "driver-pods.json").read_text())
    tree: Any = read_documents(str(ir))[0].tree
    spec = tree.get("pipelineSpec", tree)
    labels = {key: str(each.get("executorLabel")) for key, each in spec["components"].items()}
    patches = recorded.get(ir.relative_to(CORPORA / FOLDER).as_posix(), {})
    return read_ir(ir), read_workflow(workflow, patches, labels)


NAMES = [name for name, _, _ in pairs(CORPORA)] if CORPORA.is_dir() else []


@pytest.fixture
def both(request: pytest.FixtureRequest, corpora: Path) -> tuple[Reading, Reading]:
    ir, workflow = pair(request.param)
    return tasks_of_ir(ir), tasks_of_workflow(workflow)


@pytest.mark.skipif(not NAMES, reason="the corpora are not here")
def test_the_corpus_has_its_pairs() -> None:
    assert len(NAMES) >= 98


@pytest.mark.parametrize("both", NAMES, indirect=True)
def test_both_readers_find_the_same_tasks_order_and_limits(both: tuple[Reading, Reading]) -> None:
    ir, workflow = both
    assert ir.tasks == workflow.tasks
    assert ir.before == workflow.before
    assert ir.loops.keys() == workflow.loops.keys()
    for task, loops in ir.loops.items():
        around = workflow.loops[task]
        assert [(each.name, each.limit) for each in loops] == [(each.name, each.limit) for each in around]
        counted = [(one.copies, other.copies) for one, other in zip(loops, around, strict=True)]
        assert [pair for pair in counted if pair[1] not in (None, pair[0])] == []


def test_the_numbers_are_the_same_or_the_difference_is_explained(
    corpora: Path, golden: Callable[[Path, str], None]
) -> None:
    lines: list[str] = []
    counts: Counter[str] = Counter()
    for name in NAMES:
        found = sorted(set(reasons(*pair(name))))
        counts.update(found or ["equal"])
        lines.append(f"{name}: {', '.join(found) or 'equal'}")
    head = [f"{word}: {counts[word]} pairs; {text}" for word, text in WORDS.items()]
    golden(GOLDEN, "\n".join([f"equal: {counts['equal']} of {len(NAMES)} pairs", *head, "", *lines]) + "\n")


def reasons(ir: Demand, workflow: Demand) -> Iterator[str]:
    """Why each quota key differs; a difference that no reason explains fails."""
    nothing = Bound("exact", Quantity.zero)
    for key in sorted({*ir.peak, *workflow.peak}):
        ours, theirs = ir.peak.get(key, nothing), workflow.peak.get(key, nothing)
        if (ours.bound, ours.value) == (theirs.bound, theirs.value):
            continue
        if "persistentvolumeclaims" in key or "storage" in key:
            assert theirs == nothing
            yield "claim"
        elif theirs.bound == "unknown":
            because = theirs.because or ""
            assert "-driver.outputs.parameters." in because
            yield "items" if "iteration-count" in because else "patch"
        elif ours.value != theirs.value:
            assert "may exclude each other" in (theirs.because or "") and theirs.value is not None
            assert ours.bound == "exact" and ours.value is not None and ours.value < theirs.value, (key, ours, theirs)
            yield "alternatives"
        else:
            assert (ours.bound, theirs.bound) == ("exact", "at-most")
            yield "cache"
