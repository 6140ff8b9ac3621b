"""Functions as steps: what travels into the pod, what runs there, and what comes back. The programs are really run.

Tests gpuflow/airflow/function_runner.py, gpuflow/airflow/function_source.py and gpuflow/airflow/functions.py.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict

import pytest
from airflow.sdk import DAG, setup, task, task_group, teardown

from gpuflow import Step
from gpuflow.airflow import gpu_step, gpu_task, param
from gpuflow.airflow import task as step_task
from gpuflow.airflow.function_source import MAX_BYTES
from gpuflow.airflow.pods import Pod
from gpuflow.core.errors import GpuflowError

XCOM = "/airflow/xcom/return.json"
MEMORY: dict[str, Any] = {
    "checkpoint": {"path": "/checkpoints", "store": "s3://models/train"},
    "retry": {"failures": 1, "interruptions": 3},
}
OUTSIDE = 3
on_gpu = functools.partial(gpu_task, image="i", gpu=1)


class Scores(TypedDict):
    loss: float
    name: str


@dataclass
class Result:
    loss: float
    steps: int


class Pair(NamedTuple):
    left: int
    right: str


@gpu_task(image="i")
def scored(lr: float) -> Scores:
    return {"loss": lr, "name": "best"}


def command_of(made: Any, *, kwargs: dict[str, Any] | None = None, **context: Any) -> list[str]:
    """The command of a task as its container gets it, after Airflow has rendered its arguments."""
    operator = getattr(made, "operator", made)
    if hasattr(operator, "unmap"):
        operator = operator.unmap({"op_kwargs": kwargs or {}})
    run = SimpleNamespace(dag_id="d", run_id="r")
    ti = SimpleNamespace(map_index=0)
    filled = operator.template.resolve({"dag_run": run, "ti": ti, "params": {"lr": 0.5}, "task": operator, **context})
    command: list[str] = filled["spec"]["containers"][0]["command"]
    return command


def ran(command: list[str], folder: Path, *, supervised: bool = False) -> tuple[Any, subprocess.CompletedProcess[str]]:
    """What the program leaves for others, and how it ended. The image's Python is this one."""
    start = command.index("--") + 1 if "--" in command else 0
    # The kubelet makes one `$` of two.
    _, flag, runner, *words = [word.replace("$$", "$") for word in command[start:]]
    runner = runner.replace(XCOM, str(folder / "return.json"))
    environment = {"GPUFLOW_OUTPUTS": str(folder)} if supervised else {}
    program = [sys.executable, flag, runner, *words]
    done = subprocess.run(program, env=environment, text=True, capture_output=True, check=False)
    left = folder / ("return_value" if supervised else "return.json")
    return json.loads(left.read_text()) if left.exists() else None, done


def returned(made: Any, folder: Path, **given: Any) -> Any:
    left, done = ran(command_of(made, **given), folder)
    assert done.returncode == 0, done.stderr
    return left["return_value"]


def test_the_pod_is_that_of_the_same_step_with_a_command() -> None:
    fields: dict[str, Any] = {
        "image": "i:1", "gpu": "a100-80gb x 2", "memory": "8Gi", "queue": "research", "env": {"A": "1"},
        "shm": "1Gi", "volumes": {"/data": {"claim": "data"}}, "labels": {"team": "nlp"}, "timeout": "1h", **MEMORY,
    }  # fmt: skip
    with DAG(dag_id="d"):

        @gpu_task(**fields)
        def train(lr: float) -> None:
            pass

        function = train(0.1).operator
        step = gpu_step(Step(command=["x"], **fields), task_id="step")
    assert function.template.metadata["labels"].pop("gpuflow.dev/step") == "train"
    step.template.metadata["labels"].pop("gpuflow.dev/step")
    assert function.template.metadata == step.template.metadata
    mine, theirs = command_of(function), command_of(step)
    for each in (function, step):
        each.template.spec["containers"][0].pop("command")
    assert function.template.spec == step.template.spec
    assert [word.replace("--step=train", "--step=step") for word in mine[: mine.index("--") + 1]] == theirs[:-1]
    assert (function.budgets, function.supervised) == (step.budgets, step.supervised)


