"""`gpuflow-run [options] -- command …`: the supervisor's command line.

`base.options.TABLE` has the options, and `--help` prints them. Each also by a variable `GPUFLOW_RUN_<OPTION>`
(`GPUFLOW_RUN_CHECKPOINT_DIR`); the command line wins. Options that may be repeated are separated by newlines in their
variable. Without `--store` checkpoints are kept in the directory. `--engine airflow` also writes the outputs to
`/airflow/xcom/return.json`, as one JSON object.

`gpuflow-run probe [--ready] [--max-age 10m] …` is a probe, `gpuflow-run digest PATH` prints what `digest:` of an
input says, `gpuflow-run forget …` throws the run's state away,
`gpuflow-run create …` creates an object of the cluster and waits for it, `gpuflow-run gang …` runs a gang as one JobSet
for each attempt (`--help` lists its options).

`--timeout` counts from the start of the command, without the pull of the image, init containers and the restore; it is
told as `$GPUFLOW_DEADLINE`. `--last` and `--engine-attempt` never stop an attempt: what cannot be read is said and
left out. `gpuflow.runtime.supervise.diagnosis` has the fields.

An `--input` whose URI is that of an output (`…/000007-1a2b3c4d/files`) is an artifact: it is there when its manifest
is, and every byte is checked. Any other URI is data from outside: what a listing shows is fetched. A JSON list of URIs
becomes PATH/0, PATH/1, …; a null leaves its number free. What cannot be had is 78 and costs nothing.

`--repeat` is for engines that start no failed pod again. Each start is an attempt with a number, a timeout and outputs
of its own, and resumes from the newest checkpoint. Without a store the failures of this container are counted, with one
those of all. An interruption ends the container as ever.

With `--gang` every rank exits with the gang's code: 75 when one was told to stop or lost, else what rank 0 decides, 0
only when all commands ended with 0. Rank 0 alone counts, keeps checkpoints and collects outputs; the others restore the
checkpoint that it restores. Peers with another `$GPUFLOW_GANG` or `$GPUFLOW_GANG_SECRET` are turned away. See
`gpuflow.runtime.gangs.ranks.rank_attempt`.

With `--mpi` mpirun calls `gpuflow-run mpi-agent …` in the place of ssh, and the other ranks run `gpuflow-run mpi-worker
…`, which starts what it asks for. See `gpuflow.runtime.gangs.ranks.mpi`.

Many files go to and from S3 by several processes where there are four processors or more;
`$GPUFLOW_TRANSFER_PROCESSES` sets how many, and 0 turns them off.

Exit codes: the command's own; 75 interrupted; 79 final; 78 the runtime could not work. A command that ends with one of
these three is reported as 1. 124 after `--timeout`. 0 only with a success marker written.
"""

from __future__ import annotations

import importlib
import os
import sys

from gpuflow.runtime.base import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_MISUSE = 2
_COMMANDS = {
    "probe": "supervise.probe:main",
    "digest": "artifacts.artifact_files:digest_main",
    "transfer-worker": "stores.transfer_process:main",
    "mpi-agent": "gangs.ranks.mpi_programs:agent_main",
    "mpi-worker": "gangs.ranks.mpi_programs:worker_main",
    "create": "supervise.create:main",
    "gang": "gangs.gang_command:main",
}
"""The commands beside a run of a command, and what runs each: a module is loaded when its command is asked for."""
_SMALL = ("--help", "-h", "help", "--version", "probe", "forget", "digest", "mpi-agent", "mpi-worker")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one attempt of a command, or one of the small commands beside it."""
    # Before anything else is loaded: a SIGTERM that comes meanwhile waits, and process 1 would not even notice it.
    signals.hold()
    _open_standard_files()
    from gpuflow.runtime.base import options as table

    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in _SMALL:
        signals.release()
    if not words or words[0] in ("--help", "-h", "help"):
        print(table.usage())
        return 0 if words else EXIT_MISUSE
    if words[0] == "--version":
        from gpuflow.runtime import CONTRACT

        print(f"gpuflow-run, contract {CONTRACT}")
        return 0
    if words[0] in _COMMANDS:
        module, _, function = _COMMANDS[words[0]].partition(":")
        run = getattr(importlib.import_module(f"gpuflow.runtime.{module}"), function)
        return int(run(words[1:], os.environ))
    from gpuflow.runtime.stores import storage_timeout

    try:
        if words[0] == "forget":
            from gpuflow.runtime.state import forget

            return storage_timeout.leave(forget.forget(table.parse(words[1:], os.environ)))
        options = table.parse(words, os.environ)
        table.check(options)
    except table.BadOption as refusal:
        from gpuflow.runtime.base import termination_message

        return storage_timeout.leave(termination_message.refuse(f"{refusal}", table.DEFAULT_TERMINATION_LOG))
    if options.gang is not None:
        from gpuflow.runtime.gangs.ranks import rank_attempt

        return storage_timeout.leave(rank_attempt.run_rank(options, os.environ))
    from gpuflow.runtime.supervise import supervisor

    return storage_timeout.leave(supervisor.run(options, os.environ))


def _open_standard_files() -> None:
    """Where one of the three was closed, the next file we open would get its number, and the command's output."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    sys.exit(main())
