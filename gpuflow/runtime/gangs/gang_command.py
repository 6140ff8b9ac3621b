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
import time

from gpuflow.runtime.artifacts import outputs
from gpuflow.runtime.artifacts.outputs import BadOutput
from gpuflow.runtime.base import options, signals, termination_message, units
from gpuflow.runtime.base.options import BadOption, Option
from gpuflow.runtime.base.outcomes import (
    EXIT_INTERRUPTED,
    FINAL,
    INTERRUPTED,
    OUT_OF_MEMORY,
    RETRYABLE,
    SUCCEEDED,
    Ending,
    exit_code,
)
from gpuflow.runtime.gangs import attempt_object, attempt_verdict, later_attempts, launcher_liveness
from gpuflow.runtime.gangs.attempt_object import Gang
from gpuflow.runtime.gangs.attempt_verdict import Verdict
from gpuflow.runtime.gangs.later_attempts import EarlierAttempts, changes_of
from gpuflow.runtime.gangs.launcher_liveness import LivenessServer
from gpuflow.runtime.gangs.ranks.protocol import new_secret
from gpuflow.runtime.gangs.watch import AttemptFollower, PodDrain, Watch, deliver_outputs, phase, run_questions
from gpuflow.runtime.state import attempts
from gpuflow.runtime.state.attempts import COSTS, Counts
from gpuflow.runtime.supervise import kube_client
from gpuflow.runtime.supervise.kube_client import (
    ApiRefusal,
    ApiServer,
    ApiUnreachable,
    Misuse,
    NoAccount,
    PodLogs,
    StopRequested,
    say,
)
from gpuflow.runtime.supervise.object_state import path_of, value_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.gangs.watch import Questions

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


def parse(words: Sequence[str], environ: Mapping[str, str]) -> Options:
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


LOOK = 2.0
"""Seconds between two looks at a gang."""
NOT_THERE = "it is not there"
_LONGEST = float(2**31)