def test_names_of_airflow_and_of_gpuflow_stand_side_by_side() -> None:
    assert step_task is gpu_step
    with DAG(dag_id="d") as dag:

        @task
        def extract() -> str:
            return "x"

        @gpu_task(image="i")
        def train(path: str) -> None: ...

        train(extract()) >> gpu_step(Step(image="i", command=["x"]), task_id="after")
    assert dag.get_task("train").upstream_task_ids == {"extract"}
    assert dag.get_task("after").upstream_task_ids == {"train"}


@pytest.mark.parametrize(
    ("hint", "value", "left"),
    [
        (float, "3", 3.0), (int, "3", 3), (str, "'a$(B) {{ x }}'", "a$(B) {{ x }}"), (bool, "True", True),
        (list, "[1, (2,)]", [1, [2]]), (dict[str, float], "{'a': 1}", {"a": 1.0}), (object, "None", None),
        (Scores, "{'loss': 1, 'name': 'x'}", {"loss": 1.0, "name": "x"}),
        (Result, "{'loss': 1, 'steps': 2}", {"loss": 1.0, "steps": 2}),
    ],
)  # fmt: skip
def test_a_type_hint_says_what_is_returned(hint: Any, value: str, left: Any, tmp_path: Path) -> None:
    with DAG(dag_id="d"):
        made = in_file(tmp_path, f"def f():\n    return {value}\n", hint)()
    assert returned(made, tmp_path) == left


def in_file(folder: Path, text: str, hint: Any = None, **fields: Any) -> Any:
    """A decorated function of a file of its own."""
    file = folder / "dag_file.py"
    file.write_text(text)
    space: dict[str, Any] = {"__name__": "dag_file"}
    exec(compile(text, str(file), "exec"), space)
    function = space["f"]
    if hint is not None:
        function.__annotations__["return"] = hint
    return gpu_task(function, **{"image": "i", **fields})


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (float, "'x'", "the returned value is 'x', and its type hint says float"),
        (int, "True", "its type hint says int"),
        (Scores, "{'loss': 1.0}", "the returned value has no name, which its type hint has"),
        (Scores, "{'loss': 'x', 'name': 'x'}", "returned loss is 'x', and its type hint says float"),
        (dict[str, float], "[1]", "its type hint says a map"),
        (object, "{1}", "a value of type set is not JSON"),
    ],
)
def test_a_broken_promise_fails_the_program(hint: Any, value: str, words: str, tmp_path: Path) -> None:
    with DAG(dag_id="d"):
        made = in_file(tmp_path, f"def f():\n    return {value}\n", hint)()
    left, done = ran(command_of(made), tmp_path)
    assert (left, done.returncode) == (None, 1)
    assert words in done.stderr


def test_several_outputs_are_xcoms_of_their_own_where_the_hint_or_the_decorator_says_so() -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i")
        def plain() -> dict[str, float]:
            return {}

        @gpu_task(image="i", multiple_outputs=False)
        def whole() -> dict[str, float]:
            return {}

        @gpu_task(image="i", multiple_outputs=True)
        def untyped():  # type: ignore[no-untyped-def]  # as people write it
            return {}

        @gpu_task(image="i")
        def nothing() -> None: ...

        @gpu_task(image="i", do_xcom_push=False)
        def quiet() -> float:
            return 1.0

        made = {f.function.__name__: f() for f in (plain, whole, untyped, nothing, quiet)}
        one = scored(0.1)["loss"]
    outputs = {name: (each.operator.multiple_outputs, dict(each.operator.outputs)) for name, each in made.items()}
    value = {"return_value": "json"}
    assert outputs == {
        "plain": (True, value), "whole": (False, value), "untyped": (True, value),
        "nothing": (False, {}), "quiet": (False, {}),
    }  # fmt: skip
    assert one.key == "loss"
    assert {name: each.operator.do_xcom_push for name, each in made.items()} == {
        "plain": True, "whole": True, "untyped": True, "nothing": False, "quiet": False,
    }  # fmt: skip


