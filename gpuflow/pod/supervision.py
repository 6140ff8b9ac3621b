"""How gpuflow's supervisor runs a step's command: its options, its waits and its graces.

What it does for a step is said by the plan (`gpuflow.plan.Supervision`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpuflow.plan import MAX_INT32, PlannedStep, Supervision, fetches
from gpuflow.pod.gang import mpi_slots, star_port
from gpuflow.pod.spelling import Spelling, spell_text
from gpuflow.pod.volumes import Volumes, input_options, keeps_artifacts
from gpuflow.quantity import Quantity
from gpuflow.runtime import bundle
from gpuflow.runtime.bundle import wrap
from gpuflow.runtime.gangs.kinds import WORDS
from gpuflow.spec.duration import Duration
from gpuflow.spec.policies import Backoff, Retry
from gpuflow.spec.step import Step
from gpuflow.spec.storage_paths import volume_above
from gpuflow.spec.text import ItemRef, RunRef


def longest_wait(retry: Retry, times: int) -> int:
    """The seconds of the last of so many waits, or `MAX_INT32` where it would be longer."""
    if retry.backoff is None or times < 1:
        return 0
    most = retry.backoff.max
    wait = unlimited_wait(retry.backoff, times)
    return wait if most is None else min(wait, most.seconds)


def unlimited_wait(backoff: Backoff, times: int) -> int:
    """The seconds of the last of so many waits if the step named no longest one, or `MAX_INT32`."""
    return _backoff_wait(backoff.start.seconds, backoff.factor, times) if times >= 1 else 0


@lru_cache(maxsize=1024)
def _backoff_wait(wait: int, factor: int, times: int) -> int:
    if factor > 1 and wait:
        for _ in range(min(times - 1, MAX_INT32.bit_length())):  # it at least doubles, so that this is enough
            wait *= factor
            if wait > MAX_INT32:
                break
    return min(MAX_INT32, wait)


def time_in_pod(step: Step, room: int, grace: int) -> int:
    """The seconds after which a pod that repeats its command is over: every attempt, every wait, and `room` once."""
    assert step.timeout is not None and step.retry is not None
    again = step.retry.after_failures
    waits = again * longest_wait(step.retry, again)
    return min(MAX_INT32, (again + 1) * (step.timeout.seconds + grace) + waits + room)


OUTPUTS = "/gpuflow/outputs"
DEFAULT_GRACE = 30
"""What Kubernetes and the supervisor give a program that says nothing, in seconds."""
GRACE_MARGIN = 10
"""What the kubelet waits longer than the supervisor, whose last words must still reach the disk."""
START_UP_ROOM = 3600
"""What image pull, init containers and the restoring of a checkpoint may take before the kubelet ends the pod."""
RUN_ID, TASK = "GPUFLOW_RUN_RUN_ID", "GPUFLOW_RUN_TASK"
"""The variables that the supervisor reads --run-id and --task from, where its command does not name them."""
KEY = "/gpuflow/key"
"""Where the key that signs the state is mounted."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What the supervisor must know about the engine: its name, and where it looks for a step's outputs."""

    name: str = "none"
    outputs_dir: str = OUTPUTS
    within: str = ""
    """Where the pipeline stands in the one around it, already spelled: it keeps apart the state of its copies."""
    grace: int | None = None
    """The seconds from SIGTERM to SIGKILL that every pod gets, where the engine lets nobody choose."""
    run_id: str | None = None
    """The field of the pod that holds the run's id, where the command must not: an engine that compares commands and
    inputs to find an earlier result would find none."""
    task: str | None = None
    """The field of the pod that holds the engine's own name of the task, where only that keeps copies apart."""
    requests_disk: bool = True
    """Whether its pods can ask for the node's disk."""
    leads: bool = False
    """Whether the pod is that of a gang's leader, and not of its workers."""