class Launcher:
    """One gang from its first attempt to its last."""

    def __init__(self, options: Options, manifest: dict[str, Any], api: ApiServer, environ: Mapping[str, str]) -> None:
        self.options, self.api = options, api
        self.namespace = manifest["metadata"].setdefault("namespace", api.namespace)
        self._own_pod = environ.get("GPUFLOW_POD_NAME") or environ.get("HOSTNAME")
        self._own_uid: str | None = None
        self._own_ip: str | None = None
        self._own: dict[str, Any] | None = self._owner()
        self.gang = Gang(manifest, options, self._own)
        self.gang.changes = changes_of(options)
        if options.more_memory and not self.gang.has_memory():
            say(f"--more-memory: the container {options.container} names no memory; every attempt has the same")
        if options.owner == "pod" and self._own_ip:
            # Held for as long as this process lives.
            self._held = LivenessServer(self.gang.digest)
            self.gang.environment[launcher_liveness.VARIABLE] = self._held.address(self._own_ip)
        elif options.owner == "pod":
            say("the address of this pod is not known: should it be killed and not deleted, its gang works on")
        self.what = self.gang.kind.name
        self.folder = kube_client.collection_path(api, manifest)
        self.alive: str | None = None
        """The path of the JobSet that works, or may."""
        self._may_note = True

    def run(self) -> int:
        """Until one attempt succeeded, or no further one is allowed."""
        self._ask_what_is_needed()
        if (jobset := self.find_newest()) is None:
            jobset = self.create(1, Counts(), EarlierAttempts())
        else:
            say(f"{self.what} {jobset['metadata']['name']}: created before; going on with it")
            self._adopt(jobset)
        while True:
            attempt = attempt_object.number(jobset, attempt_object.ATTEMPT)
            before = Counts(
                attempt_object.number(jobset, attempt_object.FAILURES),
                attempt_object.number(jobset, attempt_object.INTERRUPTIONS),
            )
            verdict = attempt_object.read_verdict(jobset) or self.follow(jobset)
            counts = before.with_outcome(verdict.outcome)
            spent = None if verdict.outcome == SUCCEEDED else attempts.spent_budget(self.options, counts, before)
            final = verdict.outcome == FINAL or spent is not None
            if final or verdict.outcome == SUCCEEDED:
                return self.close(attempt, verdict, counts, spent)
            say(f"attempt {attempt} {verdict.outcome}: {verdict.because}")
            earlier = self._earlier_with(attempt_object.read_earlier_attempts(jobset), verdict, counts)
            self._back_off(verdict.outcome, counts)
            jobset = self.create(attempt + 1, counts, earlier)

    def _earlier_with(self, before: EarlierAttempts, verdict: Verdict, counts: Counts) -> EarlierAttempts:
        """What the next attempt must know of all before it."""
        nodes = set(before.failed_nodes)
        if self.options.other_node and COSTS.get(verdict.outcome) == "failures":
            if verdict.node is None:
                say(
                    "--other-node: nobody knows which rank failed first; the next attempt keeps away from no more nodes"
                )
            else:
                nodes.add(verdict.node)
        grown = before.out_of_memory + (verdict.outcome == OUT_OF_MEMORY)
        return EarlierAttempts(grown, counts.interruptions, tuple(sorted(nodes)))

    def find_newest(self) -> dict[str, Any] | None:
        """The JobSet of the highest attempt; one that is being deleted is waited for, and has never been."""
        query = {"labelSelector": f"{attempt_object.GANG}={self.gang.digest}"}
        said = False
        while True:
            items = self.api.retry_while_unreachable(lambda: self.api.get(self.folder, **query))["items"]
            for each in items:
                if not self.gang.is_ours(each):
                    raise Misuse(f"{self.what} {each['metadata']['name']} has our label and is not of this run's")
            going = [each["metadata"]["name"] for each in items if each["metadata"].get("deletionTimestamp")]
            going = going or ([] if items else self._live_pods(told=True))
            if not going:
                return max(items, key=lambda each: attempt_object.number(each, attempt_object.ATTEMPT), default=None)
            if not said:
                say(f"{self.what} {', '.join(going)}: being deleted; waiting until it is gone")
                said = True
            time.sleep(LOOK)

    def _adopt(self, jobset: dict[str, Any]) -> None:
        """Make this pod the owner of a gang that an earlier launcher created."""
        self._give_prerequisite(jobset)
        owners = jobset["metadata"].get("ownerReferences") or ()
        if self.options.owner != "pod" or self._own is None or any(each["uid"] == self._own["uid"] for each in owners):
            return
        name = jobset["metadata"]["name"]
        try:
            change = {"metadata": {"ownerReferences": [self._own]}}
            self.api.retry_while_unreachable(lambda: self.api.merge(f"{self.folder}/{name}", change))
        except ApiRefusal as refusal:
            say(f"{self.what} {name}: it still goes with the launcher before this one: {refusal}")

    def create(self, attempt: int, counts: Counts, before: EarlierAttempts) -> dict[str, Any]:
        """The JobSet of an attempt, created now, or a moment ago by a launcher that was lost."""
        whole = self.gang.body(attempt, counts.failures, counts.interruptions, before, new_secret())
        first, body = self.gang.kind.split(whole)
        unlike = "".join(f"; {words}" for words in self.gang.differences(before))
        name = body["metadata"]["name"]
        self.alive = f"{self.folder}/{name}"
        while True:
            try:
                kind = self.gang.kind
                if kind.before is not None and first is not None and self.api.get_if_present(self.alive) is None:
                    attempt_object.prepare_prerequisite(
                        self.api, kind.before.folder(self.namespace), first, self.gang.is_ours
                    )
                made = self.api.retry_while_unreachable(lambda: self.api.create(self.folder, body))
                self._give_prerequisite(made)
                size = self.gang.shape.size
                say(f"{self.what} {name}: created in {self.namespace}, attempt {attempt}, {size} pods{unlike}")
                return made
            except ApiRefusal as refusal:
                if refusal.status != 409:
                    self.alive = None
                    raise
            there = self.api.get_if_present(f"{self.folder}/{name}")
            if there is not None and not self.gang.is_ours(there):
                self.alive = None
                raise Misuse(f"{self.what} {name} is there already, and this run did not create it")
            if there is not None and not there["metadata"].get("deletionTimestamp"):
                say(f"{self.what} {name}: created before; going on with it")
                self._adopt(there)
                return there
            time.sleep(LOOK)

    def _give_prerequisite(self, jobset: dict[str, Any]) -> None:
        """What had to be there before an attempt goes with it; what it needs of that and somebody took is made anew."""
        kind = self.gang.kind
        if kind.before is None:
            return
        notes = (attempt_object.ATTEMPT, attempt_object.FAILURES, attempt_object.INTERRUPTIONS)
        counts = [attempt_object.number(jobset, note) for note in notes]
        secret = str((jobset["metadata"].get("annotations") or {}).get(attempt_object.SECRET, ""))
        first, _ = kind.split(
            self.gang.body(counts[0], counts[1], counts[2], attempt_object.read_earlier_attempts(jobset), secret)
        )
        attempt_object.give_to_object(self.api, kind.before.folder(self.namespace), kind, jobset, first)

    def follow(self, jobset: dict[str, Any]) -> Verdict:
        """One attempt until it has ended, with its log and every change of its state."""
        name = jobset["metadata"]["name"]
        self.alive = path = f"{self.folder}/{name}"
        watch = Watch(self.gang.shape, path, self.namespace)
        kind = self.gang.kind
        selector = f"{kind.pods}={name},{kind.role}={self.gang.shape.first},{kind.rank}=0"
        logs = PodLogs(self.api, self.namespace, selector, named=False)
        verdict = self._follow_to_end(watch, logs, jobset)
        logs.finish(5.0)
        self.alive = None
        if verdict.outcome == SUCCEEDED:
            verdict = self._deliver(watch, verdict)
        if watch.jobset is not None:
            self._note(path, verdict)
            if verdict.outcome != SUCCEEDED:
                self._drain(watch)
        return verdict

    def _follow_to_end(self, watch: Watch, logs: PodLogs, jobset: dict[str, Any]) -> Verdict:
        options = self.options
        following = AttemptFollower(
            watch,
            lambda words: say(f"{self.what} {watch.name}: {words}"),
            settle=options.settle,
            queue_deadline=self._queue_deadline(jobset),
            container=options.container,
            final_exit_codes=options.final_exit_codes,
            retryable_exit_codes=options.retryable_exit_codes,
        )
        named = ""
        while True:
            verdict: Verdict | None = self._run_questions(following.look())
            names = watch.names()
            if names not in ("", named):
                named = names
                say(f"{self.what} {watch.name}: its pods are {names}")
            if verdict is not None:
                break
            logs.look()
            time.sleep(LOOK)
        if following.must_go:
            self._delete(watch.path)
            if not watch.kind.replaces_pods:
                watch.jobset = None
        if following.is_late:
            because = f"waited longer than {units.format_seconds(options.queue_timeout)}: {following.words}"
            return verdict._replace(because=because)
        return verdict

    def _run_questions(self, asking: Questions) -> Any:
        return run_questions(
            asking, lambda asked: self.api.retry_while_unreachable(lambda: self.api.get(asked.path, **asked.query))
        )

    def _queue_deadline(self, jobset: dict[str, Any]) -> float | None:
        """Counted from the creation of the JobSet, also by an earlier launcher."""
        if self.options.queue_timeout is None:
            return None
        return attempt_verdict.seconds(str(value_at(jobset, "metadata.creationTimestamp"))) + float(
            self.options.queue_timeout
        )

    def _drain(self, watch: Watch) -> None:
        seconds = self.gang.shape.grace + self.options.settle
        draining = PodDrain(watch, lambda words: say(f"{self.what} {watch.name}: {words}"), seconds)
        while not draining.is_over():
            time.sleep(LOOK)
            self._run_questions(watch.look())

    def _deliver(self, watch: Watch, verdict: Verdict) -> Verdict:
        try:
            missing = deliver_outputs(self.options, watch.rank_0())
        except BadOutput as refusal:
            return Verdict(RETRYABLE, str(refusal), 1)
        except OSError as failure:
            raise Misuse(f"the outputs cannot be written: {failure}") from None
        return verdict if missing is None else Verdict(INTERRUPTED, f"the {self.what} is completed, but {missing}")

    def _note(self, path: str, verdict: Verdict) -> None:
        """Record the verdict on the object, since its evidence may not outlive this launcher."""
        if verdict.outcome == SUCCEEDED or not self._may_note:
            return
        try:
            self.api.retry_while_unreachable(lambda: self.api.merge(path, attempt_object.note_verdict(verdict)))
        except ApiRefusal as refusal:
            self._may_note = refusal.status == 404
            if self._may_note:
                return
            say(f"{refusal}; the verdict is not written down, and a launcher that is started anew judges again")

    def _back_off(self, outcome: str, counts: Counts) -> None:
        options = self.options
        wait = float(options.backoff)
        if COSTS.get(outcome) == "failures":
            wait *= float(options.backoff_factor) ** min(counts.failures - 1, 64)
        wait = min(wait, _LONGEST if options.backoff_max is None else options.backoff_max)
        if wait:
            say(f"the next attempt begins in {units.format_seconds(wait)}")
            time.sleep(wait)

    def close(self, attempt: int, verdict: Verdict, counts: Counts, spent: str | None) -> int:
        """Say how it ended, where people and engines look, and give the exit code."""
        final = verdict.outcome == FINAL or spent is not None
        because = verdict.because + (f"; {spent}" if spent is not None else "")
        code = exit_code(Ending(verdict.outcome, because, verdict.code), final)
        outcome = FINAL if final else verdict.outcome
        facts: dict[str, Any] = {} if verdict.code in (None, code) else {"own_exit_code": verdict.code}
        facts.update(attempt=attempt, failures=counts.failures, interruptions=counts.interruptions)
        sentence = f"attempt {attempt} {outcome}: {because} (exit code {code})"
        say(sentence)
        log = self.options.termination_log
        return termination_message.write(log, sentence, outcome, code, because=because, **facts)

    def handle_stop(self) -> int:
        """Told to stop. A launcher that is moved to another node leaves the gang alone; else the gang is deleted."""
        sentence = self._stop_gang()
        say(f"{sentence} (exit code {EXIT_INTERRUPTED})")
        log = self.options.termination_log
        return termination_message.write(log, sentence, INTERRUPTED, EXIT_INTERRUPTED, because=sentence)

    def _stop_gang(self) -> str:
        """Delete the gang unless it goes on; what became of it, in words."""
        if self.alive is None:
            return "told to stop; nothing runs"
        # First of all with `--owner pod`: an engine may not leave us the time to ask anything.
        if self.options.owner != "pod":
            name = self.alive.rsplit("/", 1)[1]
            pod, why = self._ask_once(self._look_at_own_pod)
            if self._is_taken_away(pod, why):
                return f"this pod is taken away; {self.what} {name} goes on, and the next launcher finds it"
            if not pod:
                say(f"whether this pod is only taken away is not known ({why}); {self.what} {name} is deleted")
        return f"told to stop; {self._delete(self.alive, wait=True)}"

    def _is_taken_away(self, pod: dict[str, Any] | None, why: str) -> bool:
        """Whether only this pod is to go: its node is drained, or, where a run owns the gang, somebody deletes the pod.

        An engine that stops a run signals the container and leaves the pod. One that starts the pod again gives it the
        same name.
        """
        if pod and value_at(pod, "status.conditions[type=DisruptionTarget].status") == "True":
            return True
        if self.options.owner != "controller" or self._own_uid is None:
            return False
        if pod is None:
            return why == NOT_THERE
        metadata = pod.get("metadata") or {}
        return bool(metadata) and ("deletionTimestamp" in metadata or metadata.get("uid") != self._own_uid)

    def _delete(self, path: str, *, wait: bool = False) -> str:
        """Delete a JobSet, its pods first; with `wait`, until they are gone or the grace is over."""
        name, until = path.rsplit("/", 1)[1], time.monotonic() + self.options.grace
        while True:
            try:
                self.api.delete(path, self.gang.kind.deletion)
                break
            except (ApiRefusal, ApiUnreachable) as failure:
                if isinstance(failure, ApiRefusal) or time.monotonic() >= until:
                    say(f"{self.what} {name}: NOT deleted: {failure}")
                    return f"{self.what} {name} is NOT deleted: {failure}"
                time.sleep(1.0)
        say(f"{self.what} {name}: deleted; its pods have their grace to stop")
        while wait and time.monotonic() < until:
            there, _ = self._ask_once(lambda: self.api.get(path))
            if there is None and not self._live_pods():
                return f"{self.what} {name} is deleted"
            time.sleep(0.5)
        return f"{self.what} {name} is being deleted"

    def _live_pods(self, *, told: bool = False) -> list[str]:
        """Pods that have not ended yet, or are being deleted, of a gang whose object goes before them."""
        if self.gang.kind.deletion == "Foreground":
            return []
        query = {"labelSelector": f"{attempt_object.GANG}={self.gang.digest}"}
        ask = lambda: self.api.get(path_of("v1", self.namespace, "pods"), **query)  # noqa: E731
        # Who is about to make a gang must know; who has just deleted one looks again.
        answer = self.api.retry_while_unreachable(ask) if told else self._ask_once(ask)[0]
        alive = [each for each in (answer or {}).get("items", ()) if phase(each) in ("Pending", "Running")]
        return [each["metadata"]["name"] for each in alive if not told or each["metadata"].get("deletionTimestamp")]

    def _ask_once(self, ask: Any) -> tuple[dict[str, Any] | None, str]:
        for _ in range(3):
            try:
                return ask(), NOT_THERE
            except ApiRefusal as refusal:
                return None, NOT_THERE if refusal.status == 404 else str(refusal)
            except ApiUnreachable as failure:
                why = str(failure)
                time.sleep(1.0)
        return {}, why

    def _look_at_own_pod(self) -> dict[str, Any] | None:
        if not self._own_pod:
            return None
        return self.api.get(path_of("v1", self.api.namespace, "pods", self._own_pod))

    def _owner(self) -> dict[str, Any] | None:
        if self.options.owner == "none":
            return None
        if self.namespace != self.api.namespace:
            raise Misuse(f"--owner: this pod is in {self.api.namespace}, and owns nothing in {self.namespace}")
        pod: dict[str, Any] | None = None
        try:
            pod = self.api.retry_while_unreachable(self._look_at_own_pod)
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise
        self._own_uid = str(pod["metadata"]["uid"]) if pod else None
        self._own_ip = value_at(pod, "status.podIP") if pod else None
        owner, why_not = attempt_object.owner_of(pod, self.options.owner)
        if owner is None:
            say(f"--owner {self.options.owner}: {why_not}; nobody deletes the gang when the run is deleted")
        return owner

    def _ask_what_is_needed(self) -> None:
        """Check that all that is needed to follow a gang can be listed, before anything is created."""
        jobs = [path_of("batch/v1", self.namespace, "jobs")] if self.gang.kind.has_jobs else []
        for path in (path_of("v1", self.namespace, "pods"), *jobs):
            self.api.retry_while_unreachable(lambda path=path: self.api.get(path, limit="1"))  # type: ignore[misc]
        first = self.gang.kind.before
        try:
            if first is not None:
                path = first.folder(self.namespace)
                self.api.retry_while_unreachable(lambda: self.api.get(path, limit="1"))
        except ApiRefusal as refusal:
            if refusal.status != 404 or first is None:
                raise
            raise Misuse(f"the cluster has no {first.api_version}: {first.plural} are not installed") from None


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