def test_values_of_arrays_and_named_tuples_are_passed_on(tmp_path: Path) -> None:
    text = "def f():\n    from collections import namedtuple\n    return namedtuple('P', 'left right')(1, 'x')\n"
    with DAG(dag_id="d"):
        made = in_file(tmp_path, text, Pair)()
    assert returned(made, tmp_path) == {"left": 1, "right": "x"}


def test_arguments_travel_as_they_are(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    with DAG(dag_id="d"):

        @gpu_task(image="i")
        def f(text, items, moment, lr, *more, flag=False, ds=None, params=None) -> list:  # type: ignore[no-untyped-def, type-arg]  # so
            return [text, list(items), moment.isoformat(), lr, list(more), flag, ds, params, type(items).__name__]

        plain = f("$(A) {{'}}", ["ü"], moment, param("lr"), 1, flag=True)
    left = returned(plain, tmp_path, ds="2026-01-31", params={"lr": 0.5})
    assert left == ["$(A) {{'}}", ["ü"], moment.isoformat(), 0.5, [1], True, "2026-01-31", {"lr": 0.5}, "list"]
    word = command_of(plain, ds="x")[5]
    assert word.startswith("pickle:")


def test_plain_arguments_are_readable_in_the_pod() -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i", serializer="cloudpickle")
        def f(lr: float, name: str) -> None: ...

        made = f(0.1, name="x")
    assert command_of(made)[5] == 'json:[[0.1],{"name":"x"}]'


def test_what_cannot_be_pickled_is_refused_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i")
        def f(x: Any, lr: float) -> None: ...

        @gpu_task(image="i", serializer="cloudpickle")
        def g(words: set[str]) -> None: ...

        made, other = f(lambda: 1, 0.5), g({"a"})
    with pytest.raises(GpuflowError, match=r"GF349 arguments of f \(function\) are no JSON, and pickle cannot"):
        command_of(made)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(GpuflowError, match=r"GF349 .* \(set\) are no JSON, and cloudpickle is not") as refused:
        command_of(other)
    assert "install cloudpickle on the workers and in the image" in str(refused.value)


def test_airflow_renders_the_arguments_and_leaves_the_pod_alone() -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i")
        def f(day: str) -> str:
            return "{{ not a template }}" + day

        made = f("{{ ds }}").operator
    assert tuple(made.template_fields[:2]) == ("op_args", "op_kwargs")
    context = {"ds": "2026-01-31", "task": made, "dag_run": SimpleNamespace(dag_id="d", run_id="r"), "params": {}}
    made.render_template_fields(context)
    command = made.template["spec"]["containers"][0]["command"]
    assert command[5] == 'json:[["2026-01-31"],{}]'
    assert "{{ not a template }}" in command[4]


def test_copies_of_a_mapped_function_get_their_own_arguments_and_keep_their_state_apart(tmp_path: Path) -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i", **MEMORY)
        def f(base: int, x: int) -> int:
            return base + x

        mapped = f.partial(base=10).expand(x=[1, 2]).operator
        kwargs = f.override(task_id="k").expand_kwargs([{"base": 1, "x": 2}, {"base": 3, "x": 4}]).operator
    assert mapped.partial_kwargs["retries"] == 3
    first, second = (
        command_of(mapped, kwargs={"base": 10, "x": x}, ti=SimpleNamespace(map_index=x - 1)) for x in (1, 2)
    )
    assert [word for word in first if word.startswith("--item=")] == ["--item=copy=0"]
    assert [word for word in second if word.startswith("--item=")] == ["--item=copy=1"]
    left, done = ran(second, tmp_path, supervised=True)
    assert (left, done.returncode) == (12, 0), done.stderr
    assert kwargs.op_kwargs_expand_input.value == [{"base": 1, "x": 2}, {"base": 3, "x": 4}]


def test_one_function_used_twice_keeps_its_checkpoints_apart() -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i", **MEMORY)
        def f() -> None: ...

        @task_group
        def group() -> Any:
            return f()

        made = [f(), f(), f.override(task_id="other")(), group()]
        mapped = [f.expand_kwargs([{}])]
    names = [[word for word in command_of(each) if word.startswith("--step=")] for each in (*made[:3], *mapped)]
    assert names == [["--step=f"], ["--step=f__1"], ["--step=other"], ["--step=f__2"]]


def test_a_checkpoint_brings_the_supervisor_and_outputs_alone_do_not(tmp_path: Path) -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i")
        def light() -> float:
            return 1.5

        @gpu_task(image="i", **MEMORY)
        def heavy() -> float:
            return 1.5

        made = {f.function.__name__: f().operator for f in (light, heavy)}
    assert {name: each.supervised for name, each in made.items()} == {"light": False, "heavy": True}
    assert command_of(made["light"])[:2] == ["python3", "-c"]
    command = command_of(made["heavy"])
    assert command[0] == "gpuflow-run" and "--output=return_value:json" in command
    assert ran(command, tmp_path, supervised=True)[0] == 1.5
    assert returned(made["light"], tmp_path) == 1.5


def test_override_changes_the_step_and_the_task() -> None:
    with DAG(dag_id="d"):
        made = on_gpu(scored.function).override(task_id="more", gpu="h100-80gb", pool="gpus", retry=4)(0.1).operator
    assert (made.task_id, made.pool, made.retries) == ("more", "gpus", 4)
    values = made.template.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert "H100" in str(values)


def test_retries_of_the_dag_count_for_mapped_tasks_that_say_nothing() -> None:
    with DAG(dag_id="d", default_args={"retries": 4}):

        @gpu_task(image="i")
        def f(x: int) -> None: ...

        mapped = f.expand(x=[1]).operator
        spoken = f.override(task_id="g", retry={"failures": 1}).expand(x=[1]).operator
        step = gpu_step(Step(image="i", command=["x", {"param": "a"}]), task_id="s").expand(a=[1])
        plain = f(1).operator
    with DAG(dag_id="e"):
        bare = f.expand(x=[1]).operator
    copies = [mapped.unmap({"op_kwargs": {"x": 1}}), step.unmap({"item": {"a": 1}}), plain]
    assert [(each.budgets.any, each.retries) for each in copies] == [(4, 4)] * 3
    assert (mapped.retries, step.retries, spoken.retries, bare.retries) == (4, 4, 3, 2)


def test_override_changes_what_is_passed_on() -> None:
    with DAG(dag_id="d"):
        whole = scored.override(multiple_outputs=False)(0.1).operator
        with pytest.raises(GpuflowError, match="gpu_task does not take env_vars"):
            scored.override(airflow={"env_vars": {}})
    assert not whole.multiple_outputs and scored.returned.multiple


def test_setup_and_teardown_decorators_of_airflow_work_on_it() -> None:
    with DAG(dag_id="d"):

        @setup
        @gpu_task(image="i")
        def create() -> None: ...

        @teardown(on_failure_fail_dagrun=True)
        @gpu_task(image="i")
        def drop() -> None: ...

        first, last = create(), drop()
        work = scored(0.1)
        first >> work >> last
        late = scored.override(task_id="late")(0.1).as_teardown(setups=work)
    assert first.operator.is_setup and last.operator.is_teardown and last.operator.on_failure_fail_dagrun
    assert "@" not in command_of(last)[4]
    assert late.operator.is_teardown and work.operator.is_setup


def test_the_traceback_shows_the_line_of_the_function(tmp_path: Path) -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i")
        def f() -> None:
            raise ValueError("no such model")

        made = f()
    _, done = ran(command_of(made), tmp_path)
    assert done.returncode == 1
    assert 'File "<gpu_task f>", line 2, in f' in done.stderr
    assert 'raise ValueError("no such model")' in done.stderr


def test_text_over_several_lines_stays_as_it_is(tmp_path: Path) -> None:
    with DAG(dag_id="d"):

        @gpu_task(image="i")
        def f() -> str:
            return """
# not a comment
  end"""

        made = f()
    assert returned(made, tmp_path) == "\n# not a comment\n  end"


def _uses_module() -> Any:
    return json.dumps(1)


def _uses_constant(x: int = OUTSIDE) -> int:
    return x


def _uses_class() -> Result:
    return Result(1.0, 2)


def _uses_class_in_hints(x: Pod | None = None) -> Pod | None:
    value: Pod | None = x
    return value


def _takes_worker(ti: Any = None) -> None: ...


async def _waits() -> None: ...


@pytest.mark.parametrize(
    ("function", "words", "hint"),
    [
        (_uses_module, "uses json, which is defined outside it", "write `import json` inside"),
        (_uses_constant, "uses OUTSIDE, which is defined outside it", "define OUTSIDE inside"),
        (_uses_class, "uses Result, which is defined outside it", "define Result inside"),
        (_takes_worker, "takes ti, which only a worker of Airflow has", "pass the rest as values"),
        (_waits, "is a coroutine or a generator", "asyncio.run"),
        (lambda: 1, "no function with a name", "write it with def"),
        (len, "no function with a name", "write it with def"),
    ],
)
def test_what_a_container_would_lack_is_refused_where_it_is_written(
    function: Callable[..., Any], words: str, hint: str
) -> None:
    with pytest.raises(GpuflowError) as refused:
        gpu_task(function, image="i")
    assert "GF362" in str(refused.value) and words in str(refused.value) and hint in str(refused.value)
    assert f"{__file__}:" in str(refused.value)


def test_type_hints_are_not_evaluated_in_the_container(tmp_path: Path) -> None:
    with DAG(dag_id="d"):
        made = gpu_task(_uses_class_in_hints, image="i")()
    assert returned(made, tmp_path) is None


def test_a_closure_is_refused() -> None:
    rate = 0.1

    def inner() -> float:
        return rate

    with pytest.raises(GpuflowError, match="uses rate, which is defined outside it"):
        gpu_task(inner, image="i")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"command": ["x"]}, "does not take command"),
        ({"for_each": {"a": [1]}}, "does not take for_each"),
        ({"when": "params.x"}, "does not take when"),
        ({"outputs_from": "xcom"}, "does not take outputs_from"),
        ({"env": {"A": {"param": "x"}}}, "uses {param: x}"),
        ({"serializer": "json"}, '"json" is no serializer'),
        ({"gpu": "a101"}, "unknown GPU model"),
        ({"image": None}, "has no image"),
        ({"retries": 2, "retry": 1}, "stands beside the retry"),
        ({"env_vars": {"A": "1"}}, "gpu_task does not take env_vars"),
        ({"airflow": {"full_pod_spec": {}}}, "gpu_task does not take full_pod_spec"),
    ],
)
def test_what_the_decorator_does_not_take_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    def f() -> None: ...

    with DAG(dag_id="d"), pytest.raises(GpuflowError) as refused:
        gpu_task(**{"image": "i", **fields})(f)()
    assert words in str(refused.value)


