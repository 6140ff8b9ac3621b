"""Compiling for Airflow: the text of the DAG file, and what is refused.

Tests gpuflow/targets/airflow/dag.py, gpuflow/targets/airflow/dag_file.py, gpuflow/targets/airflow/flow.py,
gpuflow/targets/airflow/operators.py, gpuflow/targets/airflow/refusals.py and gpuflow/targets/airflow/facts.py.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuflow.cli.main import main
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec import references
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.airflow import target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.constructs import VOCABULARY
from gpuflow.targets.target import Request, compile_with

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CASES = sorted(path.stem for path in (HERE / "cases").glob("*.yaml"))
SITES = {"spot": "gke", "led-gang": "gke"}
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"


def compiled(pipeline: Pipeline, site: str = "nvidia", **options: bool) -> str:
    request = Request(pipeline, Site.load(site), "ml", f"{pipeline.name}.yaml", (), AirflowOptions(**options))
    artifact = compile_with(target, request, allow_lossy=False).artifact
    return artifact.text


@pytest.mark.parametrize("case", CASES)
def test_the_dag_file_is_the_golden_one(case: str, golden: Callable[[Path, str], None]) -> None:
    pipeline = load(HERE / "cases" / f"{case}.yaml")
    options = {"standalone": True} if case == "stock" else {}
    golden(HERE / "golden" / f"{case.replace('-', '_')}.py", compiled(pipeline, SITES.get(case, "nvidia"), **options))


@pytest.mark.parametrize("case", CASES)
def test_lines_of_code_are_short_enough_to_read(case: str) -> None:
    text = compiled(load(HERE / "cases" / f"{case}.yaml"), SITES.get(case, "nvidia"))
    assert [line for line in text.splitlines() if len(line) > 120] == []


def test_every_construct_has_an_answer() -> None:
    assert set(target.capabilities) == set(VOCABULARY)


def test_compiling_imports_nothing_of_airflow() -> None:
    program = (
        "import sys; from gpuflow.cli.main import main; "
        f"main(['compile', {str(HERE / 'cases' / 'spot.yaml')!r}, '--target', 'airflow', '--site', 'gke']); "
        "sys.exit(any(name.partition('.')[0] in ('airflow', 'kubernetes') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_user_text_stands_in_the_file_as_a_literal_and_never_as_a_template() -> None:
    text = compiled(load(HERE / "cases" / "text.yaml"))
    literals = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
    for written in ("{{ params.x }}", "{% if %}", "$$(HOME) $$$$", "${HOME}", 'it\'s "quoted"', "tab\tand\nnewline"):
        assert written in literals
    assert "\u202e" not in text, "a character that turns the reading direction must be visible as an escape"


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("cache", "steps: {a: {command: [x], cache: true}}"),
        ("schedule.replace", 'schedule: {cron: "0 0 * * *", concurrency: replace}\nsteps: {a: {command: [x]}}'),
        ("schedule.catch_up", 'schedule: {cron: "0 0 * * *", catch_up: true}\nsteps: {a: {command: [x]}}'),
    ],
)
def test_what_airflow_cannot_say_is_refused_by_name_with_a_way_out(what: str, body: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        compiled(loads(HEAD + body))
    (finding,) = refusal.value.findings
    assert f"airflow does not support {what}" in finding.message
    assert finding.hint


def test_a_required_parameter_of_a_scheduled_pipeline_is_refused() -> None:
    body = 'schedule: "0 0 * * *"\nparams: {x: {type: string}}\nsteps: {a: {command: [{param: x}]}}'
    with pytest.raises(GpuflowError, match='the parameter "x" has no default'):
        compiled(loads(HEAD + body))


@pytest.mark.parametrize(("timeout", "deadline"), [("1h", "90m"), ("2h", "1h"), ("1h", None)])
def test_the_shorter_of_a_sub_pipelines_two_time_limits_counts_from_its_beginning(
    timeout: str, deadline: str | None
) -> None:
    limit = f"deadline: {deadline}, " if deadline else ""
    inner = f"{{{HEAD.replace(chr(10), ', ')}{limit}steps: {{b: {{command: [x]}}}}}}"
    text = compiled(loads(HEAD + f"steps: {{a: {{timeout: {timeout}, pipeline: {inner}}}}}"))
    since = 'since=output("a.begin", "return_value", "float")'
    assert f'deadline(group="a", limit=timedelta(hours=1), {since})' in text
    assert "a_begin >> a_b" in text


def test_a_steps_own_limit_for_waiting_in_the_queue_is_carried() -> None:
    body = "steps: {a: {command: [x], queue: research, queue_timeout: 6h}}"
    assert "queue_timeout=timedelta(hours=6)" in compiled(loads(HEAD + body))
    assert "schedule_timeout_seconds=21600" in compiled(loads(HEAD + body), standalone="true")


def test_a_retry_on_another_node_is_carried() -> None:
    assert "other_node=True" in compiled(
        loads(HEAD + "steps: {a: {command: [x], retry: {failures: 2, other_node: true}}}")
    )


def test_a_sub_pipeline_that_is_used_twice_keeps_its_checkpoints_apart() -> None:
    inner = "{name: q, steps: {train: {image: i, command: [t], checkpoint: {path: /kept, store: s3://m}}}}"
    steps = f"steps: {{one: {{pipeline: {inner}}}, two: {{pipeline: {inner}}}}}"
    text = compiled(loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n{steps}", "p.yaml"))
    assert "--step=one/train" in text
    assert "--step=two/train" in text


def test_names_that_python_or_the_file_itself_uses_stay_usable_as_steps() -> None:
    names = ("import", "dag", "list", "param")
    body = f"steps: {{{', '.join(f'{name}: {{command: [x]}}' for name in names)}}}"
    tree = ast.parse(compiled(loads(HEAD + body)))
    assigned = {node.targets[0].id for node in ast.walk(tree) if isinstance(node, ast.Assign)}  # type: ignore[attr-defined]  # the statement is known
    assert {"import_", "dag_", "list_", "param_"} <= assigned


def test_a_suspended_schedule_starts_nothing() -> None:
    text = compiled(loads(HEAD + 'schedule: {cron: "0 0 * * *", suspended: true}\nsteps: {a: {command: [x]}}'))
    assert "schedule=None" in text


def test_gpu_tasks_go_into_pools_on_request_with_a_slot_per_gpu() -> None:
    wants = {"a": "gpu: a100-80gb x 4", "b": "mig: 1g.10gb of a100-80gb", "c": "cpu: 1"}
    body = f"steps: {{{', '.join(f'{name}: {{command: [x], {want}}}' for name, want in wants.items())}}}"
    text = compiled(loads(HEAD + body), pools="true")
    assert 'pool="gpu",\n        pool_slots=4' in text
    assert 'pool="gpu-mig-1g.10gb",\n        pool_slots=1' in text
    assert text.count("pool_slots") == 2


def test_a_standalone_dag_imports_nothing_of_gpuflow() -> None:
    text = compiled(load(HERE / "cases" / "stock.yaml"), standalone="true")
    assert "import gpuflow" not in text
    assert "from gpuflow" not in text


def test_what_a_standalone_dag_would_lose_is_refused_by_name() -> None:
    with pytest.raises(GpuflowError) as refusal:
        compiled(load(HERE / "cases" / "spot.yaml"), "gke", standalone="true")
    lost = [finding.message.partition(" support ")[2].partition(" (")[0] for finding in refusal.value.findings]
    assert lost == [
        "retry.final_exit_codes",
        "retry.interruptions",
        "retry.more_memory",
        "retry.retryable_exit_codes",
        "spot.fallback_after",
    ]


def test_a_plain_retry_is_airflows_own_retries() -> None:
    plain = (
        "steps: {a: {command: [x], retry: 2}, b: {for_each: {x: [1, 2]}, command: [x], retry: {any: 3, backoff: 1m}}}"
    )
    text = compiled(loads(HEAD + plain))
    assert "retries=2," in text
    assert "retries=3," in text
    assert not [word for word in ("failures", "interruption", "LOST_WORKERS") if word in text]
    stock = compiled(loads(HEAD + plain), standalone=True)
    assert "retries=2," in stock
    assert "retries=3," in stock


def test_who_retries_failures_alone_is_told_that_a_drained_node_ends_the_step() -> None:
    def told(retry: str, **options: bool) -> list[str]:
        pipeline = loads(HEAD + f"steps: {{a: {{command: [x], retry: {retry}}}}}")
        request = Request(pipeline, Site.load("nvidia"), "ml", "p.yaml", (), AirflowOptions(**options))
        return [note.code for note in target.notes(request)]

    assert told("{failures: 2}") == ["GF324"]
    assert told("{failures: 2, interruptions: 1}") == told("2") == told("{interruptions: 3}") == []
    assert told("{failures: 2}", standalone=True) == ["GF305", "GF366"], "the stock operator cannot tell them apart"
    assert told("2", standalone=True) == ["GF366"]


def test_the_dags_in_the_repository_are_compiled_from_the_examples(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sources = [f"docs/examples/{name}.yaml" for name in ("finetune", "finetune-eval", "nightly", "daily")]
    check = [] if request.config.getoption("--update-golden") else ["--check"]
    code = main(
        ["compile", *sources, "--target", "airflow", "--allow-lossy", "--namespace", "nlp", "-o", "dags/", *check]
    )
    assert code == 0, capsys.readouterr().out


LIMITED = "deadline: 2h\nsteps: {work: {command: [x]}}\nexit: {tidy: {command: [y]}}\n"


def test_a_runs_deadline_ends_its_steps_and_leaves_the_exit_steps_to_run() -> None:
    text = compiled(loads(HEAD + LIMITED))
    work, tidy = text.index('task_id="work"'), text.index('task_id="tidy"')
    limit = "deadlines=[deadline(run=timedelta(hours=2))]"
    assert work < text.index(limit) < tidy
    assert text.count(limit) == 1
    assert "dagrun_timeout=" not in text, "Airflow would mark the exit steps skipped"
    assert "dagrun_timeout=timedelta(hours=2)" in compiled(loads(HEAD + LIMITED), standalone="true")


INSIDE = """
steps:
  each:
    for_each: {x: [a, b]}
    params: {x: {item: x}}
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: inner
      params: {x: {type: string}}
      defaults: {image: i}
      steps:
        plain: {command: [plain, --run-id=1, --item=2]}
        kept: {command: [kept, --item=3, --run-id=4], outputs: {n: int}}