def active_deadline(planned: PlannedStep) -> int | None:
    """How long the kubelet lets the pod be active.

    Kubernetes counts image pull and init containers, and `timeout` is the program's own time. The supervisor keeps
    that; the kubelet's deadline stands behind it, for the case that the supervisor hangs as well. Without a supervisor
    it is all there is. A pod that repeats its command has time for every attempt.
    """
    step, known = planned.step, planned.supervision
    if step.timeout is None or not known.is_supervised:
        return None if step.timeout is None else step.timeout.seconds
    grace = termination_grace(step) or DEFAULT_GRACE
    if known.repeats_inside:
        return time_in_pod(step, START_UP_ROOM, grace)
    return step.timeout.seconds + START_UP_ROOM + grace


def termination_grace(step: Step) -> int | None:
    """How long the kubelet waits from SIGTERM to SIGKILL: a little longer than the supervisor takes for itself."""
    if step.termination_grace is not None:
        return step.termination_grace.seconds
    if step.checkpoint is None or step.checkpoint.grace is None:
        return DEFAULT_GRACE + hook_time(step) if hook_time(step) else None
    return step.checkpoint.grace.seconds + GRACE_MARGIN + hook_time(step)


def hook_time(step: Step) -> int:
    """What a hook takes of the pod's grace period before SIGTERM, where that is known, in seconds."""
    hook = step.lifecycle.pre_stop if step.lifecycle is not None else None
    return hook.sleep.seconds if hook is not None and hook.sleep is not None else 0