def test_what_is_too_large_for_a_pod_is_refused_with_its_size(tmp_path: Path) -> None:
    with pytest.raises(GpuflowError, match=r"GF363 the source of \"f\" is 200,\d\d\d bytes"):
        in_file(tmp_path, f"def f():\n    return {'x' * 200_000!r}\n")
    with DAG(dag_id="d"):
        made = in_file(tmp_path, "def f(x): ...\n")("x" * MAX_BYTES)
    with pytest.raises(GpuflowError, match=r"GF363 the arguments of f are 131,\d\d\d bytes"):
        command_of(made)


def test_a_site_is_looked_for_beside_the_dag_file(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        "apiVersion: gpuflow/v1\nkind: Site\nname: ours\nnamespace: nlp\nruntime: {python: /opt/python}\n"
    )
    source = "from gpuflow.airflow import gpu_task\n@gpu_task(site='ours.yaml', image='i')\ndef f(): ...\n"
    (tmp_path / "dag.py").write_text(source)
    scope: dict[str, Any] = {"__file__": str(tmp_path / "dag.py"), "__name__": "dag"}
    exec(compile(source, str(tmp_path / "dag.py"), "exec"), scope)
    with DAG(dag_id="d"):
        made = scope["f"]().operator
    assert (made.namespace, command_of(made)[0]) == ("nlp", "/opt/python")


