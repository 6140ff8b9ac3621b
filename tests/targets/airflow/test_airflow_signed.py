"""A compiled file as a team would sign it: nothing said twice, names that stay, and a reason beside odd numbers.

Tests gpuflow/targets/airflow/dag_file.py and gpuflow/targets/airflow/refusals.py.
"""

from __future__ import annotations

import ast
import difflib
import re
from pathlib import Path

import pytest

from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.airflow import target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.target import Request, compile_with

from .test_airflow_compile import compiled

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: nightly\n"
DEFAULTS = """defaults:
  image: registry.example.com/train:1
  cpu: 2
  memory: 8Gi
  env: {HF_HOME: /cache, AWS_KEY: {secret: store, key: access}, RUN: {run: id}}
"""
SEVEN = "".join(f"  s{number}: {{command: [python, s.py, '{number}'], gpu: a100-80gb}}\n" for number in range(7))


def file_of(text: str, **options: bool) -> str:
    return compiled(loads(HEAD + text), **options)


def constants(text: str) -> list[str]:
    return [line.partition(" = ")[0] for line in text.splitlines() if re.match(r"[A-Z][A-Z0-9_]* = ", line)]


def test_env_and_resources_of_the_defaults_stand_in_the_file_once() -> None:
    text = file_of(DEFAULTS + "steps:\n" + SEVEN)
    assert text.count('"HF_HOME"') == text.count('"secretKeyRef"') == 1
    assert text.count('"memory": "8Gi"') == 2  # the requests and the limits of one block
    assert text.count('"env": ENV,') == text.count('"resources": RESOURCES_2CPU_8GI_1GPU,') == 7
    assert "AFFINITY_A100_80GB" in constants(text)


def test_a_step_with_variables_of_its_own_adds_them_to_the_defaults() -> None:
    text = file_of(DEFAULTS + "steps:\n" + SEVEN + "  more: {command: [x], env: {MINE: here}}\n")
    assert '"env": [*ENV, {"name": "MINE", "value": "here"}],' in text
    other = file_of(DEFAULTS + "steps:\n" + SEVEN + "  more: {command: [x], env: {HF_HOME: elsewhere}}\n")
    assert text.count('"/cache"') == 1
    assert other.count('"/cache"') == other.count('"elsewhere"') == 1, "one that says it otherwise keeps its own"


@pytest.mark.parametrize("name", ["a-first", "s3-more", "z-last"])
def test_another_step_adds_lines_and_changes_none(name: str) -> None:
    """Wherever it stands, and although its GPU, its resources and its queue are others."""
    steps = "".join(f"  t{number}: {{command: [x], gpu: h100, queue: big}}\n" for number in range(2))
    more = f"  {name}: {{command: [x], gpu: l4, cpu: 9, memory: 64Gi, queue: small}}\n"
    before = file_of(DEFAULTS + "steps:\n" + SEVEN + steps)
    after = file_of(DEFAULTS + "steps:\n" + SEVEN + steps + more)
    lines = list(difflib.unified_diff(before.splitlines()[2:], after.splitlines()[2:], n=0, lineterm=""))[2:]
    assert [line for line in lines if line.startswith("-")] == []
    assert any(f'task_id="{name}"' in line for line in lines)


def test_a_second_step_like_another_gives_their_common_part_a_name_and_renames_nothing_else() -> None:
    first = "  big: {command: [x], gpu: h100, cpu: 9, memory: 64Gi}\n"
    before = constants(file_of(DEFAULTS + "steps:\n" + SEVEN + first))
    after = constants(file_of(DEFAULTS + "steps:\n" + SEVEN + first + first.replace("big", "bigger")))
    assert set(before) < set(after)
    assert {"AFFINITY_H100_80GB", "RESOURCES_9CPU_64GI_1GPU"} <= set(after) - set(before)


def test_the_same_limits_with_other_requests_are_told_apart() -> None:
    pods = "  {}{}: {{command: [x], cpu: 2, memory: {{request: {}, limit: 16Gi}}}}\n"
    steps = "".join(pods.format(kind, number, request) for kind, request in (("a", "4Gi"), ("b", "6Gi"))
                    for number in range(2))  # fmt: skip
    names = [name for name in constants(file_of(DEFAULTS + "steps:\n" + steps)) if name.startswith("RESOURCES")]
    assert len(names) == 2
    assert "RESOURCES_2CPU_16GI" in names


def test_deadlines_say_what_they_limit() -> None:
    text = file_of("deadline: 8h\n" + DEFAULTS + "steps:\n" + SEVEN)
    assert "DEADLINES = [deadline(run=timedelta(hours=8))]" in text
    assert text.count("deadlines=DEADLINES,") == 7
    assert "run_began" not in text