def supervisor_grace(step: Step) -> Duration | None:
    """How long the supervisor takes from SIGTERM to its own end; None: its default.

    Never as long as the kubelet waits, or it would be killed before it has written how the attempt ended. Where only
    the pod's grace is given, the program gets all of it but the margin.
    """
    wanted = step.checkpoint.grace if step.checkpoint is not None else None
    if step.termination_grace is None:
        return wanted
    most = max(1, step.termination_grace.seconds - hook_time(step))
    room = Duration(most - min(GRACE_MARGIN, -(-most // 4)))
    return room if wanted is None else min(wanted, room)


def has_records(planned: PlannedStep) -> bool:
    """Whether the supervisor writes or reads what can be signed: state, or the manifests of artifacts."""
    return planned.supervision.keeps_state or fetches(planned.step) or keeps_artifacts(planned.step)


def saves_to_scratch(step: Step) -> bool:
    """Whether the program's checkpoints lie on the node's disk until they are kept elsewhere."""
    return step.checkpoint is not None and volume_above(step, step.checkpoint.path) is None


def scratch_size(step: Step) -> Quantity | None:
    """How much of the node's disk the checkpoints may take, where the step says so."""
    return step.checkpoint.scratch if step.checkpoint is not None and saves_to_scratch(step) else None


def supervised_command(
    planned: PlannedStep, spelling: Spelling, engine: Engine, volumes: Volumes, command: list[str], gpus: int
) -> tuple[list[str], list[dict[str, Any]]]:
    """The wrapped command, and the mounts the supervisor needs."""
    step, site, own, known = planned.step, planned.site, planned.own_name, planned.supervision
    own = f"{engine.within}/{own}" if engine.within and known.keeps_state else own
    options: dict[str, Any] = {"pipeline": planned.pipeline.name, "step": own}
    if engine.run_id is None:
        options["run-id"] = spelling.reference(RunRef("id"))
    if step.for_each:
        options["item"] = ",".join(f"{key}={spelling.reference(ItemRef(key))}" for key in step.for_each)
    mounts: list[dict[str, Any]] = []
    grace = supervisor_grace(step)
    if grace is not None and (engine.grace is None or grace.seconds <= engine.grace):
        options["grace"] = str(grace)
    if step.checkpoint is not None:
        policy, mtbf = step.checkpoint, site.spot.mean_time_between
        options |= {
            "checkpoint-dir": spell_text(policy.path, spelling),
            "store": spell_text(policy.store, spelling),
            "every": policy.every,
            "keep": policy.keep,
            "resume-env": policy.resume_env,
            "mtbf": str(mtbf) if policy.every == "auto" and mtbf else None,
        }
        has_copies = bool(step.for_each or engine.within or engine.task)
        options["own-folder"] = has_copies and _is_shared_path(policy.path, step)
        if saves_to_scratch(step):
            mounts.append(volumes.scratch(policy.path, size=policy.scratch))
    if step.gang is not None:
        sharded = step.checkpoint is not None and step.checkpoint.sharded
        options |= {"gang": step.gang.pods, "gang-port": star_port(step.gang), "sharded": sharded}
        if step.gang.leader is not None and not engine.leads and not WORDS[site.gangs.made_as].label_is_rank:
            options["rank-offset"] = 1
        options["mpi"] = mpi_slots(step, gpus, leads=engine.leads)
    options |= _budgets(step.retry, known)
    if known.counts_budgets:
        state = site.runtime.state
        options["state"] = spell_text(state, spelling) if state is not None and step.checkpoint is None else None
    signs = site.runtime.key if has_records(planned) else None
    if signs is not None:
        options["key-file"] = f"{KEY}/{signs.key}"
        mounts.append(volumes.secret_file(KEY, signs.secret, signs.key))
    if step.timeout is not None:
        options["timeout"] = str(step.timeout)
    if step.outputs:
        options |= _outputs(step, engine, spelling)
        if engine.outputs_dir == OUTPUTS:
            mounts.append(volumes.scratch(OUTPUTS))
    if fetches(step):
        options |= input_options(step, spelling)
    # A file or directory is kept where the site says, unless the step itself says it.
    if fetches(step) or any(output.is_artifact and output.uri is None for output in step.outputs.values()):
        options["artifacts"] = None if site.runtime.artifacts is None else spell_text(site.runtime.artifacts, spelling)
    if site.runtime.delivery == "config-map":
        mounts.append(volumes.config_map(site.runtime.mount, bundle.config_map_name(site.runtime.config_map)))
    runtime = site.runtime
    mount, python = spell_text(runtime.mount, spelling), spell_text(runtime.python, spelling)
    return wrap(command, options, delivery=runtime.delivery, mount=mount, python=python), mounts


def supervisor_environment(engine: Engine) -> list[dict[str, Any]]:
    """The options that the supervisor reads from the pod rather than from its command."""
    fields = {RUN_ID: engine.run_id, TASK: engine.task}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items() if path]


def _budgets(retry: Retry | None, known: Supervision) -> dict[str, Any]:
    """What the supervisor counts: over all pods where it has a place for that, else the failures of its own pod."""
    if retry is None or not (known.counts_budgets or known.repeats_inside):
        return {}
    one = retry.any is not None
    return {
        "failures": None if one else retry.failures,
        "interruptions": retry.interruptions if known.counts_budgets and not one else None,
        "retries": retry.any,
        "final-exit-codes": retry.final_exit_codes or None,
        "retryable-exit-codes": retry.retryable_exit_codes,
        **(_repeats(retry) if known.repeats_inside else {}),
    }


def _repeats(retry: Retry) -> dict[str, Any]:
    backoff = retry.backoff
    if backoff is None:
        return {"repeat": True}
    return {
        "repeat": True,
        "backoff": str(backoff.start),
        "backoff-factor": backoff.factor,
        "backoff-max": None if backoff.max is None else str(backoff.max),
    }


def _outputs(step: Step, engine: Engine, spelling: Spelling) -> dict[str, Any]:
    declared = [
        f"{name}:{output.type}" + (f"={spell_text(output.path, spelling)}" if output.path else "")
        for name, output in step.outputs.items()
    ]
    kept = [
        f"{name}={spell_text(output.uri, spelling)}" for name, output in step.outputs.items() if output.uri is not None
    ]
    return {"engine": engine.name, "outputs-dir": engine.outputs_dir, "output": declared, "artifact": kept or None}


def _is_shared_path(path: str, step: Step) -> bool:
    """Whether the copies of a step see the same files there: on a claim they do, in a pod's scratch space not."""
    above = volume_above(step, path)
    return above is not None and above[1].lasts