def test_step_tasks_are_mapped_in_the_same_words() -> None:
    step = Step(image="i", command=["x", {"param": "a"}, {"param": "b"}], **MEMORY)
    with DAG(dag_id="d") as dag:

        @task
        def rows() -> list[dict[str, int]]:
            return [{"a": 1, "b": 2}]

        @task
        def numbers() -> list[int]:
            return [1]

        pairs = gpu_step(step, task_id="pairs").expand(a=[1, 2], b=["x", "y"])
        fixed = gpu_step(step, task_id="fixed", a=1).expand(b=numbers())
        later = gpu_step(step, task_id="later").partial(a=1).expand(b=[3])
        mapped = gpu_step(step, task_id="mapped").expand_kwargs(rows())
        listed = gpu_step(step, task_id="listed").expand_kwargs([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
        complete = gpu_step(step, task_id="complete", a=1).partial(b=2)
    dag.resolve_template_files()
    assert len(pairs.expand_input.value["item"]) == 4
    assert fixed.upstream_task_ids == {"numbers"} and mapped.upstream_task_ids == {"rows"}
    assert later.expand_input.value["item"] == [{"b": 3}]
    assert listed.expand_input.value["item"] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    one = pairs.unmap({"item": {"a": 2, "b": "y"}})
    run = SimpleNamespace(dag_id="d", run_id="r")
    command = one.template.resolve({"dag_run": run, "ti": SimpleNamespace(map_index=3), "task": one})
    words = command["spec"]["containers"][0]["command"]
    assert words[-3:] == ["x", "2", "y"]
    assert next(word for word in words if word.startswith("--item=")).startswith("--item=copy=3-")
    assert complete.template.spec["containers"][0]["command"][-2:] == ["1", "2"]
    assert sorted(dag.task_dict) == ["complete", "fixed", "later", "listed", "mapped", "numbers", "pairs", "rows"]


def test_a_task_that_still_lacks_a_value_keeps_its_dag_from_loading() -> None:
    with DAG(dag_id="d") as dag:
        gpu_step(Step(image="i", command=["x", {"param": "a"}]), task_id="open")
    with pytest.raises(GpuflowError, match=r'GF178 the step uses "a", but no value is given for it') as refused:
        dag.resolve_template_files()
    assert f"{__file__}:" in str(refused.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda it, task: it.expand(), "nothing to map over"),
        (lambda it, task: it.expand(a="abc"), "which is not a list"),
        (lambda it, task: it.expand(a=task, b=[1]), "maps over one list that is known only in the run"),
        (lambda it, task: it.expand(a=[1], c=[1]), '"c" is not used by the step'),
        (lambda it, task: it.expand(a=[1]), 'uses "b", but no value is given'),
        (lambda it, task: it.expand_kwargs([{"a": 1, "b": 1}, {"a": 1}]), '"b" is missing'),
        (lambda it, task: it.expand_kwargs([]), "was given no map"),
        (lambda it, task: it.partial(a=1).partial(a=2), '"a" is given twice'),
        (lambda it, task: it.partial(a=1).expand(a=[2], b=[1]), '"a" is given twice'),
    ],
)
def test_a_mapping_that_cannot_be_is_refused_by_name(call: Callable[[Any, Any], Any], words: str) -> None:
    with DAG(dag_id="d"):

        @task
        def items() -> list[int]:
            return [1]

        with pytest.raises(GpuflowError) as refused:
            call(gpu_step(Step(image="i", command=["x", {"param": "a"}, {"param": "b"}])), items())
    assert words in str(refused.value)
