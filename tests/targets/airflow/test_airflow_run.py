"""Whole runs in a real Airflow: approvals answered by a person, sub-pipelines and nested fan-out.

Its API server is the stand-in, where every pod ends well at once; what is looked at is what Airflow starts, and when.

Tests gpuflow/airflow/approvals.py.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .home import Home
from .stand_in import StandIn, ended, running

HERE = Path(__file__).parent
ASKING = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: asking
defaults: {image: i}
steps:
  ask: {approval: {message: "Publish {{ it }}?", timeout: LIMIT}}
  publish: {needs: ask, command: [publish]}
exit:
  bye: {command: [bye]}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with StandIn() as server:
        yield server


@pytest.fixture(scope="module")
def home(server: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("airflow")
    connection = {"kube_config_path": str(server.kubeconfig(folder)), "in_cluster": False}
    home = Home(folder, Path(sys.executable).parent, connection)
    home.migrate()
    return home


@pytest.fixture(autouse=True)
def fresh(server: StandIn) -> None:
    server.made.clear()
    server.pods.clear()
    server.stories = itertools.repeat([running(), ended(0)])


def started(server: StandIn) -> list[str]:
    """The commands of all pods, in the order in which they were made."""
    return [" ".join(pod["spec"]["containers"][0]["command"]) for pod in server.made]


@pytest.mark.parametrize(
    ("answer", "limit", "good", "pods", "words"),
    [
        ("Approve", "1h", True, ["publish", "bye"], "Approved"),
        ("Reject", "1h", False, ["bye"], "refused: Publish {{ it }}?"),
        ("nothing", "1s", False, ["bye"], "nobody answered within 0:00:01: Publish {{ it }}?"),
    ],
)
def test_a_person_decides_whether_the_run_goes_on(
    home: Home, server: StandIn, tmp_path: Path, answer: str, limit: str, good: bool, pods: list[str], words: str
) -> None:
    (tmp_path / "asking.yaml").write_text(ASKING.replace("LIMIT", limit))
    home.compile(tmp_path / "asking.yaml")
    person = home.answering(answer)
    try:
        done = home.test("asking")
    finally:
        person.kill()
        person.wait()
    assert (done.returncode == 0) == good, done.stdout[-4000:]
    assert started(server) == pods
    assert words in done.stdout


EVALUATIONS = {
    **{f"generate {suite} {shard}": 1 for suite in ("mmlu", "gsm8k", "arc") for shard in (0, 1)},
    # Nested fan-out of a sub-pipeline that has a condition on the item around it.
    **{f"judge {suite} {seed}": 1 for suite in ("mmlu", "arc") for seed in (1, 2)},
    **{f"sum {suite}": 1 for suite in ("mmlu", "arc")},
    "sweep": 1,
    "table": 1,
}


@pytest.mark.parametrize(
    ("params", "more"),
    [
        ({}, ["prepare", "push", "report-release"]),
        # The whole sub-pipeline is skipped, the step inside that runs anyway included.
        ({"deploy": False}, []),
    ],
)
def test_sub_pipelines_run_for_their_items_and_under_their_conditions(
    home: Home, server: StandIn, params: dict[str, bool], more: list[str]
) -> None:
    home.compile(HERE / "cases" / "sub-pipelines.yaml")
    person = home.answering("Approve")
    try:
        done = home.test("sub-pipelines", **params)
    finally:
        person.kill()
        person.wait()
    assert done.returncode == 0, done.stdout[-4000:]
    assert Counter(started(server)) == {**EVALUATIONS, **dict.fromkeys(more, 1)}
    order = started(server)
    for before, after in (("generate mmlu 1", "judge mmlu 1"), ("judge arc 2", "sum arc"), ("sum mmlu", "table")):
        assert order.index(before) < order.index(after)
