"""Who knows why an attempt ended tells the next one: the engine, the clock, the memory. With real processes.

Tests gpuflow/runtime/supervise/diagnosis.py and gpuflow/runtime/supervise/running.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime.base import container, records, termination_message
from gpuflow.runtime.base.outcomes import DISK_LIMIT, INTERRUPTED, NEVER_STARTED, OUT_OF_MEMORY, RETRYABLE, TIMED_OUT
from gpuflow.runtime.base.records import Judgment, Usage
from gpuflow.runtime.base.signing import Keys
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.store import StorageError
from gpuflow.runtime.supervise import diagnosis, running
from tests.runtime.harness import environment, eventually, run, shell, start

BASE = "default/r/default"
HANG = shell("echo $$; exec sleep 60")
OOM = "main: OOMKilled (exit code 137)"
DEADLINE = "Pod was active on the node longer than the specified deadline"
DISK = 'Usage of EmptyDir volume "s" exceeds the limit "1Mi". '


@pytest.fixture
def state(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "log").touch()
    place = ("--state", str(tmp_path / "state"), "--run-id", "r", "--outputs-dir", str(tmp_path / "out"))
    return (*place, "--termination-log", str(tmp_path / "log"))


def last(message: str | None = None, attempt: object = 0, **more: object) -> str:
    return json.dumps({"attempt": attempt, "by": "argo", "phase": "Failed", "message": message, **more})


def kill_all(*options: object) -> None:
    """The kernel kills a whole container: supervisor and program at once, so that nobody writes an end."""
    process = start(*options)
    assert process.stdout is not None
    program = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    os.killpg(program, signal.SIGKILL)
    process.wait()


def facts(tmp_path: Path) -> dict[str, Any]:
    found = termination_message.parse((tmp_path / "log").read_text())
    assert found is not None
    return found


def used(tmp_path: Path) -> tuple[int, int]:
    counts = Ledger(Folder(str(tmp_path / "state")), BASE).history().counts
    return counts.failures, counts.interruptions


def judged(tmp_path: Path) -> list[dict[str, Any]]:
    folder = tmp_path / "state" / BASE / "attempts"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.judged.json"))]


# -- out of memory, of the whole container


def test_a_container_killed_for_memory_is_a_failure_when_the_engine_says_so(
    tmp_path: Path, state: tuple[str, ...]
) -> None:
    budgets = (*state, "--failures", "1", "--interruptions", "3")
    kill_all(*budgets, "--engine-attempt", "0", *HANG)
    kill_all(*budgets, "--engine-attempt", "1", "--last", last(OOM, 0, exit_code="137"), *HANG)
    done = run(*budgets, "--engine-attempt", "2", "--last", last(OOM, 1), *shell("touch ran"), cwd=tmp_path)
    assert done.returncode == 79
    assert not (tmp_path / "ran").exists()
    assert (facts(tmp_path)["failures"], facts(tmp_path)["interruptions"]) == (2, 0)
    assert "argo says why: out of memory" in done.stderr
    record = judged(tmp_path)[0]
    assert (record["outcome"], record["by"]) == (OUT_OF_MEMORY, "argo")
    assert record["evidence"]["container_reason"] == "OOMKilled"


def test_without_the_engines_word_it_is_an_interruption(tmp_path: Path, state: tuple[str, ...]) -> None:
    kill_all(*state, *HANG)
    run(*state, *shell("exit 3"))
    assert (facts(tmp_path)["failures"], facts(tmp_path)["interruptions"]) == (1, 1)
    assert judged(tmp_path) == []


@pytest.mark.parametrize(
    ("word", "cost"),
    [
        (last("main: Error (exit code 137): OOMKilled"), (0, 1)),
        (last("main: Error (exit code 3): main: OOMKilled (exit code 137)"), (1, 0)),
        (last("pod deleted", exit_code="0"), (0, 1)),
        (last("null", exit_code=""), (0, 1)),
        (last(None, phase="Pending"), (0, 1)),
        (last("", exit_code="0", phase=""), (0, 1)),
        (last(DEADLINE, exit_code="137"), (1, 0)),
        (last(DISK), (1, 0)),
        (last(None, container_reason="OOMKilled", exit_code=137, by="airflow"), (1, 0)),
        (last(None, container_reason="OOMKilled", conditions=["DisruptionTarget/EvictionByEvictionAPI"]), (0, 1)),
        (last(None, reason="DeadlineExceeded"), (1, 0)),
        (last(None, deleted=True), (0, 1)),
        (json.dumps({"message": OOM}), (1, 0)),
        (last(OOM, attempt=-1), (0, 1)),
        (last(OOM, attempt=7), (0, 1)),
        (last(OOM, attempt="0"), (1, 0)),
        (last("main: Error (exit code 78)"), (1, 0)),
    ],
)  # fmt: skip
def test_what_a_lost_attempt_costs(tmp_path: Path, state: tuple[str, ...], word: str, cost: tuple[int, int]) -> None:
    store = Folder(str(tmp_path / "state"))
    lost = Ledger(store, BASE)
    lost.engine_attempt = 0
    assert lost.claim(lost.history())
    done = run(*state, "--engine-attempt", "1", "--last", word, *shell("exit 0"))
    assert done.returncode == 0, done.stderr
    counts = json.loads((tmp_path / "state" / BASE / "attempts" / "000002.json").read_text())
    assert (counts["failures"], counts["interruptions"]) == cost
    assert counts["engine_attempt"] == 1


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[1]", "7", '{"attempt": "x"}', '{"exit_code": "many"}', "{{lastRetry}}", "[" * 9999),
        *('{"attempt": 1.5}', '{"attempt": true}', '{"attempt": [1]}', '{"exit_code": {}}', '{"attempt": 1e999}'),
    ],
)
def test_a_word_that_cannot_be_read_is_said_and_left_out(tmp_path: Path, state: tuple[str, ...], text: str) -> None:
    begin(Folder(str(tmp_path / "state")))
    done = run(*state, "--last", text, "--engine-attempt", "{{retries}}", *shell("exit 0"))
    assert done.returncode == 0
    assert done.stderr.count("--last cannot be read") == 1
    assert done.stderr.count("--engine-attempt is no number") == 1


def test_the_engines_word_comes_by_variable_and_not_to_the_command(tmp_path: Path, state: tuple[str, ...]) -> None:
    kill_all(*state, *HANG)
    words = {"GPUFLOW_RUN_LAST": last(OOM), "GPUFLOW_RUN_ENGINE_ATTEMPT": "1"}
    done = run(*state, *shell("env; exit 1"), environ=words)
    assert "GPUFLOW_RUN_LAST" not in done.stdout
    assert used(tmp_path) == (2, 0)


# -- the attempt's own word


def test_an_end_that_is_there_is_not_changed_by_an_engines_word(tmp_path: Path, state: tuple[str, ...]) -> None:
    assert run(*state, "--engine-attempt", "0", *shell("exit 3")).returncode == 3
    run(*state, "--engine-attempt", "1", "--last", last("pod deleted"), *shell("exit 3"))
    assert used(tmp_path) == (2, 0)
    assert judged(tmp_path) == []


@pytest.mark.parametrize(
    ("message", "outcome"), [(DEADLINE, TIMED_OUT), (DISK, DISK_LIMIT), (OOM, None), ("pod deleted", None)]
)
def test_told_to_stop_is_a_failure_when_it_was_for_a_deadline_or_the_disk(
    tmp_path: Path, state: tuple[str, ...], message: str, outcome: str | None
) -> None:
    process = start(*state, "--engine-attempt", "0", *HANG)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait(120) == 75
    run(*state, "--engine-attempt", "1", "--last", last(message, exit_code="75"), *shell("exit 0"))
    claim = json.loads((tmp_path / "state" / BASE / "attempts" / "000002.json").read_text())
    assert (claim["failures"], claim["interruptions"]) == ((0, 1) if outcome is None else (1, 0))
    assert [record["outcome"] for record in judged(tmp_path)] == ([] if outcome is None else [outcome])


# -- the book


@pytest.mark.parametrize(
    ("message", "code", "ran"),
    [
        pytest.param(DISK, 0, True, id="the disk: a failure that is allowed"),
        pytest.param("main: Error (exit code 75)", 79, False, id="an interruption too many"),
    ],
)
def test_one_stop_too_many_ends_the_step_only_when_the_engine_had_no_other_reason(
    tmp_path: Path, state: tuple[str, ...], message: str, code: int, ran: bool
) -> None:
    budgets = ("--failures", "1", "--interruptions", "0")
    process = start(*state, *budgets, "--engine-attempt", "0", *HANG)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75
    mark = tmp_path / "ran"
    done = run(
        *state, *budgets, "--engine-attempt", "1", "--last", last(message, exit_code=75), *shell(f"touch {mark}")
    )
    assert (done.returncode, mark.exists()) == (code, ran)


@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param(("--failures", "0", "--interruptions", "0", "--engine-attempt", "0"), id="no failure is left"),
        pytest.param(("--failures", "1", "--interruptions", "0"), id="no engine tells the next one"),
        pytest.param(("--retries", "0", "--engine-attempt", "0"), id="one budget for both"),
    ],
)
def test_one_stop_too_many_is_the_end_where_nobody_could_know_better(
    state: tuple[str, ...], budgets: tuple[str, ...]
) -> None:
    process = start(*state, *budgets, *HANG)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 79


def begin(store: Folder, keys: Keys | None = None, engine_attempt: int | None = None) -> Ledger:
    ledger = Ledger(store, BASE, keys=keys)
    ledger.engine_attempt = engine_attempt
    assert ledger.claim(ledger.history())
    return ledger


def settle(store: Folder, text: str | None, keys: Keys | None = None) -> tuple[int, int]:
    ledger = Ledger(store, BASE, keys=keys)
    diagnosis.settle_last(ledger, ledger.history(), diagnosis.read_last(text, lambda _: None))
    counts = Ledger(store, BASE, keys=keys).history().counts
    return counts.failures, counts.interruptions


def almost_full(ledger: Ledger, share: int = 96) -> None:
    key = ledger.memory_key(ledger.number, ledger.id)
    ledger.store.write(key, ledger.pack(Usage(used=share, limit=100), key))


@pytest.fixture(params=[None, Keys([b"k" * 32])], ids=["unsigned", "signed"])
def keys(request: pytest.FixtureRequest) -> Keys | None:
    found: Keys | None = request.param
    return found


@pytest.fixture
def store(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "state"))


def test_an_end_that_comes_late_corrects_what_was_judged(store: Folder, keys: Keys | None) -> None:
    one = begin(store, keys, 0)
    assert settle(store, last(OOM), keys) == (1, 0)
    begin(store, keys, 1)
    one.end(INTERRUPTED, final=False, exit_code=75, because="x")
    assert settle(store, None, keys) == (0, 2)


def test_a_suspicion_is_a_failure_and_said(store: Folder, keys: Keys | None) -> None:
    one = begin(store, keys)
    almost_full(one)
    said: list[str] = []
    ledger = Ledger(store, BASE, say=said.append, keys=keys)
    assert diagnosis.settle_last(ledger, ledger.history(), None)
    assert settle(store, None, keys) == (1, 0)
    assert "used 96% of its memory limit" in said[0]
    assert "suspected out of memory" in said[0]
    judgment = ledger.read(Judgment, ledger.judged_key(1, one.id))
    assert (judgment.outcome, judgment.cause, judgment.evidence["used"]) == (OUT_OF_MEMORY, "suspected", 96)


def test_below_the_threshold_nothing_is_suspected(store: Folder) -> None:
    almost_full(begin(store), 94)
    assert settle(store, None) == (0, 1)


def test_a_suspicion_that_nobody_signed_is_not_believed(store: Folder) -> None:
    keys = Keys([b"k" * 32])
    one = begin(store, keys)
    store.write(one.memory_key(1, one.id), records.pack(Usage(used=99, limit=100)))
    assert settle(store, None, keys) == (0, 1)


@pytest.mark.parametrize(
    ("message", "cost"), [("pod deleted", (0, 1)), (OOM, (1, 0)), ("main: Error (exit code 137)", (1, 0))]
)
def test_an_engines_evidence_outweighs_a_suspicion(store: Folder, message: str, cost: tuple[int, int]) -> None:
    almost_full(begin(store, engine_attempt=0))
    assert settle(store, last(message)) == cost


def test_a_suspicion_that_was_counted_is_corrected_when_evidence_comes(store: Folder, keys: Keys | None) -> None:
    almost_full(begin(store, keys, 0))
    assert settle(store, None, keys) == (1, 0)
    two = begin(store, keys, 2)
    two.end(NEVER_STARTED, final=False, exit_code=78, because="x")
    assert settle(store, last("pod deleted", attempt=0), keys) == (0, 1)
    assert settle(store, last(OOM, attempt=0), keys) == (0, 1), "the first evidence stays"


def test_a_killed_attempt_that_ended_by_itself_is_not_suspected(store: Folder) -> None:
    one = begin(store)
    almost_full(one)
    one.end(RETRYABLE, final=False, exit_code=1, because="x")
    assert settle(store, None) == (1, 0)
    one = begin(store)
    almost_full(one)
    one.end(INTERRUPTED, final=False, exit_code=75, because="x")
    assert settle(store, last("main: Error (exit code 137)", attempt=None)) == (1, 1)


def test_an_attempt_that_took_no_number_costs_nothing_and_is_said_once(store: Folder) -> None:
    begin(store, engine_attempt=0)
    said: list[str] = []
    ledger = Ledger(store, BASE, say=said.append)
    told = diagnosis.read_last(last(OOM, attempt=1), said.append)
    for _ in range(3):
        assert not diagnosis.settle_last(ledger, ledger.history(), told)
    assert said == ["argo tells of its attempt 1, which took no number here: it costs nothing"]
    assert settle(store, last(OOM, attempt=1)) == (0, 1)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.sampled_from(["attempt", "by", "phase", "reason", "message", "exit_code", "container_reason", "conditions", "deleted"]) | st.text(), each)))  # fmt: skip  # noqa: E501 (one strategy, read as a whole)
def test_reading_the_engines_word_never_fails(value: object) -> None:
    found = diagnosis.read_last(json.dumps(value), lambda _: None)
    if found is not None:
        json.dumps(found.plain())


# -- the timeout


@pytest.mark.parametrize(
    "program",
    [
        "exec sleep 60",
        "trap 'exit 0' TERM; sleep 60 & wait",
        "trap 'exit 3' TERM; sleep 60 & wait",
        "trap '' TERM; sleep 60",
    ],
)
def test_a_timeout_is_a_failure_whatever_the_program_does_then(
    tmp_path: Path, state: tuple[str, ...], program: str
) -> None:
    words = (*state, "--failures", "1", "--interruptions", "9", "--timeout", "0.7s", "--grace", "2s")
    words = (*words, "--final-exit-codes", "3", "--retryable-exit-codes", "1", *shell(program))
    first, second = run(*words), run(*words)
    assert (first.returncode, second.returncode) == (124, 79), first.stderr
    assert "attempt 1 timed out: it ran longer than 0.7 s" in first.stderr
    assert used(tmp_path) == (2, 0)


def test_a_timeout_works_without_a_store() -> None:
    assert run("--timeout", "0.5s", *shell("exec sleep 60")).returncode == 124
    assert run("--timeout", "0.5s", "--failures", "0", *shell("exec sleep 60")).returncode == 79


def test_a_program_that_ends_in_time_has_its_own_end() -> None:
    assert run("--timeout", "30s", *shell("exit 0")).returncode == 0
    assert run("--timeout", "30s", *shell("exit 124")).returncode == 124
    assert run("--timeout", "30s", *shell("exit 143")).returncode == 143


def test_a_stop_before_the_timeout_is_an_interruption(tmp_path: Path) -> None:
    ignores = shell("trap '' TERM; echo $$; sleep 600 & wait; wait")
    for timeout in (2, 8, 32):
        state = ("--state", tmp_path / str(timeout) / "state", "--run-id", "r")
        process = start(*state, "--timeout", f"{timeout}s", "--grace", f"{timeout + 4}s", *ignores)
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        # The timeout came before the notice where the machine was slow.
        if (code := process.wait(120)) != 124:
            break
    assert code == 75
    assert used(tmp_path / str(timeout)) == (0, 1)


def test_a_stop_after_the_timeout_changes_nothing(tmp_path: Path, state: tuple[str, ...]) -> None:
    process = start(
        *state, "--timeout", "0.3s", "--grace", "4s", *shell("trap 'echo told' TERM; sleep 60 & wait; wait")
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait(120) == 124
    assert used(tmp_path) == (1, 0)


def test_the_last_checkpoint_before_a_timeout_is_kept(tmp_path: Path) -> None:
    save = "trap 'mkdir ck/.x; echo 7 > ck/.x/step; mv ck/.x ck/last; exit 0' TERM; touch up; sleep 600 & wait"
    for timeout in ("0.7s", "4s", "20s", "60s"):
        folder = tmp_path / timeout
        folder.mkdir()
        words = ("--store", "store", "--run-id", "r", "--checkpoint-dir", "ck", "--timeout", timeout, "--every", "0s")
        assert run(*words, *shell(save), cwd=folder).returncode == 124
        if (folder / "up").exists():  # else the timeout came before the program could hear of it
            break
    assert [path.read_text() for path in (folder / "store").glob("**/files/step")] == ["7\n"]


# -- one budget for everything


def test_retries_are_starts_after_the_first_whatever_ended_them(tmp_path: Path, state: tuple[str, ...]) -> None:
    words = (*state, "--retries", "2")
    assert run(*words, *shell("exit 1")).returncode == 1
    kill_all(*words, *HANG)
    done = run(*words, *shell("exit 1"))
    assert done.returncode == 79
    assert "the budget of 2 retries is spent" in done.stderr


def test_an_interruption_can_be_the_last_retry(tmp_path: Path, state: tuple[str, ...]) -> None:
    words = (*state, "--retries", "1")
    kill_all(*words, *HANG)
    kill_all(*words, *HANG)
    done = run(*words, *shell("touch ran"), cwd=tmp_path)
    assert (done.returncode, (tmp_path / "ran").exists()) == (79, False)
    assert "2 failures and interruptions so far; the budget of 1 retries is spent" in done.stderr


def test_a_final_exit_code_ends_at_once_with_retries_left(state: tuple[str, ...]) -> None:
    assert run(*state, "--retries", "5", "--final-exit-codes", "3", *shell("exit 3")).returncode == 79


def test_one_budget_and_the_two_exclude_each_other(state: tuple[str, ...]) -> None:
    for other in ("--failures", "--interruptions"):
        done = run(*state, "--retries", "1", other, "0", *shell("exit 0"))
        assert (done.returncode, "--retries is one budget" in done.stderr) == (78, True)
    done = run("--retries", "1", *shell("exit 0"))
    assert (done.returncode, "--retries" in done.stderr) == (78, True)


# -- the memory of an attempt that is killed


def test_memory_is_written_when_it_rises_over_a_mark_and_seldom_else(store: Folder) -> None:
    ledger = begin(store)
    watch = running.MemoryWatch(ledger)
    looks = [
        (50, 0.0),
        (79, 1.0),
        (81, 2.0),
        (85, 3.0),
        (91, 4.0),
        (96, 5.0),
        (99, 6.0),
        (99, 36.0),
        (99, 70.0),
        (40, 71.0),
    ]
    assert [share for share, moment in looks if watch.look(share, 100, moment)] == [81, 91, 96, 99, 40]
    assert ledger.read(Usage, ledger.memory_key(1, ledger.id)).used == 40
    assert watch.look(97, 100, 72.0)


def test_memory_that_could_not_be_written_is_written_at_the_next_look(
    store: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("gone")

    watch = running.MemoryWatch(begin(store))
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", fail)
        assert not watch.look(96, 100, 1.0)
    assert watch.look(96, 100, 1.1)


def test_a_claim_of_before_has_no_engine_attempt_and_is_read(store: Folder) -> None:
    ledger = begin(store)
    path = ledger.attempt_key(1)
    value = json.loads(store.read(path))
    for name in ("engine_attempt", "hash", "signature"):
        del value[name]
    store.write(path, records.encode({**value, "hash": records.digest(value), "signature": None}))
    claim = Ledger(store, BASE).read_claim(1)
    assert claim is not None
    assert claim.engine_attempt is None
    assert settle(store, last(OOM, attempt=5)) == (1, 0), "one of the two numbers is missing"


FULL = """
import sys
from gpuflow.runtime.base import container as memory
memory.working_set = lambda: (97, 100)
from gpuflow.runtime.supervise.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_container_killed_with_its_memory_full_is_suspected_by_the_next_attempt(
    tmp_path: Path, state: tuple[str, ...]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FULL, *state, *HANG], env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    program = int(process.stdout.readline())
    attempts = tmp_path / "state" / BASE / "attempts"
    try:
        eventually(lambda: list(attempts.glob("*.memory.json")))
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        os.killpg(program, signal.SIGKILL)
    done = run(*state, *shell("exit 1"))
    assert "suspected out of memory" in done.stderr
    assert used(tmp_path) == (2, 0)


