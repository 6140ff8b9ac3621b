"""`retryStrategy` of Argo as `retry`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.importing.argo.own import RETRIES
from gpuflow.importing.listing import Listing, Place
from gpuflow.importing.plain import mapping, plain, whole_number


def retry_words(strategy: Mapping[str, Any], listing: Listing, place: Place) -> dict[str, Any] | None:
    """The step's `retry`; None when it says something that is listed."""
    before = len(listing.found)
    given = plain(strategy)
    known = ["limit", "retryPolicy", "backoff", "affinity"]
    if given.get("expression") == RETRIES:
        known.append("expression")
    listing.fields(strategy, known, "retryStrategy", place, {"expression": "write final_exit_codes in retry"})
    limit = whole_number(given.get("limit"))
    if limit is None:
        why = "it retries without end" if given.get("limit") is None else _no_number(given["limit"])
        listing.cannot("retryStrategy limit", why, place.of(strategy, "limit"), "write a number")
    policy = str(given.get("retryPolicy") or "OnFailure")
    word = {"Always": "any", "OnFailure": "failures", "OnError": "interruptions"}.get(policy)
    if word is None:
        listing.cannot(f"retryPolicy {policy}", "a pipeline has no such class of failures", place.of(strategy))
    found: dict[str, Any] = {} if limit is None else {str(word): limit}
    backoff = mapping(given.get("backoff"))
    listing.fields(strategy.get("backoff"), ("duration", "factor", "cap"), "backoff", place)
    if backoff.get("duration"):
        start = str(backoff["duration"])
        factor = 1 if backoff.get("factor") is None else whole_number(backoff["factor"])
        if factor is None:
            what = place.of(strategy, "backoff")
            listing.cannot("backoff factor", _no_number(backoff["factor"]), what, "write a whole number")
        longest = {"max": str(backoff["cap"])} if backoff.get("cap") else {}
        start = start if whole_number(start) is None else f"{start}s"
        found["backoff"] = {"start": start, "factor": factor or 1, **longest}
    if mapping(given.get("affinity")).get("nodeAntiAffinity") is not None:
        found["other_node"] = True
    return found if len(listing.found) == before else None


def _no_number(given: Any) -> str:
    return "the number is only known in the run" if "{{" in str(given) else f'"{given}" is no whole number'
