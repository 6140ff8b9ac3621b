"""Setups and teardowns on a real Airflow: who runs after a failure, and what a failed teardown does to the run.

The API server is the stand-in, where a pod ends as its command says; functions are run here, as their container would.

Tests gpuflow/targets/airflow/flow.py and gpuflow/spec/engine_options/rules.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.spec.loading import loads
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow

from .home import Home
from .stand_in import BAD, GOOD, StandIn
from .test_airflow_functions import ran

__all__ = ["gpuflow"]
CLEANED = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: cleaned
defaults: {image: i, retry: 0}
steps:
  create: {command: [create], engines: {airflow: {setup: true}}}
  train: {needs: create, command: [train]}
  drop: {needs: train, command: [drop], engines: {airflow: {teardown: create}}}
  audit:
    needs: train
    command: [audit]
    engines: {airflow: {teardown: {setups: [create], on_failure_fail_dagrun: true}}}
exit:
  bye: {command: [bye]}
"""
ALONE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: alone
defaults: {image: i, retry: 0}
steps:
  warm: {command: [warm], engines: {airflow: {setup: true}}}
  train: {needs: warm, command: [train]}
exit:
  bye: {command: [bye]}
"""
AUDITED = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: audited
defaults: {image: i, retry: 0}
steps:
  create: {command: [create]}
  train: {needs: create, command: [train]}
  audit:
    needs: train
    command: [audit]
    engines: {airflow: {teardown: {setups: [create], on_failure_fail_dagrun: true}}}
"""
BY_HAND = """\
from airflow.sdk import DAG, Param, task, teardown
from gpuflow import Step
from gpuflow.airflow import gpu_step, gpu_task

with DAG(dag_id="by_hand", schedule=None, params={"lr": Param(0.25, type="number")}):

    @task
    def extract() -> str:
        return "s3://lake/$(DAY)"

    @gpu_task(image="i", gpu=1, namespace="ml", retry=0)
    def train(path: str, lr: float, ds: str | None = None, params: dict | None = None) -> None:
        print("trained", path, lr, ds[:2], params["lr"])

    @teardown
    @gpu_task(image="i", namespace="ml", retry=0)
    def drop(name: str) -> None:
        print("dropped", name)

    create = gpu_step(Step(image="i", command=["create"], retry=0), namespace="ml", task_id="create").as_setup()
    sweep = gpu_step(Step(image="i", command=["sweep", {"param": "seed"}], retry=0), namespace="ml", task_id="sweep")
    work = train(extract(), lr="{{ params.lr }}")
    mapped = train.override(task_id="mapped").partial(path="x").expand(lr=[1, 2])
    create >> [work, mapped, sweep.expand(seed=[7, 8])] >> drop("index")
    create >> drop("other")
"""


class Ending:
    """Every pod ends well, but those whose command begins with one of these words."""

    def __init__(self, server: StandIn, bad: tuple[str, ...]) -> None:
        self.server, self.bad = server, bad

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        command = self.server.made[-1]["spec"]["containers"][0]["command"]
        return BAD if command[0] in self.bad else GOOD


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
    for name, text in (("cleaned", CLEANED), ("alone", ALONE), ("audited", AUDITED)):
        (folder / f"{name}.yaml").write_text(text)
        home.compile(folder / f"{name}.yaml")
    (home.dags / "by_hand.py").write_text(BY_HAND)
    return home


def commands(server: StandIn) -> list[list[str]]:
    return [pod["spec"]["containers"][0]["command"] for pod in server.made]


@pytest.mark.parametrize(
    ("dag", "bad", "good", "pods"),
    [
        ("cleaned", "train", False, {"create", "train", "audit", "drop", "bye"}),
        ("cleaned", "drop", True, {"create", "train", "audit", "drop", "bye"}),
        ("cleaned", "audit", False, {"create", "train", "audit", "drop", "bye"}),
        ("cleaned", "create", False, {"create", "bye"}),
        # An exit step runs although a setup failed that no teardown belongs to.
        ("alone", "warm", False, {"warm", "bye"}),
        ("alone", "", True, {"warm", "train", "bye"}),
        # A teardown that may fail the run hides no failure before it.
        ("audited", "train", False, {"create", "train", "audit"}),
        ("audited", "audit", False, {"create", "train", "audit"}),
    ],
)
def test_a_teardown_runs_after_failures_and_its_own_failure_fails_no_run(
    home: Home, server: StandIn, dag: str, bad: str, good: bool, pods: set[str]
) -> None:
    server.made.clear()
    server.pods.clear()
    server.stories = Ending(server, (bad,))
    done = home.test(dag)
    assert (done.returncode == 0) == good, done.stdout[-4000:]
    assert {command[0] for command in commands(server)} == pods


