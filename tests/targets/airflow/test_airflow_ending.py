"""Exit steps and deletions wait until every task has ended: a failed step beside a running one, and random pipelines.

The scheduler is Airflow's; its workers are played, so that the order in which pods end is ours (`ending`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from proofs.airflow_ending import played

from .random_pipelines import SCENES, Graph, Node, graph_of, wrong

WRITTEN = ("compiled", "to_dag", "standalone")


def test_nothing_at_the_end_of_a_run_starts_before_the_last_end(tmp_path: Path) -> None:
    asked = [(0, number, form) for number in range(len(SCENES)) for form in WRITTEN]
    asked += [(20, number, None) for number in range(6)]  # type: ignore[list-item]
    seen = {result["name"]: result["wrong"] for result in played(asked, tmp_path, at_once=len(asked))}
    assert seen == {graph_of(*each).name: [] for each in asked}


GRAPH = Graph(
    "g",
    "compiled",
    [Node("quick", []), Node("long", []), Node("join", ["quick", "long"])],
    {"bye": "always"},
    ["c0"],
    codes={"quick": [1], "long": [0], "join": [0], "bye": [0]},
)
RIGHT = [
    ("claim", "c0"), ("made", "quick"), ("made", "long"), ("ended", "quick"), ("ended", "long"), ("made", "bye"),
    ("ended", "bye"), ("unclaim", "c0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("moved", "to", "words"),
    [
        (("made", "bye"), 4, "bye started while long ran"),
        (("unclaim", "c0"), 4, "the volume c0 was deleted while long ran"),
        (("unclaim", "c0"), 6, "the volume c0 was deleted while bye ran"),
        (("made", "long"), 5, "long started after bye"),
        (("unclaim", "c0"), None, "left behind: ['c0']"),
        (("made", "bye"), None, "missing: {'bye': 1}"),
    ],
)
def test_what_comes_too_early_or_not_at_all_is_seen(moved: tuple[str, str], to: int | None, words: str) -> None:
    events = [event for event in RIGHT if event != moved]
    if to is not None:
        events.insert(to, moved)
    assert wrong(GRAPH, RIGHT, "failed", {}) == []
    assert any(words in line for line in wrong(GRAPH, events, "failed", {}))
    assert "the run is success" in wrong(GRAPH, RIGHT, "success", {})
