"""A gang: its supervisors start together, agree on one outcome and stop together. Real processes, real signals.

Tests gpuflow/runtime/gangs/ranks/connection.py, gpuflow/runtime/gangs/ranks/hub.py,
gpuflow/runtime/gangs/ranks/rank_attempt.py and
gpuflow/runtime/gangs/ranks/spoke.py.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from gpuflow.runtime.base import termination_message
from gpuflow.runtime.base.signing import Keys, read_keys
from gpuflow.runtime.gangs.ranks import protocol
from tests.runtime.gangs import Gang, orphans_of, strangers_say
from tests.runtime.harness import eventually, hears_term, run, shell, start

UP = 'touch "$OWN/up"; '
WAIT = shell(UP + "exec sleep 60")
BOOK = ("--run-id", "r", "--failures", "3", "--interruptions", "3")


def as_rank(rank: int, then: str, otherwise: str) -> tuple[str, ...]:
    return tuple(shell(f'{UP}if [ "$GPUFLOW_RANK" = {rank} ]; then {then}; else {otherwise}; fi'))


def ends(folder: Path) -> list[dict[str, object]]:
    """How the attempts ended, as the book says."""
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("*.end.json"))]


def test_all_end_well_and_rank_0_alone_writes_the_book(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    words = ("--state", tmp_path / "state", *BOOK, "--output", "digest", "--outputs-dir", tmp_path / "out")
    gang.start(*words, *shell('echo "of $GPUFLOW_RANK" > "$GPUFLOW_OUTPUTS/digest"'))
    assert gang.all_end_with(0)
    assert (tmp_path / "out" / "digest").read_text() == "of 0"
    claims = [path.name for path in (tmp_path / "state").rglob("attempts/*")]
    assert claims == ["000001.json"]
    facts = termination_message.parse(gang.last_words(0))
    assert facts is not None and facts["outputs"] == {"digest": "of 0"}
    again = Gang(tmp_path / "again", 3)
    again.start(*words, *shell("exit 9"))
    assert again.all_end_with(0)  # the marker is there: nobody runs
    facts = termination_message.parse(again.last_words(0))
    assert facts is not None and facts["outputs"] == {"digest": "of 0"}


def test_commands_start_when_all_are_there(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start(*WAIT, ranks=[0])
    eventually(lambda: strangers_say(gang.port, b"\n"))
    assert not (tmp_path / "0" / "up").exists()
    gang.start(*WAIT, ranks=[1])  # it comes late
    gang.are_up()
    gang.send(0, signal.SIGTERM)
    assert gang.all_end_with(75)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_is_told_to_stop_stops_all(tmp_path: Path, rank: int) -> None:
    gang = Gang(tmp_path, 3)
    trap = shell("trap 'echo told > $OWN/told; exit 0' TERM; " + UP + "while :; do sleep 0.05; done")
    gang.start("--state", tmp_path / "state", *BOOK, *trap)
    gang.are_up()
    gang.send(rank, signal.SIGTERM)
    assert gang.all_end_with(75)
    assert [(tmp_path / str(each) / "told").exists() for each in range(3)] == [True] * 3
    assert [end["outcome"] for end in ends(tmp_path / "state")] == ["interrupted"]
    assert f"rank {rank} was told to stop" in gang.said(1)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_is_lost_and_that_is_an_interruption(tmp_path: Path, rank: int) -> None:
    gang = Gang(tmp_path, 3)
    gang.start("--state", tmp_path / "state", *BOOK, *WAIT)
    gang.are_up()
    gang.send(rank, signal.SIGKILL)
    codes = gang.codes()
    assert codes.pop(rank) == -9
    assert set(codes.values()) == {75}, gang.said()
    assert f"rank {rank} is lost" in gang.said(2)
    if rank:
        assert [end["outcome"] for end in ends(tmp_path / "state")] == ["interrupted"]
    for pid in orphans_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_frozen_rank_is_noticed(tmp_path: Path, rank: int) -> None:
    gang = Gang(tmp_path, 3)
    gang.start(*WAIT)
    gang.are_up()
    gang.send(rank, signal.SIGSTOP)
    try:
        others = {each: gang.ranks[each].wait(120) for each in range(3) if each != rank}
        assert set(others.values()) == {75}
    finally:
        gang.send(rank, signal.SIGCONT)
    assert gang.ranks[rank].wait(120) == 75  # it comes back, and finds itself alone
    assert "nothing was heard from it for 3 s" in gang.said(2)


def test_the_code_of_the_one_that_fails_is_everyones(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    gang.start("--state", tmp_path / "state", *BOOK, *as_rank(2, "exit 17", "sleep 0.3; exit 1"))
    assert gang.all_end_with(17)
    (end,) = ends(tmp_path / "state")
    assert (end["outcome"], end["exit_code"]) == ("failed (retryable)", 17)
    assert "rank 2" in str(end["because"])
    facts = termination_message.parse(gang.last_words(1))
    assert facts is not None and (facts["exit_code"], facts["own_exit_code"], facts["rank"]) == (17, 1, 1)
    facts = termination_message.parse(gang.last_words(0))
    assert facts is not None and facts["cause_rank"] == 2, "whoever looks from outside sees equal exit codes"


def test_a_rank_that_succeeded_does_not_exit_0_when_another_failed(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    gang.start(*as_rank(1, "sleep 1; exit 5", "exit 0"))
    assert gang.all_end_with(5)


def test_after_a_failure_those_that_still_run_are_stopped(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    gang.start(*as_rank(1, "exit 5", "exec sleep 60"))
    assert gang.all_end_with(5)


def test_a_failure_just_before_someone_is_told_to_stop_is_an_interruption(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    gang.start("--state", tmp_path / "state", *BOOK, *as_rank(1, "exit 1", "exec sleep 60"))
    gang.are_up()
    time.sleep(0.5)
    gang.send(2, signal.SIGTERM)
    assert gang.all_end_with(75)
    assert [end["outcome"] for end in ends(tmp_path / "state")] == ["interrupted"]


def test_also_when_all_have_failed_of_it_already(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3, times="beat=0.2,lost=3,settle=8,linger=6")
    gang.start(*as_rank(1, "exit 1", "sleep 0.1; exit 1"))
    gang.are_up()
    time.sleep(0.7)
    gang.send(2, signal.SIGTERM)
    assert gang.all_end_with(75)


def test_a_rank_that_waits_after_its_success_and_is_told_to_stop_interrupts(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start(*as_rank(1, "exit 0", "exec sleep 60"))
    gang.are_up()
    time.sleep(0.5)
    gang.send(1, signal.SIGTERM)
    assert gang.all_end_with(75)


def test_a_final_code_on_one_rank_is_final_for_all(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    words = ("--state", tmp_path / "state", *BOOK, "--final-exit-codes", "3")
    gang.start(*words, *as_rank(2, "sleep 0.3; exit 3", "exit 1"))
    assert gang.all_end_with(79)
    again = Gang(tmp_path / "again", 3)
    again.start(*words, *WAIT)
    assert again.all_end_with(79)  # and stays so: no command runs
    assert not (tmp_path / "again" / "1" / "up").exists()


def test_a_command_that_was_killed_is_the_cause_and_not_those_who_miss_it(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    gang.start(*as_rank(1, "kill -9 $$", "sleep 0.3; exit 1"))
    assert gang.all_end_with(137)


def test_a_timeout_on_one_rank_ends_all_as_timed_out(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start("--timeout", "1s", *WAIT, ranks=[1])
    gang.start("--timeout", "1h", *WAIT, ranks=[0])
    assert gang.all_end_with(124)


def test_a_spent_budget_is_told_to_all(tmp_path: Path) -> None:
    words = ("--state", tmp_path / "state", "--run-id", "r", "--failures", "0")
    gang = Gang(tmp_path, 2)
    gang.start(*words, *as_rank(1, "exit 4", "exit 4"))
    assert gang.all_end_with(79)


def test_a_member_that_never_comes_is_named_and_nothing_is_counted(tmp_path: Path) -> None:
    for seconds in (1, 4, 16, 48):
        gang = Gang(tmp_path / str(seconds), 3)
        gang.start("--state", tmp_path / "state", *BOOK, "--gang-timeout", f"{seconds}s", *WAIT, ranks=[0, 1])
        assert gang.all_end_with(78)
        assert not list((tmp_path / "state").rglob("attempts/*"))
        if "rank 2 of 3 did not come" in gang.said(0):  # else rank 1 did not come in time either
            break
    for part in (f"rank 2 of 3 did not come within {seconds} s", "127.0.0.1", str(gang.port), "NetworkPolicy"):
        assert part in gang.said(0)
        assert part in gang.said(1)


def test_a_rank_0_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    gang.start("--gang-timeout", "1s", *WAIT, ranks=[2])
    assert gang.all_end_with(78)
    for part in ("rank 2 of 3 cannot join", f"127.0.0.1:{gang.port}", "Connection refused", "NetworkPolicy"):
        assert part in gang.said(2)


def test_a_name_that_is_not_known_yet_is_asked_for_again(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start("--gang-timeout", "1s", *WAIT, ranks=[1], environ={"GPUFLOW_LEADER": "no-such-host.invalid"})
    assert gang.all_end_with(78)
    assert "no-such-host.invalid" in gang.said(1)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_for_others_can_be_told_to_stop_and_nothing_is_counted(tmp_path: Path, rank: int) -> None:
    gang = Gang(tmp_path, 3)
    gang.start("--state", tmp_path / "state", "--run-id", "r", "--interruptions", "0", *WAIT, ranks=[rank])
    eventually(lambda: hears_term(gang.ranks[rank]))
    time.sleep(0.5)
    gang.send(rank, signal.SIGTERM)
    assert gang.all_end_with(75)
    assert not list((tmp_path / "state").rglob("attempts/*"))


def hello(gang: Gang, rank: int, *, name: str | None = None, size: int | None = None) -> bytes:
    return protocol.pack("hello", gpuflow=1, gang=name or gang.name, rank=rank, size=size or gang.size)


@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00\xff" * 5000, b"[]\n", b'{"say": 1}\n', b"x" * 300_000, b"\n" * 9000]
)
def test_strangers_do_not_hurt(tmp_path: Path, data: bytes) -> None:
    gang = Gang(tmp_path, 2)
    gang.start(*shell(UP + "sleep 0.5"), ranks=[0])
    eventually(lambda: strangers_say(gang.port, data))
    silent = socket.create_connection(("127.0.0.1", gang.port))
    gang.start(*shell(UP + "sleep 0.5"), ranks=[1])
    gang.are_up()
    strangers_say(gang.port, data)
    assert gang.all_end_with(0)
    silent.close()


def test_many_silent_strangers_do_not_keep_a_member_out(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start(*shell(UP + "true"), ranks=[0])
    eventually(lambda: strangers_say(gang.port, b"\n"))
    silent = [socket.create_connection(("127.0.0.1", gang.port)) for _ in range(100)]
    gang.start(*shell(UP + "true"), ranks=[1])
    assert gang.all_end_with(0)
    assert "too many connections" in gang.said(0)
    for each in silent:
        each.close()


FLAT = {"say": "no", "because": "no proof of being of this gang; the log of rank 0 says more", "final": False}


def answers(data: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in data.splitlines()]


def test_peers_of_another_gang_size_or_rank_are_turned_away(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start(*shell(UP + "sleep 0.5"), ranks=[0])
    eventually(lambda: strangers_say(gang.port, b"\n"))
    assert answers(strangers_say(gang.port, hello(gang, 1, name="gang-0")))[1:] == [FLAT]
    for rank, size in ((0, 2), (2, 2), (-1, 2), (1, 3)):
        (_, refusal) = answers(strangers_say(gang.port, hello(gang, rank, size=size)))
        assert refusal == {"say": "no", "because": "it is none of the ranks of this gang", "final": True}
    older = Gang(tmp_path / "older", 2, name="gang-0")
    older.port = gang.port
    older.start("--gang-timeout", "1s", *WAIT, ranks=[1])
    assert older.all_end_with(78)
    assert "it turned this rank away: no proof of being of this gang" in older.said(1)
    gang.start(*shell(UP + "sleep 0.5"), ranks=[1])
    assert gang.all_end_with(0)
    said = gang.said(0)
    assert "turned away: it is of the gang 'gang-0', and this is 'gang-1'" in said
    assert "it says that it is rank 1 of 3, and this gang has the ranks 0 to 1" in said
    assert f"whoever reaches port {gang.port} and knows the name of this gang can join it" in said


def test_a_second_peer_of_the_same_rank_is_turned_away_and_the_first_stays(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    gang.start(*shell(UP + "sleep 2"), ranks=[0, 1])
    eventually(lambda: b"rank 1 is here already" in strangers_say(gang.port, hello(gang, 1)))
    gang.start(*shell(UP + "sleep 2"), ranks=[2])
    gang.are_up()
    assert b"rank 1 is here already" in strangers_say(gang.port, hello(gang, 1))
    assert gang.all_end_with(0)


def test_a_rank_that_left_before_the_gang_was_complete_can_come_again(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 3)
    gang.start(*shell(UP + "true"), ranks=[0, 1])
    eventually(lambda: b"rank 1 is here already" in strangers_say(gang.port, hello(gang, 1)))
    gang.send(1, signal.SIGKILL)
    gang.ranks[1].wait()
    gang.start(*shell(UP + "true"), ranks=[1, 2])
    assert gang.all_end_with(0)


def test_with_a_key_a_peer_must_have_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "key").chmod(0o400)
    gang = Gang(tmp_path, 2)
    key = ("--key-file", tmp_path / "key")
    gang.start(*key, *shell(UP + "true"), ranks=[0])
    eventually(lambda: strangers_say(gang.port, b"\n"))
    assert answers(strangers_say(gang.port, hello(gang, 1)))[1:] == [FLAT]
    gang.start(*key, *shell(UP + "true"), ranks=[1])
    assert gang.all_end_with(0)
    assert "it lacks this gang's $GPUFLOW_GANG_SECRET or key of --key-file" in gang.said(0)


SECRET = "5ec2e7" * 8


class Stranger:
    """Who reaches the port, knows the gang's name and size, and can do what a rank does; but for the secret."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), 5)
        self._connection.settimeout(20)
        self._stream = self._connection.makefile("rb")
        self.nonce = self.hear()["nonce"]

    def say(self, *messages: bytes) -> None:
        self._connection.sendall(b"".join(messages))

    def hear(self) -> dict[str, object]:
        return dict(json.loads(self._stream.readline() or b"{}"))

    def is_gone(self) -> bool:
        try:
            return not self._stream.read()
        except ConnectionResetError:
            return True
        finally:
            self._connection.close()


