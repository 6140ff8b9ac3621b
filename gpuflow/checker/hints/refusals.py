"""The way out of a refusal of the API server, from its own words: whose containers, and where they are set up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuflow.demands import Demand
from gpuflow.engines import facts_of
from gpuflow.kubernetes.admission.answer import Admission, Reason
from gpuflow.kubernetes.admission.clauses import LimitRequired, RequestAboveLimit
from gpuflow.kubernetes.admission.limit_range import BoundViolation
from gpuflow.kubernetes.admission.quota import Unspecified

MAIN: Final = "main"


def refusal_hint(answer: Admission, demand: Demand) -> str | None:
    """What to change, and where; None when the sentence says it all."""
    for reason in answer.reasons:
        if isinstance(reason, Unspecified):
            return "\n".join(_must_specify(reason, demand))
        if isinstance(reason, LimitRequired) and demand.pipeline is None:
            return (
                "write the limit too, equal to the request; where the document asks for none, drop the key from the "
                "LimitRange that gives it"
            )
    owners = {name for reason in answer.reasons for name in answer.containers_behind(reason)}
    if owners and owners <= demand.engine_settings.keys():
        facts = facts_of(demand.engine)
        return (
            f"{', '.join(sorted(owners))}: added by {facts.title}; {facts.container_settings}\n"
            "else have the namespace's LimitRange changed"
        )
    hints = (hint for about in _ABOUT for reason in answer.reasons if (hint := about(reason)))
    return next(hints, None)


def _missing_device_limit(reason: Reason) -> str | None:
    if not isinstance(reason, BoundViolation) or (reason.bound, reason.kind) != ("maximum", "Pod"):
        return None
    key = reason.resource
    if "/" not in key or reason.side != "limit" or reason.given is not None:
        return None
    return (
        f"a LimitRange of type Pod with max for {key} refuses every pod that asks for none; drop it there and bound it "
        f"with a quota on requests.{key}"
    )


def _ratio(reason: Reason) -> str | None:
    if isinstance(reason, BoundViolation) and reason.bound == "ratio":
        return "bring request and limit closer together: a single number for cpu or memory sets both"
    return None


def _missing_limit(reason: Reason) -> str | None:
    if isinstance(reason, LimitRequired):
        return (
            "a LimitRange with min for a GPU gives containers a request without a limit; drop the key from the "
            "LimitRange"
        )
    return None


def _above_limit(reason: Reason) -> str | None:
    if isinstance(reason, RequestAboveLimit) and reason.resource in ("cpu", "memory"):
        return (
            f"the LimitRange's default limit is below what the step requests: set the limit too, {reason.resource}: "
            "{request: …, limit: …}"
        )
    return None


_ABOUT: Final = (_missing_device_limit, _ratio, _missing_limit, _above_limit)
"""The hints in the order in which they are tried."""


def _must_specify(reason: Unspecified, demand: Demand) -> Iterator[str]:
    """One line for the step's own command, one for its other containers, one for those of the engine."""
    wanted: dict[str, set[str]] = {}
    for key, names in reason.missing.items():
        for name in names:
            wanted.setdefault(name, set()).add(key)
    paths, facts = demand.engine_settings, facts_of(demand.engine)
    helpers = [name for name in wanted if name != MAIN and name not in paths]
    if MAIN in wanted:
        yield f"{MAIN}: {_fields(wanted[MAIN])} in the step or in defaults; a single number sets request and limit"
    if helpers:
        keys = set().union(*(wanted[name] for name in helpers))
        yield f"{', '.join(sorted(helpers))}: {_fields(keys)} on that init container or sidecar"
    injected = sorted(name for name in wanted if name in paths)
    if injected:
        keys_text = ", ".join(sorted(set().union(*(wanted[name] for name in injected))))
        yield f"{', '.join(injected)}: added by {facts.title}; {facts.container_settings}"
        yield f"then set the same {keys_text} in the site: {', '.join(paths[name] for name in injected)}"
    yield "or add defaults to the namespace's LimitRange"


def _fields(keys: set[str]) -> str:
    names = sorted({key.rpartition(".")[2] for key in keys})
    return f"set {' and '.join(names)}"
