"""What the kubelet does to command, args and env before a container starts: `$(NAME)` becomes a value."""

from __future__ import annotations

import re
from collections.abc import Mapping

SPELLED = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expanded(text: str, env: Mapping[str, str]) -> str:
    """`$$` is one dollar sign; `$(NAME)` is the variable, or stays as it is when there is none of that name."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return env.get(found[1], found[0])

    return SPELLED.sub(value, text)


def environment(entries: list[dict[str, str]]) -> dict[str, str]:
    """The variables of a container; each may use those before it."""
    env: dict[str, str] = {}
    for entry in entries:
        env[entry["name"]] = expanded(entry.get("value", ""), env)
    return env
