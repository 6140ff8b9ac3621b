"""What to do when the API server refuses a pod: wait, try again, take the pod that is there, or give up."""

from __future__ import annotations

import json
import re
from typing import Literal, NamedTuple

from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs.kinds import JOBSET, WORDS, GangKind

WAIT: Literal["wait"] = "wait"
AGAIN: Literal["again"] = "again"
EXISTS: Literal["exists"] = "exists"
NEVER: Literal["never"] = "never"

TRANSIENT = (None, 0, 401, 408, 409, 429, 500, 502, 503, 504)
"""The server is busy, restarting or cannot be reached, or a token ran out: the pod itself is not the reason."""
_QUOTA_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*?), used: (?P<used>.*?), limited: (?P<limited>.*)"
)
_TRANSIENT_QUOTA = re.compile(
    "exceeded (hierarchical )?quota|status unknown for quota|resource quota evaluation timed out"
)
_CODES = (
    ("failed quota", "GF501"),
    ("per Container", "GF502"),
    ("per Pod", "GF502"),
    ("violates PodSecurity", "GF504"),
    ("no PriorityClass", "GF505"),
    ("RuntimeClass", "GF505"),
)


NOT_INSTALLED = "the API server knows no "
_FORBIDDEN = "cannot create resource"
"""In what the API server says to an account without the permission; the pod is not the reason."""


def refusal_hint(words: str) -> str:
    """The hint for a permanent refusal."""
    made = {each for kind in WORDS.values() for each in (kind, kind.before) if each is not None}
    is_gang = any(f"{each.plural}.{each.group} is forbidden" in words for each in made)
    if is_gang and (_FORBIDDEN in words or "cannot list resource" in words):
        return "apply what gpuflow site gang --engine airflow prints, with the accounts of this Airflow"
    if words.startswith(NOT_INSTALLED):
        from gpuflow.pod.gang_kinds import SPELLINGS

        served = [each for each in SPELLINGS.values() if all(f" {api} " in words for api in each.kind.served_by)]
        needs = max(served, key=lambda each: len(each.kind.served_by)).needs if served else "it"
        return f"install {needs} in the cluster, or name a namespace that is there"
    if _FORBIDDEN in words:
        return "give the account that Airflow uses there a Role that may create, get, list, patch and delete pods"
    return "gpuflow check reports this before the run; ask for less, or get the limit raised"


class Refusal(NamedTuple):
    """What to do after an answer of the API server, its message, and for *never* the reason."""

    then: Literal["wait", "again", "exists", "never"]
    words: str
    because: str = ""
    code: str = ""
    """For *never*: the same code that `gpuflow check` gives."""


def read_refusal(status: int | None, body: str | bytes | None) -> Refusal:
    """The meaning of a failed request to create a pod."""
    words, reason = _status_message(body)
    if status == 409 and reason == "AlreadyExists":
        return Refusal(EXISTS, words)
    if status == 403 and _TRANSIENT_QUOTA.search(words):
        too_much = _above_whole_quota(words)
        return Refusal(NEVER, words, too_much, "GF501") if too_much else Refusal(WAIT, words)
    if status in TRANSIENT:
        return Refusal(AGAIN, words or f"HTTP {status or 'connection lost'}")
    code = next((code for text, code in _CODES if text in words), "GF503")
    because = "Airflow may not create pods there" if _FORBIDDEN in words else "the API server refuses the pod"
    return Refusal(NEVER, words, f"{because} (HTTP {status})", code)


def refusal_of(status: int | None, body: str | bytes | None, kind: GangKind = JOBSET) -> Refusal:
    """The meaning of a failed request to create a gang's object."""
    refusal = read_refusal(status, body)
    if status == 404:
        words = f"{NOT_INSTALLED}{' or no '.join(kind.served_by)} there"
        names = " or no ".join((kind.name, *([] if kind.before is None else [kind.before.plural])))
        return Refusal(NEVER, words, f"the cluster has no {names}, or not this namespace (HTTP 404)", "GF503")
    because = refusal.because.replace("create pods", f"create {kind.name}s").replace("the pod", f"the {kind.name}")
    return refusal._replace(because=because)


def _status_message(body: str | bytes | None) -> tuple[str, str]:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    try:
        status = json.loads(text)
        return str(status.get("message", text)), str(status.get("reason", ""))
    except (ValueError, AttributeError):
        return text, ""


def _above_whole_quota(words: str) -> str:
    """What the pod asks for beyond the whole quota, so that no amount of waiting helps; empty when waiting may."""
    if (match := _QUOTA_EXCEEDED.search(words)) is None:
        return ""
    asked, limit = _amounts(match["requested"]), _amounts(match["limited"])
    over = [
        f"{asked[key]} {key} of the {limit[key]} that quota {match['quota']} allows at most"
        for key in sorted(asked)
        if key in limit and asked[key] > limit[key]
    ]
    return f"it asks for {' and '.join(over)}" if over else ""


def _amounts(text: str) -> dict[str, Quantity]:
    pairs = (part.partition("=") for part in text.split(","))
    return {key.strip(): Quantity(value.strip()) for key, _, value in pairs if value}