def test_functions_and_steps_in_a_dag_that_somebody_writes(home: Home, server: StandIn, tmp_path: Path) -> None:
    server.made.clear()
    server.pods.clear()
    server.stories = Ending(server, ("sweep",))
    done = home.test("by_hand")
    assert done.returncode != 0, done.stdout[-4000:]  # a copy of the sweep failed, and the teardown ran all the same
    made = commands(server)
    assert [command for command in made if command[0] == "create"] == [["create"]]
    assert sorted(command for command in made if command[0] == "sweep") == [["sweep", "7"], ["sweep", "8"]]
    said = [ran(command, tmp_path)[1].stdout.strip() for command in made if command[0] == "python3"]
    assert sorted(said) == [
        "dropped index",
        "dropped other",
        "trained s3://lake/$(DAY) 0.25 20 0.25",
        "trained x 1 20 0.25",
        "trained x 2 20 0.25",
    ]


def pipeline(body: str) -> str:
    return f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {{image: i}}\n{body}"


STEPS = """steps:
  a: {command: [a]%s}
  b: {needs: a, command: [b]%s}
  c: {needs: b, command: [c]%s}
"""
SETUP = "engines: {airflow: {setup: true}}"
TEAR = ", engines: {airflow: {teardown: %s}}"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (STEPS % ("", "", TEAR % "x"), 'belongs to "x", which is no step'),
        (STEPS % ("", TEAR % "c", ""), 'does not come after its setup "c"'),
        (STEPS % ("", TEAR % "a", ""), 'step "c" needs "b", a teardown'),
        (STEPS % ("", "", TEAR % "[a]" + ", if_skipped: run"), "is a teardown, and has if_skipped"),
        (STEPS % ("", "", TEAR % "[a]" + ", for_each: {x: [1]}"), "is a teardown, and has for_each"),
        (STEPS % (", for_each: {x: [1]}", "", TEAR % "a"), "is a setup, and has for_each"),
        (STEPS % ("", ", if_skipped: run", TEAR % "a"), "follows the setup"),
        (STEPS % ("", "", TEAR % "[]"), "teardown names no setup"),
        (STEPS % ("", "", ", engines: {airflow: {setup: true, teardown: a}}"), "is a setup and a teardown"),
        (STEPS % ("", "", "") + f"exit: {{e: {{command: [e], {SETUP}}}}}", 'exit step "e" is no setup'),
        ("engines: {airflow: {default_args: {setup: true}}}\n" + STEPS % ("", "", ""), "setup is said of one step"),
    ],
)  # fmt: skip
def test_what_contradicts_setup_and_teardown_is_refused_by_name(body: str, words: str) -> None:
    with pytest.raises(GpuflowError) as refused:
        loads(pipeline(body))
    assert "GF365" in str(refused.value) and words in str(refused.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"steps:\n  a: {{command: [a]}}\n  c: {{needs: a, command: [c]{TEAR % 'a'}}}\n", "no step that is sure"),
        (
            "steps:\n  s:\n    pipeline: {apiVersion: gpuflow/v1, kind: Pipeline, name: q, steps: {x: {image: i, "
            f"command: [x], {SETUP}}}, y: {{image: i, needs: x, command: [y]}}}}}}\n",
            'the sub-pipeline "s" has setups',
        ),
    ],
)
def test_what_airflow_would_refuse_or_wait_for_is_refused_before(
    gpuflow: Gpuflow, tmp_path: Path, body: str, words: str
) -> None:
    (tmp_path / "p.yaml").write_text(pipeline(body))
    done = gpuflow("compile", str(tmp_path / "p.yaml"), "--target", "airflow")
    assert done.code != 0 and "GF365" in done.err and words in done.err
