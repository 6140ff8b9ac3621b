"""Steps by the names that a demand gives them: `train`, or `tune.train` inside a sub-pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuflow.core.errors import join_names
from gpuflow.demands import Demand
from gpuflow.engines import WaitsFor, facts_of
from gpuflow.quantity import Quantity

WITHOUT_ENGINE: Mapping[WaitsFor, str] = {
    "quota": "The API server refuses the pod, and its controller tries again until there is room.",
    "queue": "Kueue holds it back until there is quota.",
    "nodes": "The pod stays Pending until a node has room.",
    "objects": "Finished pods count until they are deleted.",
}
"""What it means that pods wait which the controller of their kind makes."""


def asking_clause(witness: Sequence[str], named: Sequence[str] = ()) -> str:
    """The subject and verb of what steps ask for at the worst moment; `named` are in the same sentence already."""
    if len(witness) == 1:
        return f"{witness[0]} asks"
    return "together they ask" if set(witness) == set(named) else f"{join_names(witness)} together ask"


def amount(quantity: Quantity | int | str) -> str:
    """A quantity for a person: Kubernetes writes 1000 cpu as `1k`."""
    text = str(quantity)
    return str(quantity.value) if isinstance(quantity, Quantity) and text.endswith("k") and len(text) <= 4 else text


def bounding_hint(demand: Demand, steps: str) -> str:
    """What would settle a peak that is not known."""
    if demand.kind == "Pipeline":
        return f"give {steps} a parallel cap, so that its demand is bounded"
    return "a document that bounds the number would settle it"


def waiting_note(demand: Demand, what: WaitsFor, steps: Iterable[str]) -> str:
    """What it means on the engine that pods of these steps wait, and how long they may."""
    text = WITHOUT_ENGINE[what] if demand.by_itself else facts_of(demand.engine).waits[what]
    found = (demand.by_name[name].waits_at_most for name in steps if name in demand.by_name)
    limits = list(dict.fromkeys(limit for limit in found if limit is not None))
    if not limits or what == "objects":
        return text
    return f"{text}\nqueue_timeout: after waiting {' or '.join(limits[:3])} the step fails"
