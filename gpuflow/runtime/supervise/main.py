"""`gpuflow-run [options] -- command …`: the supervisor's command line.

Each option also by a variable `GPUFLOW_RUN_<OPTION>` (`GPUFLOW_RUN_CHECKPOINT_DIR`); the command line wins. Options
that may be repeated are separated by newlines in their variable.

| option | value | default | meaning |
|---|---|---|---|
| `--pipeline` `--step` `--run-id` `--item` | text | default, default, –, – | attempts that share it resume each other |
| `--task` | text | – | the engine's own name of the task, part of the identity; its numbers of attempts are left out |
| `--checkpoint-dir` | directory | – | where the program saves and resumes; `$GPUFLOW_CHECKPOINT_DIR` |
| `--own-folder` | – | no | work in a folder of that directory that is this identity's own |
| `--store` | directory, `s3://` `gs://` `az://` | – | where checkpoints are kept; else in the directory |
| `--state` | directory or URL | the store | where budgets and the success marker are kept |
| `--key-file` | file | – | keys, one per line: the first signs what is kept, what none has signed is not believed |
| `--follow` | directory, repeated | – | links in a checkpoint to files below it are kept as those files |
| `--every` | duration, `auto` | auto | how often a checkpoint is kept |
| `--keep` | number | 2 | how many are kept |
| `--grace` | duration | 30s | from SIGTERM to SIGKILL, the upload included |
| `--resume-env` | name | – | one more variable like `$GPUFLOW_RESUME_FROM` |
| `--marker` | file name | .gpuflow-complete | makes the directory that holds it a finished checkpoint |
| `--mtbf` | duration | 4h | mean time between interruptions, the first guess of `auto` |
| `--bandwidth` | bytes a second | – | most an upload may use: 200M |
| `--failures` `--interruptions` | number | not counted | the two retry budgets |
| `--retries` | number | not counted | one budget instead of the two: starts after the first, whatever ended it |
| `--repeat` | – | no | after a failure that the budget allows, start the command again in this container |
| `--backoff` `--backoff-factor` `--backoff-max` | duration, number, duration | 0s, 2, – | how long `--repeat` waits |
| `--final-exit-codes` `--retryable-exit-codes` | 2,3 | – | which exit codes end the step for good |
| `--after-success` | skip, again | skip | a start after the success marker: end at once, or train again from nothing |
| `--after-final` | stop, renew | stop | a start after 79: end at once with 79, or with fresh budgets |
| `--output` | NAME[:TYPE][=PATH], repeated | – | an output; PATH when not `$GPUFLOW_OUTPUTS/NAME` |
| `--artifact` | NAME=URI, repeated | – | where a file or directory output is kept |
| `--artifacts` | directory or URL | – | where files and directories without such a URI are kept, by identity |
| `--input` | PATH=URI or PATH=[URI, …], repeated | – | what lies at PATH before the command starts |
| `--input-type` | PATH=file or PATH=directory, repeated | directory | what data from outside is |
| `--input-digest` | PATH=sha256:HEX, repeated | – | what an input must add up to |
| `--deliver` | NAME=PATH, repeated | – | one more place for an output's value (KFP's own path per output) |
| `--output-kind` | NAME=KIND, repeated | – | what an output is to Kubeflow: dataset, model, metrics, html … |
| `--hand-over` | NAME, repeated | – | an output whose files Kubeflow keeps too, for its own components |
| `--kubeflow` | JSON | – | what KFP's launcher says of the task (`{{$}}`); it is told of artifacts then |
| `--engine` | argo, airflow, kubeflow, none | none | airflow: also `/airflow/xcom/return.json`, one JSON object |
| `--outputs-dir` | directory | a temporary one | `$GPUFLOW_OUTPUTS`; Argo and KFP look there for NAME |
| `--timeout` | duration | – | how long the command may run; then it is told to stop, and has failed: *timed out* |
| `--gang` | number | – | ranks that work together; rank 0 is `$GPUFLOW_LEADER`, the own one `$GPUFLOW_RANK` |
| `--gang-port` `--gang-timeout` | port, duration | 29501, 10m | where rank 0 listens; how long all wait for all |
| `--sharded` | – | no | every rank of the gang writes a part of each checkpoint, and all parts are kept as one |
| `--rank-offset` | number | 0 | added to `$GPUFLOW_RANK`: 1 for workers beside a leader |
| `--mpi` | number | – | rank 0 runs the command, `mpirun …`; the others run what it starts there: at most so many |
| `--engine-attempt` | number | – | the engine's own number of this attempt |
| `--last` | JSON | – | what the engine knows of the attempt before: its number, and how its pod ended |
| `--storage-timeout` | duration | 60s | how long storage may fail at the start and at the end |
| `--termination-log` | file | /dev/termination-log | the last words, when the file is there |

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

import os
import sys

from gpuflow.runtime.base import signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_MISUSE = 2
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
    if words[0] == "probe":
        from gpuflow.runtime.supervise import probe

        return probe.main(words[1:], os.environ)
    if words[0] == "digest":
        from gpuflow.runtime.artifacts import artifact_files

        return artifact_files.digest_main(words[1:])
    if words[0] == "transfer-worker":
        from gpuflow.runtime.stores import transfer_process

        return transfer_process.main()
    if words[0] == "mpi-agent":
        from gpuflow.runtime.gangs.ranks import mpi_agent

        return mpi_agent.main(words[1:])
    if words[0] == "mpi-worker":
        from gpuflow.runtime.gangs.ranks import mpi_worker

        return mpi_worker.main(words[1:])
    if words[0] == "create":
        from gpuflow.runtime.supervise import create

        return create.main(words[1:], os.environ)
    if words[0] == "gang":
        from gpuflow.runtime.gangs import gang_command

        return gang_command.main(words[1:], os.environ)
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