def guesses(gang: Gang, nonce: str) -> list[dict[str, object]]:
    """Proofs by whoever does not have the secret."""
    place = protocol.sign_of(gang.name, 1)
    signed = [Keys([key]).sign(nonce, place) for key in (b"0" * 32, gang.name.encode() * 4, b"")]
    return [
        {},
        {"proof": None},
        {"proof": 1},
        {"proof": "\ud800"},
        {"proof": ""},
        *({"proof": each} for each in signed),
    ]


@pytest.mark.parametrize("mpi", [(), ("--mpi", 1)], ids=["plain", "mpi"])
@pytest.mark.parametrize("key", [False, True], ids=["secret", "secret-and-key"])
def test_a_stranger_without_the_secret_takes_no_ranks_place_and_is_told_nothing(
    tmp_path: Path, mpi: tuple[object, ...], key: bool
) -> None:
    """It comes before the real rank 1, in each way; then the gang starts and ends as if nobody had come."""
    words: tuple[object, ...] = mpi
    if key:
        (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
        (tmp_path / "key").chmod(0o400)
        words = (*words, "--key-file", tmp_path / "key")
    gang = Gang(tmp_path, 2)
    environ = {protocol.SECRET: SECRET}
    leader = shell('$OMPI_MCA_plm_rsh_agent rank-1 "env > $HERE/ordered"; env > "$OWN/env"') if mpi else None
    program = leader or shell('env > "$OWN/env"')
    gang.start(*words, *program, ranks=[0], environ=environ)
    eventually(lambda: strangers_say(gang.port, b"\n"))
    slots = {"slots": 1, "nonce": "0" * 32} if mpi else {}
    for name, size, rank in ((gang.name, 2, 1), ("other", 2, 1), (gang.name, 3, 1), (gang.name, 2, 0), ("other", 9, 8)):
        for guess in guesses(gang, "0" * 32):
            stranger = Stranger(gang.port)
            proof = {**guess, **slots}
            greeting = protocol.pack("hello", gpuflow=1, gang=name, rank=rank, size=size, **proof)
            forged = protocol.pack("ended", outcome="failed (final)", because="forged by a stranger", code=1)
            stranger.say(greeting, forged)
            assert stranger.hear() == FLAT
            assert stranger.is_gone()
    replayed = Stranger(gang.port)
    another = Stranger(gang.port)
    proofs = protocol.proof_keys(read_keys(str(tmp_path / "key")) if key else None, environ)
    assert proofs is not None
    stolen = proofs.sign(str(another.nonce), protocol.sign_of(gang.name, 1))
    replayed.say(protocol.pack("hello", gpuflow=1, gang=gang.name, rank=1, size=2, proof=stolen, **slots))
    assert replayed.hear() == FLAT  # a proof is for one connection
    gang.start(*words, *program, ranks=[1], environ=environ)
    assert gang.all_end_with(0)
    said = gang.said()
    assert "all 2 ranks are here" in said and "forged" not in said and SECRET not in said
    assert SECRET not in gang.last_words(0) + gang.last_words(1)
    seen = [path.read_text() for path in (tmp_path / "0" / "env", *((tmp_path / "ordered",) if mpi else ()))]
    assert not [text for text in seen if SECRET in text or protocol.SECRET in text]


def test_a_rank_with_the_secret_of_another_attempt_waits_and_is_not_let_in(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start(*shell("true"), ranks=[0], environ={protocol.SECRET: SECRET})
    for secret in ({protocol.SECRET: "another secret, long enough"}, {}):
        older = Gang(tmp_path / "older", 2)
        older.port = gang.port
        older.start("--gang-timeout", "2s", *WAIT, ranks=[1], environ=secret)
        assert older.all_end_with(78)
        assert "no proof of being of this gang" in older.said(1)
    gang.start(*shell("true"), ranks=[1], environ={protocol.SECRET: SECRET})
    assert gang.all_end_with(0)


def test_a_secret_that_can_be_guessed_is_refused_and_not_printed(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start(*shell("true"), ranks=[0], environ={protocol.SECRET: "hunter2"})
    assert gang.all_end_with(78)
    assert "$GPUFLOW_GANG_SECRET has 7 bytes, and needs at least 16" in gang.said()
    assert "hunter2" not in gang.said()


def test_a_gang_of_one_needs_no_one(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 1)
    gang.start(*shell("exit 3"))
    assert gang.all_end_with(3)


def test_with_an_offset_the_program_sees_its_rank(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    show = shell('echo "$GPUFLOW_RANK $PET_NODE_RANK" > "$OWN/rank"')
    gang.start("--rank-offset", "1", *show, ranks=[1], environ={"GPUFLOW_RANK": "0", "PET_NODE_RANK": "0"})
    gang.start(*show, ranks=[0])
    assert gang.all_end_with(0)
    assert (tmp_path / "1" / "rank").read_text() == "1 1\n"


def test_a_leader_with_a_program_of_its_own_hears_which_worker_was_first(tmp_path: Path) -> None:
    """Both workers have an index from 0 up; the one with index 1 is rank 2."""
    gang = Gang(tmp_path, 3)
    for index, program in enumerate((UP + "sleep 60", UP + "sleep 0.5; exit 3")):
        words = ("--rank-offset", "1", *shell(program))
        gang.start(*words, ranks=[index + 1], environ={"GPUFLOW_RANK": str(index)})
    gang.start(*shell(UP + "echo leads; sleep 60"), ranks=[0])
    assert gang.all_end_with(3)
    facts = termination_message.parse(gang.last_words(0))
    assert facts is not None and facts["cause_rank"] == 2


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({"GPUFLOW_RANK": "x"}, "$GPUFLOW_RANK"),
        ({}, "$GPUFLOW_RANK"),
        ({"GPUFLOW_RANK": "2"}, "the last one is 1"),
        ({"GPUFLOW_RANK": "1"}, "$GPUFLOW_LEADER"),
        ({"GPUFLOW_RANK": "0", "GPUFLOW_GANG_TIMES": "beat=9"}, "$GPUFLOW_GANG_TIMES"),
    ],
)
def test_a_place_that_cannot_be_is_refused(environ: dict[str, str], part: str) -> None:
    done = run("--gang", "2", *shell("true"), environ=environ)
    assert done.returncode == 78 and part in done.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--gang", "2", "--gang-port", port, "--gang-timeout", "300ms")
        done = run(*words, *shell("true"), environ={"GPUFLOW_RANK": "0"})
    assert done.returncode == 78 and f"cannot listen on port {port}" in done.stderr


def test_outputs_that_do_not_fit_into_the_last_words_fail_and_say_so(tmp_path: Path) -> None:
    gang = Gang(tmp_path, 2)
    gang.start("--output", "x", *shell('head -c 3500 /dev/zero | tr "\\0" a > "$GPUFLOW_OUTPUTS/x"'))
    assert gang.all_end_with(1)
    assert "they take 3509 bytes, and the most is 3000" in gang.said(1)


def test_the_star_is_not_loaded_without_a_gang() -> None:
    code = (
        "import sys; from gpuflow.runtime.supervise import main; main.main(['--', 'true']); print(sorted(sys.modules))"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "runtime.gangs" not in done.stdout and "'selectors'" not in done.stdout


# -- checkpoints

SAVE = (
    'test -z "$GPUFLOW_RESUME_FROM" || cat "$GPUFLOW_RESUME_FROM" > "$OWN/resumed"; '
    'if [ "$GPUFLOW_RANK" = 0 ]; then echo one > "$GPUFLOW_CHECKPOINT_DIR/.c"; '
    'mv "$GPUFLOW_CHECKPOINT_DIR/.c" "$GPUFLOW_CHECKPOINT_DIR/c-1"; sleep 1; fi; '
)


def save_then_stop(gang: Gang, *words: object, own: bool) -> None:
    for rank in reversed(range(gang.size)):
        place = gang.folder / (f"c{rank}" if own else "c")
        gang.start(*words, "--checkpoint-dir", place, *shell(f"{SAVE}{UP}exec sleep 60"), ranks=[rank])
    gang.are_up()
    gang.send(1, signal.SIGTERM)
    assert gang.all_end_with(75)


def test_every_rank_restores_what_rank_0_restores_from_the_store(tmp_path: Path) -> None:
    words = ("--store", tmp_path / "store", *BOOK, "--every", "0s")
    save_then_stop(Gang(tmp_path, 3), *words, own=True)
    assert not list((tmp_path / "c1").glob("c-*"))
    for rank in range(3):
        (tmp_path / str(rank) / "up").unlink()
    again = Gang(tmp_path, 3)
    save_then_stop(again, *words, own=True)
    assert [(tmp_path / str(rank) / "resumed").read_text() for rank in range(3)] == ["one\n"] * 3
    assert "rank 1 resumes from c-1 (from the store), as rank 0 does" in again.said(1)


def test_what_only_rank_0_has_is_not_resumed_from_when_there_is_a_store(tmp_path: Path) -> None:
    """A checkpoint that was not uploaded lies on rank 0's machine: the others could not follow."""
    words = ("--store", tmp_path / "store", *BOOK, "--every", "1h")
    gang = Gang(tmp_path, 2)
    for rank in (1, 0):
        gang.start(*words, "--checkpoint-dir", tmp_path / f"c{rank}", *shell(f"{SAVE}{UP}exec sleep 60"), ranks=[rank])
    gang.are_up()
    gang.send(0, signal.SIGKILL)
    gang.codes()
    for pid in orphans_of(tmp_path):
        os.kill(pid, signal.SIGKILL)
    stored = list((tmp_path / "store").rglob("manifest.json"))
    again = Gang(tmp_path, 2)
    show = shell('echo "$GPUFLOW_RESUME_FROM" > "$OWN/from"')
    for rank in (1, 0):
        again.start(*words, "--checkpoint-dir", tmp_path / f"c{rank}", *show, ranks=[rank])
    assert again.all_end_with(0)
    found = {bool((tmp_path / str(rank) / "from").read_text().strip()) for rank in range(2)}
    assert found == {bool(stored)}, "all from the same, or all from nothing"


def test_on_a_shared_directory_nothing_is_fetched(tmp_path: Path) -> None:
    save_then_stop(Gang(tmp_path, 3), *BOOK, own=False)
    for rank in range(3):
        (tmp_path / str(rank) / "up").unlink()
    save_then_stop(Gang(tmp_path, 3), *BOOK, own=False)
    assert [(tmp_path / str(rank) / "resumed").read_text() for rank in range(3)] == ["one\n"] * 3
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [".gpuflow", "c-1"]


def test_without_a_store_a_directory_that_only_rank_0_has_is_refused(tmp_path: Path) -> None:
    save_then_stop(Gang(tmp_path, 2), *BOOK, own=True)
    again = Gang(tmp_path, 2)
    for rank in (1, 0):
        again.start(*BOOK, "--checkpoint-dir", tmp_path / f"c{rank}", *WAIT, ranks=[rank])
    assert again.all_end_with(78)
    assert "rank 1 cannot start: rank 0 resumes from c-1" in again.said(0)
    assert "volume that all ranks share" in again.said(1)
    outcomes = [end["outcome"] for end in ends(tmp_path / "c0")]
    assert outcomes == ["interrupted", "never started"]


def test_single_pods_do_not_need_any_of_it(tmp_path: Path) -> None:
    process = start("--run-id", "r", "--state", tmp_path, *shell("exit 6"))
    assert process.wait(120) == 6