@pytest.mark.parametrize(
    ("retry", "line"),
    [
        ("3", "retries=3,  # Airflow's own retry_delay lies between them: 5 minutes, or"),
        (
            "{failures: 2, interruptions: 5}",
            "failures=2,  # Airflow's own retry_delay lies between them: 5 minutes, or",
        ),
        ("{failures: 2, interruptions: 5}", "interruptions=5,  # another pod at once, in the same try"),
    ],
)
def test_no_backoff_leaves_airflows_own_delay_between_tries(retry: str, line: str) -> None:
    text = file_of(DEFAULTS + f"steps: {{a: {{command: [x], retry: {retry}}}}}\n")
    assert line in text
    assert "retry_delay=" not in text


def test_whoever_wants_no_wait_says_so() -> None:
    text = file_of(DEFAULTS + "steps: {a: {command: [x], retry: {any: 3, backoff: 0s}}}\n")
    assert "retry_delay=timedelta(seconds=0)," in text


@pytest.mark.parametrize(
    ("steps", "line", "options"),
    [
        ("a: {command: [x], for_each: {n: [1, 2]}}", "retries=LOST_WORKERS,  # only for workers that die", {}),
        (
            "a: {command: [x], for_each: {n: [1, 2]}, retry: {failures: 1}}",
            "# the failures, and tries for workers that die; of a mapped task Airflow reads them here\n        "
            "retries=1 + LOST_WORKERS,",
            {},
        ),
        ("a: {command: [x], for_each: {n: {range: 900}}}", "item=combinations({\"n\": range(900)}),  # 900 tasks", {}),
        ("a: {command: [x], timeout: 3h}", '"activeDeadlineSeconds": 10800,  # the step\'s timeout', {}),
        ("a: {command: [x], gpu: a100-80gb x 2}", "pool_slots=2,  # one for each GPU, slice or share", {"pools": True}),
        ("a: {command: [x]}", "schedule_timeout_seconds=604800,  # waiting for a node", {"standalone": True}),
    ],
)  # fmt: skip
def test_odd_numbers_have_their_reason_beside_them(steps: str, line: str, options: dict[str, bool]) -> None:
    text = file_of(DEFAULTS + f"steps: {{{steps}}}\n", **options)
    assert line in text
    ast.parse(text)


def test_a_pool_of_the_users_own_gets_no_reason_that_is_not_theirs() -> None:
    body = "steps: {a: {command: [x], gpu: a100-80gb, engines: {airflow: {pool: gpus, pool_slots: 3}}}}\n"
    assert "pool_slots=3,\n" in file_of(DEFAULTS + body)


def test_a_limit_that_the_supervisor_keeps_is_longer_in_the_pod_and_says_why() -> None:
    body = (
        "steps: {a: {command: [x], timeout: 2h, outputs: {n: int}, checkpoint: {path: /c, store: s3://m, grace: 90s}}}"
    )
    text = file_of(DEFAULTS + body)
    assert "which gpuflow-run keeps itself" in text
    assert '"terminationGracePeriodSeconds": 100,  # longer than --grace below, for the last checkpoint' in text


def test_the_page_of_the_dag_says_what_it_does_and_where_to_change_it() -> None:
    text = file_of("description: Trains *every* night\n" + DEFAULTS + "steps:\n" + SEVEN)
    docs = ast.literal_eval(text.partition("doc_md=")[2].partition("\n    tags=")[0].rstrip(","))
    assert docs == "Trains *every* night\n\nMade by gpuflow from `nightly.yaml`. Change that file, not this DAG."
    own = file_of("engines: {airflow: {doc_md: '# Mine'}}\n" + DEFAULTS + "steps:\n" + SEVEN)
    assert 'doc_md="# Mine"' in own


LINKS = """apiVersion: gpuflow/v1
kind: Site
extends: nvidia
name: here
engines:
  airflow:
    links:
      Queue: "https://kueue.example.com/{namespace}/{queue}"
      Grafana: "https://grafana.example.com/d/pods?var-pod={pod}&from={start}"
"""


def on_site(folder: Path, **options: bool) -> Request:
    (folder / "site.yaml").write_text(LINKS)
    pipeline = loads(HEAD + DEFAULTS + "steps:\n" + SEVEN)
    return Request(pipeline, Site.load(str(folder / "site.yaml")), "ml", "p.yaml", (), AirflowOptions(**options))


def test_links_of_the_site_stand_in_the_file_once(tmp_path: Path) -> None:
    text = compile_with(target, on_site(tmp_path), allow_lossy=False).text
    assert text.count("grafana.example.com") == 1
    assert text.count("links=LINKS,") == 7
    assert text.index('"Grafana": ') < text.index('"Queue": ')


def test_stock_operators_have_no_links_and_that_is_said(tmp_path: Path) -> None:
    request = on_site(tmp_path, standalone=True)
    assert "grafana" not in compile_with(target, request, allow_lossy=False).text
    (note,) = (finding for finding in target.notes(request) if finding.code == "GF348")
    assert [finding for finding in target.notes(on_site(tmp_path)) if finding.code == "GF348"] == []
    assert "none of the site's links: " in note.message
    assert {"Grafana", "Queue"} <= set(re.findall(r"\w+", note.message))
