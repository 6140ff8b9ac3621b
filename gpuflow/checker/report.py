"""The answer of a check: one verdict, the scopes it rests on, and the findings that explain it.

`Report` is the answer about a whole pipeline, `Outcome` that of one part of a check; outcomes are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from gpuflow.cluster import Manifest
from gpuflow.core.errors import Finding, join_names
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


def amount(quantity: Quantity | None, key: str, *, round_up: bool = False) -> str:
    """A quantity of a resource for a person: Kubernetes writes 1000 cpu as `1k`, and a sum of 1e9 and 256Mi in bytes.

    None: it is not known. `round_up`: it is one that people may write, so that it must be enough.
    """
    if quantity is None:
        return "?"
    text = str(quantity)
    digits = text.removesuffix("Ki").removesuffix("k").removeprefix("-")
    if digits.isdecimal() and len(digits) > 6 and key.endswith(("memory", "storage")):
        if quantity.value % 2**20 and not round_up:
            return f"~{quantity.value / 2**20:.1f}Mi"
        return f"{-(-quantity.value // 2**20)}Mi"
    return str(quantity.value) if text.endswith("k") and len(text) <= 4 else text


def bounding_hint(demand: Demand, steps: str) -> str:
    """What would settle a peak that is not known."""
    if demand.kind == "Pipeline":
        return f"give {steps} a parallel cap, so that its demand is bounded"
    if demand.keeps_cap and (demand.cap_text or "").startswith("max_active"):
        return f"give {steps} max_active_tis_per_dagrun, so that its demand is bounded"
    return "a document that bounds the number would settle it"


def cap_text(demand: Demand, pods: int) -> str:
    """What the document says so that no more pods live at once."""
    word = "parallel" if demand.kind in ("Pipeline", "DAG") else "parallelism"
    return (demand.cap_text or f"{word}: {{}}").format(pods)


def waiting_note(demand: Demand, what: WaitsFor, steps: Iterable[str]) -> str:
    """What it means on the engine that pods of these steps wait, and how long they may."""
    facts, found = facts_of(demand.engine), [demand.by_name[name] for name in steps if name in demand.by_name]
    notes = facts.stock_waits if any(each.fails_when_refused for each in found) else {}
    text = WITHOUT_ENGINE[what] if demand.by_itself else notes.get(what, facts.waits[what])
    limits = list(dict.fromkeys(each.waits_at_most for each in found if each.waits_at_most is not None))
    if not limits or what == "objects":
        return text
    return f"{text}\nqueue_timeout: after waiting {' or '.join(limits[:3])} the step fails"


Verdict = Literal["always", "may-queue", "never", "unknown"]
_ORDER: tuple[Verdict, ...] = ("always", "may-queue", "unknown", "never")

SEPARATOR = " + "
"""Between the names of what is checked side by side: pipelines, namespaces, engines."""


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a whole from those of its parts: never beats unknown beats may-queue beats always."""
    return max(verdicts, key=_ORDER.index, default="always")


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One line that limits the pipeline: a quota's key, a queue's resource, a node pool."""

    kind: str
    name: str
    resource: str
    verdict: Verdict
    used: Quantity | None
    hard: Quantity
    peak: Quantity | None
    witness: tuple[str, ...] = ()
    safe_parallelism: int | None = None

    def document(self) -> dict[str, Any]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        amounts = {name: str(value) for name, value in found.items() if isinstance(value, Quantity)}
        return {**found, **amounts, "witness": list(self.witness)}


def safe_parallelism(lines: Iterable[LimitLine]) -> int | None:
    """The largest cap on live pods with which every line always has room; `None` where some line has none, or needs
    none."""
    caps = [line.safe_parallelism for line in lines if line.verdict != "always"]
    known = [cap for cap in caps if cap is not None]
    return min(known) if known and len(known) == len(caps) else None


@dataclass(frozen=True, slots=True)
class Report:
    """What the cluster will say to a pipeline. *always* holds against this snapshot, if no other workload grows."""

    pipeline: str
    namespace: str
    """That of the run; with others to which some of its pods go."""
    engine: str
    as_of: str
    verdict: Verdict
    scopes: tuple[LimitLine, ...]
    findings: tuple[Finding, ...]
    file: str | None = None
    """Where the pipeline is written."""
    assumed: tuple[str, ...] = ()
    """Kinds that the pods need and that were not checked, because the snapshot's author says so."""
    kind: str = "Pipeline"
    """What the document calls itself: a Pipeline of ours, or a Workflow, a Job…"""
    by_itself: bool = False
    """No engine runs it."""
    brought: tuple[Manifest, ...] = ()
    """The objects of the checked files that count as part of the cluster."""

    @property
    def assumes(self) -> str:
        """What the verdict takes for granted, as one sentence."""
        vouched = f"Not checked, because the snapshot says so: {', '.join(self.assumed)}. " if self.assumed else ""
        return f"{vouched}Assumes no other workload grows."

    @property
    def with_brought(self) -> str:
        """What of the files counts beside the snapshot, as a part of a sentence."""
        names = [f"{each.kind} {each.name}".rstrip() for each in self.brought]
        noun = "object" if len(names) == 1 else "objects"
        return f", with {len(names)} {noun} of the files: {join_names(names)}" if names else ""

    def fails(self, failing: Iterable[str]) -> bool:
        """Whether a check ends with 1 where these verdicts do: a pipeline that can block itself fails in any case, and
        so does a document that kubectl refuses."""
        deadlocks = self.verdict == "may-queue" and any(each.severity == "error" for each in self.findings)
        lost = any(each.code == "GF815" and each.severity == "error" for each in self.findings)
        return deadlocks or lost or self.verdict in failing

    def document(self) -> dict[str, Any]:
        """The contract's JSON shape."""
        return {
            "file": self.file,
            "pipeline": self.pipeline,
            **({} if self.kind == "Pipeline" else {"kind": self.kind}),
            "namespace": self.namespace,
            "engine": self.engine,
            "verdict": self.verdict,
            "as_of": self.as_of,
            "assumed": list(self.assumed),
            **({"brought": [_brought_document(each) for each in self.brought]} if self.brought else {}),
            "scopes": [scope.document() for scope in self.scopes],
            "findings": [finding.document() for finding in self.findings],
        }


def _brought_document(item: Manifest) -> dict[str, Any]:
    where = {"file": item.where.file, "line": item.where.line}
    return {"kind": item.kind, "name": item.name, "namespace": item.namespace, "where": where}


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict = "always"
    scopes: tuple[LimitLine, ...] = ()
    findings: tuple[Finding, ...] = ()


def outcome_of(findings: Iterable[Finding], verdict: Verdict = "always") -> Outcome:
    """Findings, each of which alone makes this the verdict."""
    found = tuple(findings)
    return Outcome(verdict if found else "always", findings=found)


def merge_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """Several parts as one."""
    parts = list(outcomes)
    return Outcome(
        worst_verdict(part.verdict for part in parts),
        tuple(scope for part in parts for scope in part.scopes),
        tuple(finding for part in parts for finding in part.findings),
    )


def foremost_resource(resources: Iterable[str]) -> str | None:
    """The resource to speak of when several are short: devices first, then as they are named."""
    return min(resources, key=lambda name: ("/" not in name, name), default=None)
