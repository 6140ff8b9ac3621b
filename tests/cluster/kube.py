"""A thin kubectl: plain manifests in, plain manifests out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from .waiting import until

Manifest = Mapping[str, Any]


class KubeError(RuntimeError):
    """kubectl refused; the message is what the API server or kubectl said."""


@dataclass(frozen=True)
class Kube:
    """How to reach one cluster, and the namespace meant when none is named."""

    kubeconfig: Path
    program: str = "kubectl"
    prefix: tuple[str, ...] = ()
    namespace: str = "default"
    cache: Path | None = None

    def within(self, namespace: str) -> Kube:
        return replace(self, namespace=namespace)

    def __call__(self, *words: str, given: str | None = None, timeout: float = 60.0) -> str:
        """Run kubectl and return what it prints; raise with its own words when it fails."""
        options = [f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}"]
        if self.cache:
            options.append(f"--cache-dir={self.cache}")
        done = subprocess.run(
            [*self.prefix, self.program, *options, *words],
            input=given,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            raise KubeError(f"kubectl {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def answers(self) -> bool:
        try:
            return self("get", "--raw", "/readyz", timeout=10).strip() == "ok"
        except (KubeError, subprocess.TimeoutExpired):
            return False

    def create(self, *objects: Manifest) -> None:
        self("create", "-f", "-", given=_listed(objects))

    def apply(self, *objects: Manifest) -> None:
        # Server-side: large custom resource definitions do not fit the annotation of the client-side kind.
        self("apply", "--server-side", "--force-conflicts", "-f", "-", given=_listed(objects))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        text = self("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text else None

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        words = ["get", kind, "-o", "json", *([f"--selector={selector}"] if selector else [])]
        items: list[dict[str, Any]] = json.loads(self(*words))["items"]
        return items

    def patch_status(self, kind: str, name: str, status: Manifest) -> None:
        body = json.dumps({"status": status})
        self("patch", kind, name, "--subresource=status", "--type=merge", f"--patch={body}")

    def await_object(
        self, kind: str, name: str, what: str, holds: Callable[[dict[str, Any]], bool], timeout: float = 60.0
    ) -> dict[str, Any]:
        """Wait until the object exists and `holds`; a failure shows its status and the events about it."""

        def look() -> dict[str, Any] | None:
            found = self.get(kind, name)
            return found if found is not None and holds(found) else None

        def words() -> str:
            found = self.get(kind, name)
            events = self("get", "events", f"--field-selector=involvedObject.name={name}")
            return json.dumps(found.get("status") if found else None, indent=1) + "\n" + events

        found = until(f"{kind} {name} {what}", look, timeout=timeout, every=0.3, otherwise=words)
        assert found is not None
        return found

    def await_pod(self, name: str, phase: str, timeout: float = 60.0) -> dict[str, Any]:
        return self.await_object("pod", name, phase, lambda pod: pod["status"].get("phase") == phase, timeout)

    def await_definitions(self) -> None:
        """Wait until every custom resource definition is served."""

        def served(item: Manifest) -> bool:
            conditions = (item.get("status") or {}).get("conditions") or ()
            return any(row["type"] == "Established" and row["status"] == "True" for row in conditions)

        until("the definitions to be served", lambda: all(map(served, self.list("crd"))))

    def await_gone(self, kind: str, name: str, timeout: float = 60.0) -> None:
        until(f"{kind} {name} to be gone", lambda: self.get(kind, name) is None, timeout=timeout)


def _listed(objects: tuple[Manifest, ...]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def documents(place: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file, or in all files of a folder."""
    for path in sorted(place.glob("*.yaml")) if place.is_dir() else [place]:
        yield from (document for document in yaml.safe_load_all(path.read_text()) if document)
