"""`--repeat`: a failed command is started again in the same container, and nothing else is.

Tests gpuflow/runtime/supervise/supervisor.py.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.runtime.harness import eventually, run, shell, start

COUNT = 'n=$(cat tries 2>/dev/null || echo 0); n=$((n+1)); echo $n > tries; echo "attempt $GPUFLOW_ATTEMPT"; '
"""A command that counts its starts in `tries`."""


def tries(folder: Path) -> int:
    return int((folder / "tries").read_text() or 0)


def place(folder: Path) -> tuple[str, ...]:
    return ("--pipeline", "p", "--run-id", "r", "--step", "s", "--state", str(folder / "state"))


def ends(folder: Path) -> list[dict[str, object]]:
    found = sorted((folder / "state").rglob("*.end.json"))
    return [json.loads(path.read_text()) for path in found]


def test_a_failure_is_repeated_with_a_number_of_its_own_until_it_succeeds(tmp_path: Path) -> None:
    done = run("--repeat", "--failures", "3", *shell(COUNT + "[ $n -ge 3 ]"), cwd=tmp_path)
    assert (done.returncode, tries(tmp_path)) == (0, 3)
    assert done.stdout.split("\n")[:3] == ["attempt 1", "attempt 2", "attempt 3"]
    assert "started again now, in this container (1 of at most 3 times)" in done.stderr


@pytest.mark.parametrize(
    ("budget", "most"), [(("--failures", "2"), 3), (("--retries", "2"), 3), (("--failures", "0"), 1)]
)
def test_the_budget_is_exact_without_any_store(budget: tuple[str, ...], most: int, tmp_path: Path) -> None:
    done = run("--repeat", *budget, *shell(COUNT + "exit 3"), cwd=tmp_path)
    assert (done.returncode, tries(tmp_path)) == (79, most)
    assert "is spent" in done.stderr


def test_with_a_store_the_budget_is_that_of_all_containers(tmp_path: Path) -> None:
    """The first supervisor is killed after two failures; the second goes on with one that is left."""
    options = ("--repeat", "--failures", "3", "--interruptions", "1", *place(tmp_path))
    command = shell(COUNT + "[ $n -eq 3 ] && sleep 600; exit 3")
    first = start(*options, *command, cwd=tmp_path)
    eventually(lambda: tries(tmp_path) == 3)
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = run(*options, *command, cwd=tmp_path)
    assert second.returncode == 79
    assert tries(tmp_path) == 5, "two failures, one interruption, then the third failure and the one too many"
    third = run(*options, *command, cwd=tmp_path)
    assert (third.returncode, tries(tmp_path)) == (79, 5), "a final end is final in every later container"


def test_a_final_exit_code_ends_it_at_once(tmp_path: Path) -> None:
    done = run("--repeat", "--failures", "5", "--final-exit-codes", "3", *shell(COUNT + "exit 3"), cwd=tmp_path)
    assert (done.returncode, tries(tmp_path)) == (79, 1)


def test_only_listed_exit_codes_are_repeated(tmp_path: Path) -> None:
    options = ("--repeat", "--failures", "5", "--retryable-exit-codes", "4")
    done = run(*options, *shell(COUNT + "[ $n -ge 3 ] && exit 5; exit 4"), cwd=tmp_path)
    assert (done.returncode, tries(tmp_path)) == (79, 3)


def test_an_interruption_is_left_to_the_engine(tmp_path: Path) -> None:
    options = ("--repeat", "--failures", "5", "--interruptions", "5", *place(tmp_path), "--grace", "5s")
    process = start(*options, *shell(COUNT + "exec sleep 600"), cwd=tmp_path)
    eventually(lambda: tries(tmp_path) == 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75
    assert tries(tmp_path) == 1
    assert [end["outcome"] for end in ends(tmp_path)] == ["interrupted"]


def test_a_program_that_dies_of_sigterm_by_itself_is_interrupted_and_not_repeated(tmp_path: Path) -> None:
    done = run("--repeat", "--failures", "5", *shell(COUNT + "kill -TERM $$"), cwd=tmp_path)
    assert (done.returncode, tries(tmp_path)) == (143, 1)


def test_told_to_stop_while_waiting_it_costs_nothing_more(tmp_path: Path) -> None:
    options = ("--repeat", "--failures", "5", "--interruptions", "0", "--backoff", "10m", *place(tmp_path))
    process = start(*options, *shell(COUNT + "exit 3"), cwd=tmp_path)
    eventually(lambda: len(ends(tmp_path)) == 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75
    assert "told to stop while waiting for the next attempt" in (process.stderr.read() if process.stderr else "")
    assert [end["outcome"] for end in ends(tmp_path)] == ["failed (retryable)"]
    again = run(*options, *shell(COUNT + "true"), cwd=tmp_path)
    assert again.returncode == 0, "no interruption was counted: its budget is 0"


def test_each_attempt_has_the_whole_timeout_and_its_own_outputs(tmp_path: Path) -> None:
    outputs = ("--outputs-dir", str(tmp_path / "out"), "--output", "result")
    script = COUNT + "echo $n > $GPUFLOW_OUTPUTS/result; [ $n -ge 3 ] || sleep 600"
    done = run(
        "--repeat", "--failures", "2", "--timeout", "4s", "--grace", "2s", *outputs, *shell(script), cwd=tmp_path
    )
    assert (done.returncode, tries(tmp_path)) == (0, 3)
    assert (tmp_path / "out" / "result").read_text() == "3"
    stale = run("--repeat", "--failures", "1", *outputs, *shell(COUNT + "true"), cwd=tmp_path)
    assert stale.returncode == 79, "what an attempt before left is no output of this one"


def test_the_next_attempt_resumes_from_the_checkpoint_of_the_one_before(tmp_path: Path) -> None:
    store = ("--pipeline", "p", "--run-id", "r", "--step", "s", "--store", str(tmp_path / "store"), "--every", "0s")
    script = (
        COUNT + 'echo "from $(basename "$GPUFLOW_RESUME_FROM")"; echo $n > .part; '
        'mv .part "$GPUFLOW_CHECKPOINT_DIR/step-$n"; [ $n -ge 3 ]'
    )
    options = ("--repeat", "--failures", "2", "--checkpoint-dir", str(tmp_path / "ckpt"), *store)
    done = run(*options, *shell(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.split("\n") if line.startswith("from")] == [
        "from ",
        "from step-1",
        "from step-2",
    ]


def test_nothing_of_one_attempt_is_alive_in_the_next(tmp_path: Path) -> None:
    script = (
        COUNT + "if [ $n -eq 1 ]; then (sleep 600 & echo $! > left); exit 3; fi; kill -0 $(cat left) && exit 9; exit 0"
    )
    done = run("--repeat", "--failures", "1", *shell(script), cwd=tmp_path)
    assert (done.returncode, tries(tmp_path)) == (0, 2)


def test_waits_grow_by_the_factor_up_to_the_longest(tmp_path: Path) -> None:
    waits = ("--backoff", "100ms", "--backoff-factor", "3", "--backoff-max", "500ms")
    done = run("--repeat", "--failures", "4", *waits, *shell(COUNT + "exit 3"), cwd=tmp_path)
    said = [line.partition(" in ")[2].partition(",")[0] for line in done.stderr.split("\n") if "started again" in line]
    assert said == ["0.1 s", "0.3 s", "0.5 s", "0.5 s"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--repeat",), "--repeat needs --failures or --retries"),
        (("--repeat", "--interruptions", "3"), "--repeat needs --failures or --retries"),
        (("--repeat", "--failures", "1", "--interruptions", "3"), "--interruptions are counted in a store"),
        (("--failures", "1"), "--failures are counted in a store"),
    ],
)
def test_what_cannot_be_counted_is_refused(options: tuple[str, ...], words: str) -> None:
    done = run(*options, "--", "true")
    assert done.returncode == 78
    assert words in done.stderr


def test_what_the_engine_told_is_about_the_attempt_before_this_container(tmp_path: Path) -> None:
    last = json.dumps({"attempt": 0, "by": "argo", "phase": "Failed", "message": "main: OOMKilled (exit code 137)"})
    options = (
        "--repeat",
        "--failures",
        "2",
        "--interruptions",
        "5",
        *place(tmp_path),
        "--engine-attempt",
        "1",
        "--last",
        last,
    )
    done = run(*options, *shell(COUNT + "exit 3"), cwd=tmp_path)
    assert (done.returncode, tries(tmp_path)) == (79, 3)
    assert "argo" not in done.stderr
