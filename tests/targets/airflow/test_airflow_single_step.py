"""One step in a DAG that somebody writes by hand: its values, its place, its memory, and what it refuses.

Tests gpuflow/airflow/single_step.py and gpuflow/targets/single_step.py.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup, task_group
from airflow.sdk import task as python_task

from gpuflow import Step, text
from gpuflow.airflow import join, param, run_id, task
from gpuflow.airflow.references import resolve_references
from gpuflow.core.errors import GpuflowError
from gpuflow.spec.policies import Retry

MEMORY: dict[str, Any] = {
    "checkpoint": {"path": "/checkpoints", "store": "s3://models/train"},
    "retry": {"failures": 1, "interruptions": 3},
}
TRAIN = Step(image="i", command=["train", {"param": "lr"}], **MEMORY)
PLAIN = Step(image="i", command=["x", {"join": ["--at=", {"param": "x"}]}])


def words(made: Any, **context: Any) -> list[str]:
    """The command as the container gets it."""
    template = made.template if hasattr(made, "template") else made.partial_kwargs["template"]
    run = SimpleNamespace(dag_id="d", run_id="r")
    whole = {"dag_run": run, "params": {"lr": 0.1}, "task": made, **context}
    found: list[str] = resolve_references(template.spec["containers"][0]["command"], whole, str)
    return found


def memory_of(command: list[str]) -> list[str]:
    """What decides which checkpoints and counts an attempt finds."""
    return [word for word in command if word.startswith(("--step=", "--run-id=", "--item="))]


def test_one_step_used_in_several_places_of_a_dag_keeps_its_checkpoints_apart() -> None:
    with DAG(dag_id="d"):
        made = [task(TRAIN, task_id="a", lr=1), task(TRAIN, airflow={"task_id": "b"}, lr=1)]
        for group in ("left", "right"):
            with TaskGroup(group):
                made.append(task(TRAIN, task_id="a", lr=1))
                with TaskGroup("inner"):
                    made.append(task(TRAIN, task_id="a", lr=1))
    memories = {tuple(memory_of(words(one))) for one in made}
    assert len(memories) == len(made) == 6


def test_copies_of_a_mapped_task_group_keep_their_checkpoints_apart() -> None:
    @task_group
    def copies(lr: float) -> Any:
        return task(TRAIN, task_id="train", lr=lr)

    with DAG(dag_id="d") as dag:
        copies.expand(lr=[0.1, 0.1, 0.2])
    made = dag.get_task("copies.train")
    expression = made.template.spec["containers"][0]["command"][-1]
    memories = []
    for index, value in enumerate([0.1, 0.1, 0.2]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(expression), "value", lambda self, context, value=value: value)
            memories.append(tuple(memory_of(words(made, ti=SimpleNamespace(map_index=index)))))
    assert len(set(memories)) == 3


def test_equal_items_of_a_list_from_a_task_keep_their_checkpoints_apart() -> None:
    step = Step(image="i", command=["train", {"item": "lr"}], for_each={"lr": {"param": "lrs"}}, **MEMORY)
    with DAG(dag_id="d"):

        @python_task
        def rates() -> list[float]:
            return [0.1, 0.1]

        made = task(step, lrs=rates())
    copies = [
        tuple(memory_of(words(made, task=SimpleNamespace(item={"lr": 0.1}), ti=SimpleNamespace(map_index=index))))
        for index in (0, 1)
    ]
    assert copies[0] != copies[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (param("lr"), "0.1"),
        (join("a-", param("lr")), "a-0.1"),
        ((1, "b"), '[1,"b"]'),
        (Path("/data/x"), "/data/x"),
        ("{{ ds }} $(HOME)", "{{ ds }} $$(HOME)"),
    ],
)
def test_values_of_every_kind_reach_the_command(value: Any, text: str) -> None:
    with DAG(dag_id="d"):
        made = task(PLAIN, x=value)
    assert words(made) == ["x", f"--at={text}"]


def test_a_condition_may_ask_for_what_another_task_returns() -> None:
    with DAG(dag_id="d"):

        @python_task
        def count() -> int:
            return 4

        made = task(Step(image="i", command=["x"], when="params.n > 3"), n=count())
    assert made.upstream_task_ids == {"count"}
    ti = SimpleNamespace(task_id="step", dag_id="d", run_id="r", map_index=-1, xcom_pull=lambda **_: 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(made.when.terms[0]), "value", lambda self, context: 4)
        assert made.when.value({"ti": ti}) is True


@pytest.mark.parametrize(
    ("step", "values", "words_of_error"),
    [
        ({"command": ["x"]}, {}, "expected a gpuflow.Step, not a dict"),
        (Step(image="i", command=["x"], needs=["y"]), {}, "needs belongs to the pipeline"),
        (Step(image="i", command=["x"], if_skipped="run"), {}, "if_skipped belongs to the pipeline"),
        (Step(image="i", command=["x"], on="failure"), {}, "on belongs to the pipeline"),
        (Step(image="i", command=["x"], volumes={"/d": {"new_claim": "c"}}), {}, "new_claim belongs to the pipeline"),
        (Step(image="i", command=["x", {"item": "s"}]), {}, "no {item: s}"),
        (Step(image="i", command=["x", {"param": "site"}]), {}, "site is an argument of task itself"),
        (PLAIN, {"x": {1, 2}}, '"x" is a set'),
        (PLAIN, {"x": [object()]}, '"x" is a list'),
        (PLAIN, {"x": "s3://{{ task_instance.xcom_pull('a') }}/x"}, "contains a template"),
        (Step(image="i", command=["x"], for_each={"s": {"param": "x"}}), {"x": "abc"}, "which is 'abc'"),
    ],
)
def test_what_a_step_on_its_own_cannot_be_is_refused_by_name(
    step: Any, values: dict[str, Any], words_of_error: str
) -> None:
    with DAG(dag_id="d"), pytest.raises(GpuflowError) as refused:
        task(step, **values)
    assert words_of_error in str(refused.value)


def test_a_task_instead_of_its_value_is_refused_by_name() -> None:
    with DAG(dag_id="d"):
        first = task(PLAIN, task_id="first", x=run_id())
        with pytest.raises(GpuflowError, match='"x" is the task first, not its value'):
            task(PLAIN, x=first)


@pytest.mark.parametrize(("source", "values"), [({"param": "seeds"}, {"seeds": [1, 1]}), ([1, 1], {})])
def test_equal_items_of_a_step_with_a_memory_are_refused(source: Any, values: dict[str, Any]) -> None:
    step = Step(image="i", command=["train", {"item": "s"}], for_each={"s": source}, **MEMORY)
    with DAG(dag_id="d"), pytest.raises(GpuflowError, match="runs twice over 1"):
        task(step, **values)


def test_the_steps_budget_wins_over_default_arguments_and_is_filled_by_them_where_it_is_silent() -> None:
    with DAG(dag_id="d", default_args={"retries": 4}):
        spoken, silent = task(TRAIN, task_id="a", lr=1), task(PLAIN, task_id="b", x=1)
    assert (spoken.budgets.any, spoken.budgets.failures) == (None, 1)
    assert (silent.budgets.any, silent.retries) == (4, 4)


def test_a_plain_number_of_a_step_is_airflows_own_retries_whatever_default_arguments_say() -> None:
    step = PLAIN.model_copy(update={"retry": Retry.model_validate(2)})
    none = PLAIN.model_copy(update={"retry": Retry.model_validate(0)})
    with DAG(dag_id="d", default_args={"retries": 4}):
        two, no = task(step, task_id="a", x=1), task(none, task_id="b", x=1)
    assert (two.budgets.any, two.retries) == (2, 2)
    assert (no.budgets.any, no.retries) == (0, 0)


def test_a_site_is_looked_for_beside_the_dag_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our-site.yaml").write_text("apiVersion: gpuflow/v1\nkind: Site\nname: ours\nnamespace: nlp\n")
    source = "from gpuflow.airflow import task\ndef use(step):\n    return task(step, site='our-site.yaml', x=1)\n"
    scope: dict[str, Any] = {"__file__": str(tmp_path / "dag.py")}
    exec(compile(source, str(tmp_path / "dag.py"), "exec"), scope)
    with DAG(dag_id="d"):
        assert scope["use"](PLAIN).namespace == "nlp"


def test_any_gpu_in_a_dag_that_somebody_writes() -> None:
    with DAG(dag_id="d"):
        spec = task(Step(image="i", command=["x"], gpu=1), task_id="a").template.spec
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "nodeSelector" not in spec and "affinity" not in spec


def test_text_like_a_template_is_questioned_in_the_log_and_reaches_the_program(
    caplog: pytest.LogCaptureFixture,
) -> None:
    step = Step(image="i", command=["x", "{{ ds }}", text("{{ ts }}"), {"param": "lr"}, {"param": "day"}])
    with DAG(dag_id="d"):
        made = task(step, task_id="a", lr="{{ params.lr }}", day=text("{{ ds }}"))
    assert words(made)[-5:] == ["x", "{{ ds }}", "{{ ts }}", "{{ params.lr }}", "{{ ds }}"]
    said = [record.getMessage() for record in caplog.records if record.name == "gpuflow.airflow.single_step"]
    assert [line.split(": GF341 ")[1].split(" is plain")[0] for line in said] == [
        "command: {{ ds }}",
        "lr={{ params.lr }}",
    ]
    assert "param(…)" in said[1]
    assert all(__file__ in line for line in said)