def test_after_the_command_has_ended_its_memory_is_no_reason(store: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = begin(store)
    watch = running.MemoryWatch(ledger)
    assert watch.look(97, 100, 0.0)
    monkeypatch.setattr(container, "working_set", lambda: (12, 100))
    watch.end()
    watch._run()
    assert settle(store, None) == (0, 1)


KILLED_ONE = """
import itertools, sys
from gpuflow.runtime.base import container as memory
memory.oom_kills = itertools.count().__next__
from gpuflow.runtime.supervise.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("code", "outcome"), [(0, None), (1, OUT_OF_MEMORY), (137, OUT_OF_MEMORY)])
def test_a_killed_child_counts_only_when_its_program_fails(
    tmp_path: Path, state: tuple[str, ...], code: int, outcome: str | None
) -> None:
    words = [sys.executable, "-c", KILLED_ONE, *state, *shell(f"exit {code}")]
    assert subprocess.run(words, env=environment(), check=False).returncode == code
    ends = [json.loads(path.read_text()) for path in (tmp_path / "state" / BASE / "attempts").glob("*.end.json")]
    assert [end["outcome"] for end in ends] == ([] if outcome is None else [outcome])


@pytest.mark.parametrize("word", ["OOMKilled", "DeadlineExceeded", "main: OOMKilled (exit code 137)", "pod deleted"])
def test_a_program_that_says_the_engines_words_has_failed_like_any_other(
    tmp_path: Path, state: tuple[str, ...], word: str
) -> None:
    done = run(*state, *shell(f"echo '{word}' | tee {tmp_path}/log >&2; exit 5"))
    assert done.returncode == 5
    assert facts(tmp_path)["outcome"] == RETRYABLE
    run(*state, "--last", last(f"main: Error (exit code 5): {word}", exit_code="5"), *shell("exit 5"))
    assert used(tmp_path) == (2, 0)
    assert judged(tmp_path) == []
