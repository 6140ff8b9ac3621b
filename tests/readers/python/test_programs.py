"""Python files: told apart by their text, run only when allowed, and whatever they do, the answer is one message.

Tests gpuflow/readers/python/programs.py and gpuflow/readers/python/dags.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.formats.airflow import Task
from gpuflow.readers.python import Pythons, program_of, programs, read_program
from gpuflow.readers.python.dags import order_of
from gpuflow.readers.python.programs import old_snippets
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow

__all__ = ["gpuflow"]
KINDS = {
    "from gpuflow import Pipeline\n": "pipeline",
    "import gpuflow as g\np = g.Pipeline('a')\n": "pipeline",
    "from airflow.sdk import DAG\n": "airflow",
    "def f():\n    import airflow.models\n": "airflow",
    "from gpuflow.airflow import to_dag\n": "airflow",
    "from hera.workflows import Workflow\n": "hera",
    "import os\n": "other",
    "import torch\n": "other",
    "text = 'from airflow import DAG'\n": "other",
}


@pytest.mark.parametrize("text", KINDS)
def test_a_file_is_told_apart_by_its_text_and_not_run(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.py"
    file.write_text(f"{text}\nopen({str(tmp_path / 'taken')!r}, 'w').close()\n")
    assert program_of(str(file)) == KINDS[text]
    assert not (tmp_path / "taken").exists()


def test_a_file_that_takes_its_pipeline_from_a_module_beside_it_may_be_ours(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("")
    (tmp_path / "a.py").write_text("from shared import pipeline\n")
    assert program_of(str(tmp_path / "a.py")) == "pipeline"


def read(file: Path, text: str) -> GpuflowError:
    """The refusal of a file that somebody allows to be run. It is a DAG by its text, wherever that stands."""
    file.write_text(text + "\nimport airflow\n")
    with pytest.raises(GpuflowError) as refusal:
        read_program(str(file), Pythons(sys.executable, sys.executable), allowed=True)
    assert len(refusal.value.findings) == 1
    return refusal.value


FAULTS = {
    "raises": (
        "raise ValueError('no such table\\nmore')",
        "dag.py:1:1: GF708",
        "cannot be loaded: ValueError: no such table",
    ),
    "leaves": ("import sys; sys.exit(0)", "dag.py:1:1: GF708", "cannot be loaded: SystemExit: 0"),
    "dies": ("import os; os._exit(0)", "dag.py: GF708", "it ended with code 0 before its DAGs were known"),
    "is killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "dag.py: GF708", "it ended with code -9"),
    "prints": ("print('{\"dags\": []}' * 10); import os; os._exit(1)", "dag.py: GF708", "it ended with code 1"),
    "recurses": ("def f(): f()\nf()", "dag.py:1:1: GF708", "RecursionError"),
    "needs Airflow": ("import airflow", "dag.py: GF707", "needs Airflow, which this Python lacks"),
    "syntax": ("def", "dag.py:1:4: GF192", "not valid Python"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_whatever_a_file_does_the_answer_is_one_message(tmp_path: Path, what: str) -> None:
    text, place, words = FAULTS[what]
    said = str(read(tmp_path / "dag.py", text))
    assert place in said and words in said


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_file_that_hangs_is_stopped_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    for limit in (3, 12, 48):
        monkeypatch.setattr(programs, "TIME_LIMIT", limit)
        assert f"was stopped: it ran for more than {limit} seconds" in str(read(tmp_path / "dag.py", text))
        if (tmp_path / "pid").exists():  # else the limit came before it could start anything
            break
    pid = int((tmp_path / "pid").read_text())
    # The signal is sent; a busy machine needs a moment until the kernel has carried it out.
    until = time.monotonic() + 120
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(pid)


def test_a_file_that_prints_without_end_fills_no_disk(tmp_path: Path) -> None:
    text = "while True: print('x' * 1_000_000)"
    assert "GF708" in str(read(tmp_path / "dag.py", text))


def test_a_file_sees_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "KUBECONFIG", "AIRFLOW_CONN_X", "AIRFLOW__CORE__FERNET_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "secret")
    text = "import os\nraise ValueError(' '.join(sorted(os.environ)) + ' ' + os.environ['HOME'])"
    said = str(read(tmp_path / "dag.py", text))
    for name in ("AWS_", "KUBECONFIG", "AIRFLOW_CONN", "FERNET", "TOKEN", os.environ.get("HOME", "/root") + "\n"):
        assert name not in said
    assert "PATH" in said


def test_a_python_that_does_not_exist_is_said(tmp_path: Path) -> None:
    file = tmp_path / "dag.py"
    file.write_text("import airflow\n")
    with pytest.raises(GpuflowError, match=r"GF707 .*/none cannot be run"):
        read_program(str(file), Pythons(str(tmp_path / "none")), allowed=True)


def test_a_wrapper_or_a_start_up_file_may_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper, file = tmp_path / "python", tmp_path / "dag.py"
    wrapper.write_text(f'#!/bin/sh\necho activating\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text("print('hello')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    file.write_text("raise ValueError('the end')\nimport airflow\n")
    with pytest.raises(GpuflowError, match="the end"):
        read_program(str(file), Pythons(str(wrapper)), allowed=True)


@pytest.mark.parametrize("program", ["cat", "sleep 300"])
def test_what_is_no_python_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    wrapper, file = tmp_path / "python", tmp_path / "dag.py"
    wrapper.write_text(f"#!/bin/sh\nexec 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-\n{program}\n")
    wrapper.chmod(0o755)
    monkeypatch.setattr(programs, "PATIENCE", 1)
    monkeypatch.setattr(programs, "TIME_LIMIT", 5)
    file.write_text("import airflow\n")
    with pytest.raises(GpuflowError, match="GF708"):
        read_program(str(file), Pythons(str(wrapper)), allowed=True)


def test_what_reads_a_file_ends_with_whoever_asked(tmp_path: Path) -> None:
    marks = tmp_path / "pids"
    (tmp_path / "dag.py").write_text(
        f"import os, time\nopen({str(marks)!r}, 'w').write(f'{{os.getpid()}} {{os.getppid()}} ')\n"
        "time.sleep(600)\nimport airflow\n"
    )
    words = "from gpuflow.readers.python.programs import Pythons, read_program; import sys\n"
    words += f"read_program({str(tmp_path / 'dag.py')!r}, Pythons(sys.executable), allowed=True)"
    asking = subprocess.Popen([sys.executable, "-c", words])
    until = time.monotonic() + 120
    while not (marks.exists() and marks.read_text().endswith(" ")) and time.monotonic() < until:
        time.sleep(0.05)
    asking.kill()
    asking.wait()
    pids = [int(each) for each in marks.read_text().split()]
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def test_a_dag_or_a_hera_file_needs_the_flag_and_its_name(gpuflow: Gpuflow, tmp_path: Path) -> None:
    for text, what in (("import airflow", "an Airflow DAG"), ("import hera", "a Hera workflow")):
        file = tmp_path / "a.py"
        file.write_text(f"open({str(tmp_path / 'taken')!r}, 'w').close()\n{text}\n")
        for words in ((), ("--no-allow-python",)):
            answer = gpuflow("demand", file, *words)
            assert (answer.code, f"GF196 {file} is {what}: a program, which is not run" in answer.err) == (2, True)
        assert "GF911" in gpuflow("demand", tmp_path, "--allow-python").err
        assert not (tmp_path / "taken").exists()
    file.write_text("import os\n")
    assert "GF702" in gpuflow("demand", file, "--allow-python").err


def test_a_pipeline_of_ours_in_python_runs_as_it_always_has(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "from gpuflow import Pipeline\nwith Pipeline('p') as p:\n    p.step('s', image='i', command=['c'], gpu='l4')\n"
    )
    assert gpuflow("demand", file, "--format", "json").data["pipeline"] == "p"
    assert "GF196" in gpuflow("demand", file, "--no-allow-python").err


OLD = {
    'KubernetesPodOperator(task_id="a", resources={"limit_gpu": 1})': ["limit_gpu"],
    'pod.KubernetesPodOperator(resources={"request_cpu": 1, "limit_memory": "1Gi"})': ["request_cpu, limit_memory"],
    "KubernetesPodOperator.partial(resources=dict(limit_gpu=1))": ["limit_gpu"],
    'R = {"limit_gpu": 1}\nGKEStartPodOperator(resources=R)': ["limit_gpu"],
    '@task.kubernetes(image="i", resources={"limit_gpu": 1})\ndef f(): ...': ["limit_gpu"],
    'KubernetesPodOperator(container_resources=k8s.V1ResourceRequirements(limits={"nvidia.com/gpu": 1}))': [],
    'BashOperator(resources={"limit_gpu": 1})': [],
}


@pytest.mark.parametrize("text", OLD)
def test_old_spellings_of_resources_are_found_without_running_anything(text: str) -> None:
    import ast

    found = [each.message.split(" with ")[1].split(" is ")[0] for each in old_snippets(ast.parse(text), "a.py")]
    assert found == OLD[text]


RULES = ("all_success", "all_done", "one_success", "one_failed", "always", "none_failed")


@st.composite
def _tasks(draw: st.DrawFn, rules: tuple[str, ...] = RULES) -> dict[str, dict[str, object]]:
    names = [f"t{number}" for number in range(draw(st.integers(1, 5)))]
    return {
        name: {
            "upstream": draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else [],
            "trigger_rule": draw(st.sampled_from(rules)),
            "waits": draw(st.booleans()),
        }
        for index, name in enumerate(names)
    }


def _next(rule: str, before: list[str]) -> str | None:
    """What Airflow's scheduler makes of a task, by the states of those before it."""
    failed, good, skipped = (
        sum(each in states for each in before) for states in (("failed", "given up"), ("success",), ("skipped",))
    )
    done = failed + good + skipped == len(before)
    if not before or rule == "always":
        return "running"
    if rule == "one_success":
        return "running" if good else ("skipped" if skipped == len(before) else "given up") if done else None
    if rule == "one_failed":
        return "running" if failed else "skipped" if done else None
    if rule in ("all_success", "none_failed") and failed:
        return "given up"
    if rule == "all_success" and skipped:
        return "skipped"
    return "running" if done else None


