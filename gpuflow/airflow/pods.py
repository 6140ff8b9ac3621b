"""A pod as plain data, with references in it. No Kubernetes model is made before a task runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.airflow.masking import FilledPod, tell_masker
from gpuflow.airflow.references import Context, references, resolved
from gpuflow.airflow.run_facts import asks_attempt
from gpuflow.kubernetes.expansion import escaped


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
            return escaped(text, glued=True)

        pod = {"metadata": resolved(self.metadata, context, safe), "spec": resolved(self.spec, context, safe)}
        tell_masker(pod)
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

        Airflow cuts stored fields at 4,096 characters, so the whole pod would hide changes at its end.
        """
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
