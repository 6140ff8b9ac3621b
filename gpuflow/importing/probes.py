"""A probe of Kubernetes in the words of a step, where they say all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TIMES = {"initialDelaySeconds": "delay", "periodSeconds": "period", "timeoutSeconds": "timeout"}


def probe_words(probe: Mapping[str, Any]) -> dict[str, Any] | None:
    """The probe; None when it says more than the words do, so that the patch carries it."""
    found: dict[str, Any] = {}
    for key, value in probe.items():
        if key in _TIMES and value:
            found[_TIMES[key]] = f"{value}s"
        elif key == "failureThreshold":
            found["failures"] = value
        elif key in ("exec", "httpGet", "tcpSocket") and not isinstance(value, Mapping):
            return None
        elif key == "exec" and set(value) == {"command"}:
            found["command"] = value["command"]
        elif key == "httpGet" and set(value) == {"path", "port"} and isinstance(value["port"], int):
            found["http"] = value
        elif key == "tcpSocket" and set(value) == {"port"} and isinstance(value["port"], int):
            found["tcp"] = value["port"]
        else:
            return None
    return found if {"command", "http", "tcp"} & set(found) else None
