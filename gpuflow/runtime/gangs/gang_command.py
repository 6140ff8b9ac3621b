"""`gpuflow-run gang`: run a gang as one JobSet for each attempt, from inside a step, and end as the gang ends.

    gpuflow-run gang --manifest JSON --pipeline demo --step pretrain --run-id ID --failures 1 --interruptions 10

The manifest is a JobSet without name, owner and counts; each attempt gets one, called `<step>-<hash>-<attempt>`. Its
own restarts must be off (`maxRestarts: 0`, `backoffLimit: 0`): who counts is the launcher. An attempt that lost a rank
to a preemption, an eviction or a lost node is an interruption, whatever the other ranks died of. A JobSet that Kueue
suspends has not ended, and is waited for.

The counts are annotations of the JobSets, so that a launcher which is lost is followed by one that finds the gang and
goes on with it, for as long as the JobSets are there (`ttlSecondsAfterFinished`). No store is needed. So is what makes
a later attempt different from the first (`later_attempts`).

Told to stop, it deletes the JobSet; but when its own pod is only taken away (DisruptionTarget) the gang goes on. With
`--owner pod` nothing outlives the launcher: the JobSet is deleted whoever stops us, Kubernetes deletes it with our pod,
and rank 0 holds a connection to us (`$GPUFLOW_LAUNCHER`), without which it stops the gang after a minute. The log of
rank 0 is repeated on standard output, beside one line for every change: queued and why, half started and why,
running, ended and why. Outputs come from the termination message of rank 0.

The account of the pod needs: jobsets (create, get, list, patch, delete), jobs (list), pods (get, list); for more words
pods/log (get), events (list), workloads of Kueue (list). Without `patch` a verdict is not written down.

Exit codes: 0 when it succeeded; 79 when it failed for good, be it that a budget is spent; 75 when we were told to stop;
78 when we could not work.
"""

from __future__ import annotations

import sys

from gpuflow.runtime.artifacts import outputs
from gpuflow.runtime.base import options, signals, termination_message
from gpuflow.runtime.base.options import BadOption, Option
from gpuflow.runtime.gangs import later_attempts
from gpuflow.runtime.supervise import kube_client
from gpuflow.runtime.supervise.kube_client import ApiRefusal, ApiServer, Misuse, NoAccount, StopRequested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SAME = ("pipeline", "step", "run-id", "task", "item", "final-exit-codes", "retryable-exit-codes", "output", "deliver")
_AS_EVER = ("engine", "outputs-dir", "termination-log")
TABLE = (
    Option("manifest", "text", "JSON|FILE", None, "the JobSet, without name, owner and counts"),
    Option("set", "list", "PLACE=VALUE", (), "put a value into it, as text; may be repeated"),
    *(option for option in options.TABLE if option.name in _SAME),
    Option("failures", "natural", "N", 0, "how often a failed attempt may be followed by another"),
    Option("interruptions", "natural", "N", 0, "how often an interrupted attempt may be followed by another"),
    Option("retries", "natural", "N", None, "one budget instead of the two"),
    Option("backoff", "span", "30s", 0.0, "how long to wait before the next attempt"),
    Option("backoff-factor", "count", "N", 2, "each wait after a failure is so many times the one before"),
    Option("backoff-max", "span", "10m", None, "no wait is longer"),
    Option("queue-timeout", "span", "1h", None, "how long it may wait until all its pods run; then it is deleted"),
    Option("grace", "span", "40s", 30.0, "when told to stop: how long to wait until the gang is gone"),
    *later_attempts.OPTIONS,
    Option("settle", "span", "20s", 20.0, "how long after a failed rank to look for one that was taken away"),
    Option("owner", "choice:controller,pod,none", "controller|pod|none", "none", "who owns the JobSet"),
    Option("container", "text", "NAME", "main", "the container of each pod that counts"),
    *(option for option in options.TABLE if option.name in _AS_EVER),
)


def parse(words: Sequence[str], environ: Mapping[str, str]) -> options.Options:
    """The options, and what no single one can see."""
    given = options.parse(words, environ, TABLE)
    if given.command:
        raise BadOption("the command stands in the manifest; gang takes none")
    for name in ("manifest", "run-id"):
        if not getattr(given, name.replace("-", "_")):
            raise BadOption(f"--{name} is missing")
    if given.retries is not None:
        if given.failures or given.interruptions:
            raise BadOption("--retries is one budget for everything; give it, or --failures and --interruptions")
        given.__dict__.update(failures=None, interruptions=None)
    both = set(given.final_exit_codes) & set(given.retryable_exit_codes or ())
    if both:
        raise BadOption(f"exit code {min(both)} is both final and retryable; keep it in one list")
    later_attempts.changes_of(given)
    outputs.check_outputs(outputs.parse(given.output), {}, outputs.pairs(given.deliver, "deliver"))
    if given.output and not given.outputs_dir and not given.deliver:
        raise BadOption("--output needs --outputs-dir, the folder in which the engine looks")
    return given


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the gang; the exit code."""
    log = options.DEFAULT_TERMINATION_LOG
    try:
        if not words or words[0] in ("--help", "-h"):
            print("usage: gpuflow-run gang --manifest JSON --run-id ID [options]\n")
            print("\n".join(options.table_lines(TABLE)))
            return 0 if words else 2
        given = parse(words, environ)
        log = given.termination_log
        from gpuflow.runtime.gangs.launcher import Launcher

        text, changes = given.manifest, given.set
        body = (
            kube_client.manifest_from_text(text, "--manifest", changes)
            if text.lstrip().startswith("{")
            else kube_client.manifest_from_file(text, changes)
        )
        launcher = Launcher(given, body, ApiServer(environ), environ)
        try:
            kube_client.stop_on_signal()
            return launcher.run()
        except StopRequested:
            return launcher.handle_stop()
    except (Misuse, NoAccount, ApiRefusal, BadOption) as refusal:
        sys.stdout.flush()
        return termination_message.refuse(str(refusal), log)
    finally:
        signals.release()
