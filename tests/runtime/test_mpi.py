"""A gang whose program is mpirun, with a stand-in for it that calls our agent as Open MPI does.

Tests gpuflow/runtime/gangs/ranks/mpi.py, gpuflow/runtime/gangs/ranks/mpi_programs.py and
gpuflow/runtime/gangs/ranks/rank_attempt.py.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuflow.runtime.base import container
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.outcomes import OUT_OF_MEMORY, SUCCEEDED
from gpuflow.runtime.base.signing import Keys
from gpuflow.runtime.gangs.ranks import mpi, mpi_programs, protocol, rank_attempt
from tests.runtime import harness
from tests.runtime.gangs import Gang, orphans_of
from tests.runtime.harness import eventually, free_port, run, shell, start

ROOT = Path(__file__).resolve().parents[2]
MPIRUN = f"{sys.executable} {ROOT / 'tests' / 'runtime' / 'mpirun_toy.py'}"


def gang_of(tmp_path: Path, program: str, daemon: str, *words: object, size: int = 3, slots: int | None = None) -> Gang:
    """A gang of 2 slots on each rank; `slots` of rank 0 are others."""
    gang = Gang(tmp_path, size)
    told = {"TOY_DAEMON": daemon}
    gang.start("--mpi", 2, *words, *shell(program), ranks=range(1, size), environ=told)
    gang.start("--mpi", 2 if slots is None else slots, *words, *shell(program), ranks=[0], environ=told)
    return gang


# -- what mpirun reads


def test_hosts_are_addresses_and_a_rank_that_shares_one_has_a_name_of_its_own() -> None:
    found = mpi.hosts_of(
        [("10.0.0.1", 8), ("::ffff:10.0.0.2", 8), ("10.0.0.2", 8), ("fd00::7", 8), ("fe80::1%eth0", 0)]
    )
    assert [(host.rank, host.name, host.slots) for host in found] == [
        (0, "10.0.0.1", 8),
        (1, "10.0.0.2", 8),
        (2, "rank-2", 8),
        (3, "rank-3", 8),
        (4, "rank-4", 0),
    ]
    with pytest.raises(BadOption, match="no rank of the gang has a slot"):
        mpi.hosts_of([("10.0.0.1", 0), ("10.0.0.2", 0)])


def test_a_host_without_slots_is_in_no_host_file_and_the_agent_is_a_program(tmp_path: Path) -> None:
    place = mpi.make_folder({"TMPDIR": str(tmp_path / "with space")})
    mpi.write_files(place, mpi.hosts_of([("10.0.0.1", 0), ("10.0.0.2", 8)]), "10.0.0.1")
    given = mpi.mpi_variables(place, 300)
    assert Path(given["OMPI_MCA_orte_default_hostfile"]).read_text() == "10.0.0.2 slots=8\n"
    assert Path(given["PRTE_MCA_prte_default_hostfile"]).read_text() == "10.0.0.2 slots=8\n"
    assert (
        Path(given["HYDRA_HOST_FILE"]).read_text() == Path(given["I_MPI_HYDRA_HOST_FILE"]).read_text() == "10.0.0.2:8\n"
    )
    assert Path(given["HYDRA_CONFIG_FILE"]).read_text() == "-localhost 10.0.0.1\n"
    assert given["OMPI_MCA_plm_rsh_num_concurrent"] == "300" and " " not in place
    assert Path(place).stat().st_mode & 0o777 == 0o700 and Path(given["HYDRA_LAUNCHER_EXEC"]).stat().st_mode & 0o100


@pytest.mark.parametrize(
    ("given", "host", "command"),
    [
        (["rank-1", " orted", "-mca", "ess", '"env"'], "rank-1", 'orted -mca ess "env"'),
        (
            ["-x", "10.0.0.2", '"/bin/hydra_pmi_proxy"', "--id", "1"],
            "10.0.0.2",
            '"/bin/hydra_pmi_proxy" --id 1',
        ),
        (["-q", "-o", "A=b", "-p", "22", "-p23", "me@h", "echo", "$SHELL"], "h", "echo $SHELL"),
        (["-x"], "", ""),
        (["h"], "h", ""),
    ],
)
def test_the_agent_reads_its_words_as_ssh_does(given: list[str], host: str, command: str) -> None:
    assert mpi_programs.split(given) == (host, command)


def test_mpi_needs_a_gang_and_all_of_it(tmp_path: Path) -> None:
    alone = run("--mpi", "2", *shell("true"))
    assert alone.returncode == 78 and "--mpi is for a gang" in alone.stderr
    gang = Gang(tmp_path, 2)
    gang.start("--gang-timeout", "60s", "--mpi", 1, *shell("true"), ranks=[0])
    gang.start("--gang-timeout", "60s", *shell("true"), ranks=[1])
    assert gang.all_end_with(78)
    assert "rank 1 and rank 0 do not both have --mpi" in gang.said(1)


# -- what runs where


def test_the_program_runs_on_rank_0_alone_and_what_it_starts_on_every_rank(tmp_path: Path) -> None:
    daemon = 'echo "daemon of $GPUFLOW_RANK:" "$GPUFLOW_ATTEMPT" >&2; printf "%s\\n" to-all;'
    daemon += ' echo "$0 $*" >"$HERE/$GPUFLOW_RANK/started"; set --'
    gang = gang_of(tmp_path, f'echo once >>"$HERE/program"; {MPIRUN} && {MPIRUN}', daemon)
    assert gang.all_end_with(0), gang.said()
    assert (tmp_path / "program").read_text() == "once\n"
    for rank in (1, 2):
        assert gang.printed(rank) == "to-all\nto-all\n", "two orders, one after the other, in the rank's own log"
        assert gang.said(rank).count(f"daemon of {rank}: 1") == 2
    assert gang.printed(0) == 6 * "to-all\n", "and all of it came back to mpirun"
    assert "daemon of 2: 1" in gang.said(0)
    assert not orphans_of(tmp_path)


def test_the_host_file_of_the_mpi_operator_is_not_taken_for_the_steps_own(tmp_path: Path) -> None:
    program = 'echo "$OMPI_MCA_orte_default_hostfile $HYDRA_HOST_FILE $OMPI_MCA_orte_keep_fqdn_hostnames"'
    set_by = {"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames": "true"}
    gang = Gang(tmp_path, 2)
    gang.start("--mpi", 2, *shell(program), environ={**set_by, "HYDRA_HOST_FILE": "/mine"})
    assert gang.all_end_with(0)
    hosts, own, other = gang.printed(0).split()
    assert hosts.endswith("/hosts.openmpi") and (own, other) == ("/mine", "true")


def test_the_words_of_a_command_come_through_a_shell_as_they_would_by_ssh(tmp_path: Path) -> None:
    gang = gang_of(tmp_path, MPIRUN, f"{sys.executable} -c 'import sys; print(sys.argv[1:])'", size=2, slots=0)
    assert gang.all_end_with(0)
    assert gang.printed(1) == gang.printed(0) == "['-mca', 'ess', 'env', '-mca', 'slots', '2']\n"


def test_the_mount_for_images_without_gpuflow_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = harness.mount(tmp_path / "mount")
    monkeypatch.setattr(harness, "words", lambda *options: [sys.executable, "-I", str(packed), *map(str, options)])
    gang = gang_of(tmp_path, MPIRUN, "echo $GPUFLOW_RANK #", size=2)
    assert gang.all_end_with(0)
    assert sorted(gang.printed(0)) == ["\n", "\n", "0", "1"] and gang.printed(1) == "1\n"


def test_a_rank_is_a_host_by_its_number_too_and_an_unknown_host_is_named(tmp_path: Path) -> None:
    ask = '"$HYDRA_LAUNCHER_EXEC"'
    program = f"{ask} -x rank-1 'exit 7'; echo $?; {ask} rank-0 'echo $GPUFLOW_RANK'; {ask} elsewhere true; echo $?"
    gang = gang_of(tmp_path, program, "true", size=2)
    assert gang.all_end_with(0)
    assert gang.printed(0) == "7\n0\n255\n"
    assert "elsewhere is no host of this gang; those are 127.0.0.1, rank-1" in gang.said(0)


def test_what_a_command_leaves_in_the_background_ends_with_the_gang(tmp_path: Path) -> None:
    daemon = '(trap "" HUP; sleep 300) >/dev/null 2>&1 &'
    gang = gang_of(tmp_path, MPIRUN, f"{daemon} true", size=2)
    assert gang.all_end_with(0)
    assert "ended what the command left behind: s" in gang.said(1)
    assert not orphans_of(tmp_path)


def test_much_output_is_in_the_log_and_the_beginning_of_it_goes_back(tmp_path: Path) -> None:
    daemon = f"{sys.executable} -c '[print(999 * str(0)) for _ in range(3000)]'"
    gang = gang_of(tmp_path, MPIRUN, daemon, size=2, slots=0)
    assert len(gang.printed(1)) == 3_000_000
    assert 256 << 10 <= len(gang.printed(0)) < 300_000
    assert "what follows is in this rank's log alone" in gang.said(0)
    assert gang.all_end_with(0)


def test_an_agent_whose_output_nobody_reads_yet_brings_all_of_it_later(tmp_path: Path) -> None:
    program = "\"$HYDRA_LAUNCHER_EXEC\" rank-1 'head -c 250000 /dev/zero' | (sleep 3; wc -c)"
    gang = gang_of(tmp_path, program, "true", size=2)
    gang.printed(0)
    assert gang.all_end_with(0)
    assert gang.printed(0) == "250000\n"


# -- how it ends


def test_the_program_says_how_it_ended_and_not_the_commands_that_it_started(tmp_path: Path) -> None:
    gang = gang_of(tmp_path, f"{MPIRUN}; exit 0", "exit 9", size=2)
    assert gang.all_end_with(0), "a program may try again, or not mind"


def test_a_failure_on_one_rank_is_the_gangs_and_no_node_is_blamed_for_it(tmp_path: Path) -> None:
    gang = gang_of(tmp_path, MPIRUN, 'if [ "$GPUFLOW_RANK" = 2 ]; then exit 5; fi; sleep 600 #')
    assert gang.all_end_with(5), "what the other rank ran was not waited for"
    facts = json.loads(gang.last_words(0).splitlines()[-1])
    assert facts["outcome"] == "failed (retryable)" and facts["cause_rank"] == -1
    assert not orphans_of(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_rank_that_is_taken_away_is_an_interruption_though_mpirun_fails_of_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    gang = gang_of(tmp_path, MPIRUN, "touch $OWN/up; exec sleep 300 #")
    gang.are_up()
    gang.send(2, number)
    codes = gang.codes()
    assert codes[0] == codes[1] == 75, gang.said()
    assert codes[2] == (75 if number == signal.SIGTERM else -number)
    assert '"outcome": "interrupted"' in gang.last_words(0)
    if number == signal.SIGTERM:
        assert not orphans_of(tmp_path)


def test_a_stop_of_rank_0_reaches_what_mpirun_started_elsewhere(tmp_path: Path) -> None:
    gang = gang_of(
        tmp_path, MPIRUN, "touch $OWN/up; trap 'touch $OWN/told; exit 0' TERM; while :; do sleep 0.1; done #"
    )
    gang.are_up()
    gang.send(0, signal.SIGTERM)
    assert gang.all_end_with(75)
    assert all((tmp_path / str(rank) / "told").exists() for rank in range(3))


SAVES = """
import os, signal, sys, time
from gpuflow.runtime.base import attempt_folder
own = os.environ["OWN"]
def save(number, frame):
    time.sleep(2.5)
    open(own + "/saved", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
attempt_folder.of_program(os.environ, "").listen()
open(own + "/up", "w").close()
time.sleep(300)
"""


@pytest.mark.parametrize("told", [0, 1])
def test_processes_that_save_have_their_grace_before_mpirun_is_told_to_kill_them(tmp_path: Path, told: int) -> None:
    (tmp_path / "saves.py").write_text(SAVES)
    # A shell above them, as there is above orted: it is not told, or mpirun would take its end for the daemon's.
    daemon = f"{sys.executable} {tmp_path / 'saves.py'}; exit $?; #"
    gang = gang_of(tmp_path, MPIRUN, daemon, "--grace", "10m", slots=0)
    eventually(lambda: all((tmp_path / str(rank) / "up").exists() for rank in (1, 2)))
    time.sleep(2)  # the ranks say it with their next sign of life
    gang.send(told, signal.SIGTERM)
    assert gang.all_end_with(75), "and nobody waited for the end of the grace"
    assert all((tmp_path / str(rank) / "saved").exists() for rank in (1, 2)), gang.said()


def test_a_command_ends_when_mpirun_ends_its_agent(tmp_path: Path) -> None:
    program = """
        "$HYDRA_LAUNCHER_EXEC" rank-1 'touch $OWN/up; exec sleep 300' &
        until [ -e $HERE/1/up ]; do sleep 0.1; done
        kill $!
        until [ -e $HERE/1/gone ]; do sleep 0.1; done
    """
    gang = gang_of(tmp_path, program, "true", size=2)
    eventually(lambda: (tmp_path / "1" / "up").exists())
    eventually(lambda: not any(_command(pid).startswith("sleep 300") for pid in orphans_of(tmp_path)))
    (tmp_path / "1" / "gone").touch()
    assert gang.all_end_with(0)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_memory_that_a_process_lacked_on_a_rank_is_what_the_rank_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "oom_kills", lambda: 4)
    running: Any = object.__new__(rank_attempt.OrderedRun)
    running.folder, running.options = None, None
    outcomes = {}
    for code in (0, 1):
        running.relay = SimpleNamespace(leaders_code=code)
        outcomes[code] = running._judge(SimpleNamespace(code=0), 3, told=False).outcome
    assert outcomes == {0: SUCCEEDED, 1: OUT_OF_MEMORY}


# -- who may give orders


class Leader:
    """A rank 0 that says what a test wants it to, to a real member."""

    def __init__(self, tmp_path: Path, *options: object) -> None:
        port = free_port()
        gang = Gang(tmp_path, 2)
        environ = gang.environ(1)
        with socket.create_server(("127.0.0.1", port)) as listener:
            words_ = ("--gang", 2, "--gang-port", port, "--mpi", 1, "--grace", "5s", *options, *shell("exit 3"))
            self.member = start(*words_, environ=environ)
            listener.settimeout(120)
            self._connection = listener.accept()[0]
        self._connection.settimeout(120)
        self._stream = self._connection.makefile("rb")
        self.say("welcome", gpuflow=protocol.VERSION, nonce="0" * 32)
        self.hello = self.hear("hello")
        self.say("beat")
        self.say("begin", attempt=1, id="a", interruptions=0)
        self.hear("ready")
        self.say("go")

    def say(self, what: str, **facts: Any) -> None:
        self.send(protocol.pack(what, **facts))

    def send(self, *messages: bytes) -> None:
        """All at once: the member hears the second before it can act on the first."""
        self._connection.sendall(b"".join(messages))

    def hear(self, what: str) -> dict[str, Any]:
        until, heard = time.monotonic() + 120, []
        while time.monotonic() < until and (line := self._stream.readline()):
            message = protocol.unpack(line)
            if message["say"] == what:
                return message
            if message["say"] == "beat":
                self.say("beat")
            else:
                heard.append(message["say"])
        raise AssertionError(f"the member did not say {what}, but {heard}")


def test_a_rank_takes_orders_until_the_program_is_over_and_each_once(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.say("run", order=1, command="echo $GPUFLOW_RANK >>$OWN/ran; exit 4")
    assert leader.hear("returned") == {"say": "returned", "order": 1, "code": 4}
    leader.say("run", order=1, command="echo again >>$OWN/ran")
    assert leader.hear("returned")["code"] == 255
    leader.send(protocol.pack("over", code=0), protocol.pack("run", order=2, command="echo late >>$OWN/ran"))
    assert leader.hear("returned")["code"] == 255
    assert leader.hear("ended")["outcome"] == SUCCEEDED
    leader.say("verdict", code=0, outcome=SUCCEEDED, because="all is well")
    said = leader.member.communicate(timeout=120)[1]
    assert leader.member.returncode == 0 and (tmp_path / "1" / "ran").read_text() == "1\n"
    assert "came twice" in said and "the attempt is over on this rank" in said


def test_with_a_key_an_order_must_be_signed_for_this_rank_and_this_command(tmp_path: Path) -> None:
    key = b"0123456789abcdef0123456789abcdef"
    (tmp_path / "key").write_bytes(key + b"\n")
    (tmp_path / "key").chmod(0o400)
    leader = Leader(tmp_path, "--key-file", tmp_path / "key")
    keys, nonce = Keys([key]), leader.hello["nonce"]
    wanted = "touch $OWN/ran"
    signed = {"rank": ("gang-1", 2, 1, wanted), "command": ("gang-1", 1, 1, "true"), "gang": ("gang-2", 1, 1, wanted)}
    others = [None, keys.sign("0" * 32, protocol.order_sign("gang-1", 1, 1, wanted))]
    others += [keys.sign(nonce, protocol.order_sign(*each)) for each in signed.values()]
    for proof in others:
        leader.say("run", order=1, command=wanted, proof=proof)
        assert leader.hear("returned")["code"] == 255
    assert not (tmp_path / "1" / "ran").exists()
    leader.say("run", order=1, command=wanted, proof=keys.sign(nonce, protocol.order_sign("gang-1", 1, 1, wanted)))
    assert leader.hear("returned")["code"] == 0 and (tmp_path / "1" / "ran").exists()
    leader.say("stop", because="enough")
    leader.say("verdict", code=75, outcome="interrupted", because="enough")
    assert leader.member.wait(120) == 75


def test_a_whole_gang_with_a_key_signs_its_orders(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "key").chmod(0o400)
    gang = gang_of(tmp_path, MPIRUN, "true", "--key-file", tmp_path / "key")
    assert gang.all_end_with(0)
