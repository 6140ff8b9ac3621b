"""Claims that tasks create: Kubeflow's driver makes and deletes them itself, without a pod of the task's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuflow.demands.model import ClaimDemand, Unseen
from gpuflow.pod.volumes import volume_name
from gpuflow.readers.kfp.message import Message
from gpuflow.readers.kfp.pods import Task, quantity
from gpuflow.readers.kfp.settings import MODES
from gpuflow.readers.kfp.values import Known, Open, Value

CREATE, DELETE = "argostub/createpvc", "argostub/deletepvc"
MOST_CLAIMS = 1000


@dataclass(frozen=True)
class Claims:
    """What a task that makes a claim asks for."""

    name: Value
    """The claim's name, for those that mount it."""
    claims: tuple[ClaimDemand, ...] = ()
    unseen: tuple[Unseen, ...] = ()


def is_claim_task(executor: Message) -> bool:
    """Whether the driver does the work of a task itself (argocompiler/dag.go, dummyImages)."""
    return executor.message("container").text("image") in (CREATE, DELETE)


def claims_of(path: str, task: Message, spec: Task, copies: int | None) -> Claims:
    """The claims that a task makes, one for each copy (driver/k8s.go, createPVC)."""
    if spec.executor.message("container").text("image") == DELETE:
        return Claims(Open("it is a claim that is gone"))
    given = task.message("inputs").message("parameters")
    inputs = spec.inputs
    size, storage_class = inputs.get("size", Known(None)), inputs.get("storage_class_name", Known(None))
    named = inputs.get("pvc_name", Known(None))
    name = named.value if isinstance(named, Known) and named.value else volume_name(f"run-{path}")
    places = {key: given.where(key) for key in ("size", "storage_class_name")}
    hidden = []
    for key, value, what in (("size", size, "storage"), ("storage_class_name", storage_class, None)):
        if isinstance(value, Open) and what:
            hidden.append(Unseen(path, f"{key}: {value.because}", places[key], what))
    if copies is None or copies > MOST_CLAIMS:
        because = "how many claims it makes is not known" if copies is None else f"it makes {copies:,} claims"
        hidden += [Unseen(path, because, task.where(), each) for each in ("storage", "persistentvolumeclaims")]
        return Claims(Known(str(name)), unseen=tuple(hidden))
    text = size.value if isinstance(size, Known) and isinstance(size.value, str) else "0"
    manifest: dict[str, Any] = {
        "accessModes": _modes(inputs.get("access_modes")),
        "resources": {"requests": {"storage": quantity(path, "size", text, places["size"])}},
    }
    if "storage_class_name" not in given.value:
        manifest["storageClassName"] = "standard"  # what the driver takes when nobody names one
    elif isinstance(storage_class, Known):
        manifest["storageClassName"] = str(storage_class.value or "")
    made = tuple(
        ClaimDemand(
            path if number == 0 else f"{path}-{number + 1}",
            {"metadata": {"name": str(name)}, "spec": manifest},
            str(name),
            task.where(),
            places["size"],
            places["storage_class_name"],
        )
        for number in range(copies)
    )
    return Claims(Known(str(name)), made, tuple(hidden))


def _modes(value: Value | None) -> list[str]:
    listed = value.value if isinstance(value, Known) and isinstance(value.value, list) else []
    return [each for each in listed if each in MODES]
