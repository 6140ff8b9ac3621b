"""`retryStrategy` of Argo as `retry`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.importing.argo.own import RETRIES
from gpuflow.importing.listing import Listing, Place
from gpuflow.importing.plain import plain


def retry_words(strategy: Mapping[str, Any], listing: Listing, place: Place) -> dict[str, Any] | None:
    """The step's `retry`; None when it says something that is listed."""
    before = len(listing.found)
    given = plain(strategy)
    known = ["limit", "retryPolicy", "backoff", "affinity"]
    if given.get("expression") == RETRIES:
        known.append("expression")
    listing.fields(strategy, known, "retryStrategy", place, {"expression": "write final_exit_codes in retry"})
    if not str(given.get("limit") or "").isdigit():
        why = "it retries without end" if given.get("limit") is None else "the number is only known in the run"
        listing.cannot("retryStrategy limit", why, place.of(strategy, "limit"), "write a number")
    policy = str(given.get("retryPolicy") or "OnFailure")
    word = {"Always": "any", "OnFailure": "failures", "OnError": "interruptions"}.get(policy)
    if word is None:
        listing.cannot(f"retryPolicy {policy}", "a pipeline has no such class of failures", place.of(strategy))
    found: dict[str, Any] = {str(word): int(given["limit"])} if str(given.get("limit") or "").isdigit() else {}
    backoff = given.get("backoff") or {}
    listing.fields(strategy.get("backoff"), ("duration", "factor", "cap"), "backoff", place)
    if backoff.get("duration"):
        start = str(backoff["duration"])
        factor = {"factor": int(backoff["factor"])} if str(backoff.get("factor") or "").isdigit() else {"factor": 1}
        longest = {"max": str(backoff["cap"])} if backoff.get("cap") else {}
        found["backoff"] = {"start": f"{start}s" if start.isdigit() else start, **factor, **longest}
    if (given.get("affinity") or {}).get("nodeAntiAffinity") is not None:
        found["other_node"] = True
    return found if len(listing.found) == before else None
