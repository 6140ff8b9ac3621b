"""What the table says KFP cannot carry, said all the same: in the IR where it has words for it, else beside them.

Each case shows what the backend makes of it: that the table is right to refuse, or that it need not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .case import Case, Seen
from .scenes import pods, says, scene

Documents = list[dict[str, Any]]
CONFIG_FIELDS = {
    "envFrom": "env_from",
    "priorityClassName": "priority.pod",
    "terminationGracePeriodSeconds": "termination_grace",
    "hostNetwork": "kubernetes.host_network",
    "runtimeClassName": "kubernetes.runtime_class",
}
"""Names that a person would try for what the executor's Kubernetes settings have no field for."""


def config(documents: Documents, step: str) -> dict[str, Any]:
    """The Kubernetes settings of a step's executor."""
    found: dict[str, Any] = documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{step}"]
    return found


def _pod_affinity(documents: Documents) -> None:
    term = {"matchPodLabels": {"no": "such"}, "topologyKey": "topology.kubernetes.io/zone"}
    config(documents, "a")["podAffinity"] = [term]


def _init_container(documents: Documents) -> None:
    first = {"name": "first", "image": "gpuflow.test/busybox:1", "command": ["sh", "-c", "echo first"]}
    config(documents, "a")["initContainers"] = [first]


def _sidecar(documents: Documents) -> None:
    beside = {
        "name": "beside",
        "image": "gpuflow.test/busybox:1",
        "command": ["sleep", "600"],
        "restartPolicy": "Always",
    }
    config(documents, "a")["initContainers"] = [beside]


def _unknown(name: str) -> Callable[[Documents], None]:
    def edit(documents: Documents) -> None:
        config(documents, "a")[name] = {"secret": "s"} if name == "envFrom" else 1

    return edit


def _read_at_exit(documents: Documents, chosen: dict[str, Any]) -> None:
    """The DAG of the exit handler hands out an output of its steps, and the exit task reads it."""
    spec = documents[0]
    spec["components"]["comp-e"]["inputDefinitions"]["parameters"]["pipeline_run-id"] = {
        "parameterType": "NUMBER_INTEGER"
    }
    handler = spec["components"]["comp-exit-handler-1"]
    handler["dag"]["outputs"] = {"parameters": {"o": chosen}}
    handler["outputDefinitions"] = {"parameters": {"o": {"parameterType": "NUMBER_INTEGER"}}}
    spec["root"]["dag"]["tasks"]["e"]["inputs"]["parameters"]["pipeline_run-id"] = {
        "taskOutputParameter": {"producerTask": "exit-handler-1", "outputParameterKey": "o"}
    }


def _read_output_at_exit(documents: Documents) -> None:
    _read_at_exit(documents, {"valueFromParameter": _selector("a")})


def _read_one_of_at_exit(documents: Documents) -> None:
    """The first of the two that has ended well, which is how `dsl.OneOf` is compiled."""
    _read_at_exit(documents, {"valueFromOneof": {"parameterSelectors": [_selector("a"), _selector("first")]}})


def _selector(task: str) -> dict[str, str]:
    return {"outputParameterKey": "o", "producerSubtask": task}


def _braces(documents: Documents) -> None:
    config(documents, "a")["podMetadata"]["annotations"] = {"example.com/a": "{{workflow.name}}"}


def _regardless(documents: Documents) -> None:
    tasks = documents[0]["root"]["dag"]["tasks"]
    tasks["after"]["triggerPolicy"] = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}


def _affinity_of(seen: Seen) -> str | None:
    found = [pod["spec"].get("affinity", {}).get("podAffinity") for pod in seen.pods.get("a", ())]
    return None if found == [None] else f"the backend reads pod affinity now: {found}"


def _containers_of(name: str) -> Callable[[Seen], str | None]:
    def rule(seen: Seen) -> str | None:
        found = [each["name"] for pod in seen.pods.get("a", ()) for each in pod["spec"]["initContainers"]]
        return None if name in found else f"no container {name} in {found}"

    return rule


def _annotation(seen: Seen) -> str | None:
    (pod,) = seen.pods["a"]
    text = pod["metadata"]["annotations"]["example.com/a"]
    return None if text != "{{workflow.name}}" else "Argo leaves braces in annotations alone"


def cases() -> Iterator[Case]:
    one: dict[str, Any] = {"file": "forced-one"}
    yield scene(
        "forced-pod-affinity",
        _affinity_of,
        edit=_pod_affinity,
        constructs=("topology.same",),
        note="accepted, and no pod affinity on the pod",
        **one,
    )
    yield scene(
        "forced-init",
        _containers_of("first"),
        edit=_init_container,
        constructs=("init_containers",),
        note="this commit, later than 2.17.0, has init containers",
        **one,
    )
    yield scene(
        "forced-sidecar",
        _containers_of("beside"),
        edit=_sidecar,
        constructs=("sidecars",),
        note="this commit, later than 2.17.0, has native sidecars",
        **one,
    )
    for name, construct in CONFIG_FIELDS.items():
        yield scene(f"forced-{name.lower()}", edit=_unknown(name), constructs=(construct,), state="REFUSED", **one)
    yield scene(
        "forced-braces",
        _annotation,
        edit=_braces,
        constructs=("annotations",),
        note="Argo evaluates it",
        **one,
    )
    yield scene(
        "forced-exit-output",
        says("e", "7"),
        edit=_read_output_at_exit,
        constructs=("exit.outputs",),
        note="an exit task reads the output of a step that succeeded",
    )
    for name, why in (("failed", "failed"), ("never", "never ran")):
        yield scene(
            f"forced-exit-{name}",
            pods(e=0),
            edit=_read_output_at_exit,
            state="FAILED",
            constructs=("exit.outputs",),
            note=f"where the step {why}, the driver of the exit task fails, and the exit step never starts",
        )
    for how, name, state, value in (("0", "good", "SUCCEEDED", "7"), ("3", "bad", "FAILED", "3")):
        yield scene(
            f"forced-exit-else-{name}",
            says("e", value),
            file="forced-exit-else",
            edit=_read_one_of_at_exit,
            arguments={"how": how},
            state=state,
            constructs=("exit.outputs",),
            note="with valueFromOneof the exit step gets the value of another task where the step has none",
        )
    yield scene(
        "forced-exit-else-never",
        says("e", "3"),
        file="forced-exit-never",
        edit=_read_one_of_at_exit,
        state="FAILED",
        constructs=("exit.outputs",),
        note="the same for a step that never ran",
    )
    yield scene(
        "forced-nested-outputs",
        says("sum", "all=[15,16,25,26]"),
        unrefused=True,
        constructs=("for_each.dynamic_matrix",),
    )
    yield scene(
        "forced-item-outputs",
        pods(some=2, sum=0),
        unrefused=True,
        state="FAILED",
        constructs=("when.item",),
        note="the driver of the reader fails",
    )
    yield scene(
        "forced-if-skipped",
        pods(a=0, after=0),
        edit=_regardless,
        constructs=("if_skipped.run",),
        note="with ALL_UPSTREAM_TASKS_COMPLETED it is skipped all the same",
    )