"""


def test_words_of_a_program_that_look_like_the_supervisors_are_left_alone() -> None:
    text = compiled(loads(HEAD + INSIDE))
    assert '"command": ["plain", "--run-id=1", "--item=2"]' in text
    assert '"--", "kept", "--item=3", "--run-id=4"' in " ".join(text.split())
    assert text.count('join("--item=each.x=", item("each.x"))') == 1


def test_equal_items_of_a_sub_pipeline_are_refused() -> None:
    with pytest.raises(GpuflowError, match='GF194 step "each" runs twice over a in "x"'):
        compiled(loads(HEAD + INSIDE.replace("[a, b]", "[a, a]")))


def test_what_a_step_waits_for_is_looked_up_once_for_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each task of a flattened sub-pipeline, and not for each step before it."""
    asked: list[str] = []
    found = references.upstream
    monkeypatch.setattr(references, "upstream", lambda pipeline: asked.append(pipeline.name) or found(pipeline))

    def lookups(steps: int) -> int:
        asked.clear()
        chain = {f"s{n}": {"image": "i:1", "command": ["x"], "needs": [f"s{n - 1}"] if n else []} for n in range(steps)}
        text: dict[str, Any] = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "p"}
        text["steps"] = {"sub": {"for_each": {"i": [1, 2]}, "pipeline": {"name": "q", "steps": chain}}}
        request = Request(loads(json.dumps(text)), Site.load("nvidia"), None, "p.yaml")
        assert compile_with(target, request, allow_lossy=False).text
        return len(asked)

    assert 0 < lookups(4) == lookups(40)