def _ended_at_the_start_of(tasks: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """For each task, those whose pods have ended when it starts, in every run that there can be."""
    names = list(tasks)
    found: dict[str, set[str]] = {}
    todo, seen = [dict.fromkeys(names, "waiting")], set()
    while todo:
        state = todo.pop()
        if tuple(state.values()) in seen:
            continue
        seen.add(tuple(state.values()))
        for name in names:
            if state[name] == "running":
                todo += [{**state, name: "success"}, {**state, name: "failed"}]
            elif state[name] == "waiting":
                before = [state[each] for each in tasks[name]["upstream"]]
                following = _next(str(tasks[name]["trigger_rule"]), before)
                if following == "running":
                    over = {
                        each for each in names if state[each] not in ("waiting", "running") and tasks[each]["waits"]
                    }
                    found[name] = found.get(name, over) & over
                if following is not None:
                    todo.append({**state, name: following})
    return found


def _reached(edges: dict[str, list[str]], name: str) -> set[str]:
    direct = [each for each, after in edges.items() if name in after]
    return set(direct).union(*(_reached(edges, each) for each in direct))


def _recorded(tasks: dict[str, dict[str, Any]]) -> dict[str, Task]:
    return {name: Task(name, "Operator", pool="default_pool", **fields) for name, fields in tasks.items()}


@given(_tasks())
def test_a_task_waits_only_for_what_has_ended_in_every_run(tasks: dict[str, dict[str, Any]]) -> None:
    """The order against every run of Airflow's scheduler, which gives up on a task while others before it still run."""
    edges = order_of(_recorded(tasks)).edges
    for name, ended in _ended_at_the_start_of(tasks).items():
        assert _reached(edges, name) <= ended


@given(_tasks(rules=("all_success",)))
def test_where_every_task_needs_success_all_that_has_ended_is_known(tasks: dict[str, dict[str, Any]]) -> None:
    edges = order_of(_recorded(tasks)).edges
    for name, ended in _ended_at_the_start_of(tasks).items():
        assert _reached(edges, name) == ended


def test_a_clean_up_may_run_beside_what_its_join_did_not_wait_for() -> None:
    """[quick, long] >> join >> cleanup(all_done): quick fails, and cleanup starts while long runs."""
    tasks = {
        "quick": {"upstream": [], "trigger_rule": "all_success"},
        "long": {"upstream": [], "trigger_rule": "all_success"},
        "join": {"upstream": ["quick", "long"], "trigger_rule": "all_success"},
        "cleanup": {"upstream": ["join"], "trigger_rule": "all_done"},
    }
    found = order_of(_recorded(tasks))
    assert "long" not in _reached(found.edges, "cleanup")
    assert any("cleanup has trigger rule all_done" in each for each in found.loose)
    tasks["cleanup"]["upstream"] = ["quick", "long", "join"]
    assert _reached(order_of(_recorded(tasks)).edges, "cleanup") >= {"quick", "long"}


def test_an_engine_is_imported_once_for_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no file knows what another one did, changed, or left behind."""
    package, imported = tmp_path / "python" / "airflow", tmp_path / "imported"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(imported)!r}, 'a').write('once ')\nsaid = []\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setattr(programs, "TIME_LIMIT", 20)
    spoils = (
        "airflow.said.append(1); import sys; sys.modules['json'] = None",
        "import os; os.environ['AIRFLOW_VAR_X'] = 'y'; os.chdir('/')",
        "import os; os.close(0); os._exit(3)",
        "import os, signal; os.kill(0, signal.SIGKILL)",
        "import os; os.fork()",
    )
    for number, spoil in enumerate(spoils):
        text = "import airflow, os, sys\nassert airflow.said == [] and 'AIRFLOW_VAR_X' not in os.environ\n"
        text += f"assert os.getcwd() == {str(tmp_path)!r} and sys.stdin.read() == '' and sys.argv == [__file__]\n"
        file = tmp_path / f"dag_{number}.py"
        file.write_text(f"{text}{spoil}\nraise ValueError('the end')\n")
        with pytest.raises(GpuflowError) as refusal:
            read_program(str(file), Pythons(sys.executable), allowed=True)
        (finding,) = refusal.value.findings
        assert finding.code == "GF708" and ("the end" in finding.message) == (number not in (2, 3)), finding
    assert imported.read_text() == "once "
