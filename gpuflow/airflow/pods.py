"""A pod as plain data, with references in it. No Kubernetes model is made before a task runs.

Airflow must not show secrets that stand in plain text in a pod. Its masker looks five levels deep, and a variable's
value lies deeper in a pod. So what is stored for the UI is masked here; the masker learns the values for the logs.
"""

from __future__ import annotations

import hashlib
import json
from collections import UserDict
from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.airflow.references import Context, asks_attempt, references, resolve_references
from gpuflow.core.secret_text import is_secret_name, is_secret_value, passwords_in, tokens_in
from gpuflow.kubernetes.expansion import escape

MASK = "***"


class FilledPod(UserDict[str, Any]):
    """A pod with every reference filled in. Airflow stores what `serialize` gives, not the pod itself."""

    again: Any = None
    """The pod with its references, where one of them is known only when the pod is made."""

    def serialize(self) -> dict[str, Any]:
        """The pod as the UI may show it."""
        masked: dict[str, Any] = _mask_secrets(self.data)
        return masked


def register_secrets(pod: Any) -> None:
    """Airflow replaces these texts in the task's log."""
    if found := sorted(set(_secrets(pod))):
        from airflow.sdk.log import mask_secret

        for secret in found:
            mask_secret(secret)


def _mask_secrets(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: MASK if key == "value" and _is_secret(tree) else _mask_secrets(part) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return [_mask_secrets(part) for part in tree]
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


class Pod:
    """The pod of one step. Airflow renders no templates in it; `resolve` fills the references in when the task runs.

    :param metadata: labels and annotations.
    :param spec: the pod's spec as in a manifest; its first container is called `main`.
    """

    __slots__ = ("metadata", "spec")

    def __init__(self, metadata: Mapping[str, Any] | None = None, *, spec: Mapping[str, Any]) -> None:
        self.metadata, self.spec = metadata or {}, spec

    def resolve(self, context: Context) -> FilledPod:
        """The manifest, every reference replaced by its value in this run."""

        def safe(text: str) -> str:
            return escape(text, glued=True)

        pod = {
            "metadata": resolve_references(self.metadata, context, safe),
            "spec": resolve_references(self.spec, context, safe),
        }
        register_secrets(pod)
        filled = FilledPod(pod)
        if asks_attempt([self.metadata, self.spec]):
            filled.again = self
        return filled

    def iter_references(self) -> Iterator[tuple[Any, str]]:
        """Airflow's own expressions in the pod, from which it derives dependencies."""
        for reference in references({"metadata": self.metadata, "spec": self.spec}):
            if hasattr(reference, "iter_references"):
                yield from reference.iter_references()

    def serialize(self) -> dict[str, Any]:
        """What Airflow stores: enough to recognize the pod, and a digest so that any change makes a new DAG version.
        Airflow cuts stored fields at 4,096 characters, so the whole pod would hide changes at its end."""
        main = self.spec["containers"][0]
        whole = json.dumps([self.metadata, self.spec], sort_keys=True, default=repr)
        digest = hashlib.sha256(whole.encode()).hexdigest()
        return {"image": main.get("image"), "resources": main.get("resources", {}), "sha256": digest}

    def __repr__(self) -> str:
        # Airflow stores this text of a mapped task's pod: the order in which its labels were put together is no change.
        metadata = dict(self.metadata)
        if "labels" in metadata:
            metadata["labels"] = dict(sorted(metadata["labels"].items()))
        return f"Pod({metadata!r}, spec={self.spec!r})"
