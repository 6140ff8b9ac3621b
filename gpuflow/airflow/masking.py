"""What Airflow must not show: secrets in plain text in a pod.

Airflow's masker looks five levels deep, and a variable's value lies deeper in a pod. So what is stored for the UI is
masked here; the masker learns the values for the logs.
"""

from __future__ import annotations

from collections import UserDict
from typing import Any

from gpuflow.secret_text import is_secret_name, is_secret_value, passwords_in, tokens_in

MASK = "***"


class FilledPod(UserDict[str, Any]):
    """A pod with every reference filled in. Airflow stores what `serialize` gives, not the pod itself."""

    again: Any = None
    """The pod with its references, where one of them is known only when the pod is made."""

    def serialize(self) -> dict[str, Any]:
        """The pod as the UI may show it."""
        masked: dict[str, Any] = _masked(self.data)
        return masked


def tell_masker(pod: Any) -> None:
    """Airflow replaces these texts in the task's log."""
    found = sorted(set(_secrets(pod)))
    if found:
        from airflow.sdk.log import mask_secret

        for secret in found:
            mask_secret(secret)


def _masked(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: MASK if key == "value" and _is_secret(tree) else _masked(part) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return [_masked(part) for part in tree]
    if isinstance(tree, str):
        for password in passwords_in(tree):
            tree = tree.replace(f":{password}@", f":{MASK}@")
        for token in tokens_in(tree):
            tree = tree.replace(token, MASK)
    return tree


def _secrets(tree: Any) -> Any:
    if isinstance(tree, dict):
        if _is_secret(tree):
            yield tree["value"]
        for part in tree.values():
            yield from _secrets(part)
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from _secrets(part)
    elif isinstance(tree, str):
        yield from passwords_in(tree)
        yield from tokens_in(tree)


def _is_secret(entry: dict[str, Any]) -> bool:
    """Whether this is a variable of a container that holds a secret."""
    name, value = entry.get("name"), entry.get("value")
    return isinstance(name, str) and isinstance(value, str) and is_secret_name(name) and is_secret_value(value)
