"""What Argo's own substitution, and the kubelet after it, make of an artifact: asked of both, and compared.

The judge of the artifact sees what is written. This one sees what a program would be started with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from proofs.trust.compiling import TWINS
from proofs.trust.judging import Injected
from tests.differential.oracle import Oracle, OracleUnavailable

Path = tuple[str, ...]
GIVEN = "7"
"""What outputs of earlier steps and parameters without a default hold."""
SECRETS = {"DB_PASSWORD": "hunter2", "PATH": "/bin", "HOME": "/root", "UNSET_BY_US": "x"}
"""Variables that a container may have beside its own; expanding one into an argument gives it away."""


class ArgoItself:
    """A running oracle; None of it where the program is not built and cannot be."""

    def __init__(self) -> None:
        self.asked = 0
        self.ended = 0
        """Pods that Argo starts for the twin and not for the text: it ends such a run and says so."""
        try:
            self._oracle: Oracle | None = Oracle("argo", "substitution")
            self.missing = ""
        except OracleUnavailable as reason:
            self._oracle, self.missing = None, str(reason)

    def close(self) -> None:
        if self._oracle is not None:
            self._oracle.close()

    def judge(self, text: str, made: str, twin: str) -> None:
        """Raise `Injected` when a program would be started with anything but the twin's words and the text in them."""
        if self._oracle is None:
            return
        ours, theirs = _asked(made), _asked(twin)
        if len(ours) != len(theirs):
            raise Injected(f"{len(ours)} ways to a pod, its twin has {len(theirs)}")
        answers = self._oracle.ask([*ours, *theirs])
        for here, there in zip(answers[: len(ours)], answers[len(ours) :], strict=True):
            self.asked += 1
            if "pods" not in there:
                continue
            if "pods" not in here:
                self.ended += 1
                continue
            _compare(text, here["pods"], there["pods"])


def _asked(text: str) -> list[dict[str, Any]]:
    manifest = yaml.safe_load(text)
    manifest["metadata"] = {"name": "wf", "namespace": "ns", "uid": "0-1"}
    spec = manifest["spec"]
    templates = {each["name"]: each for each in spec["templates"]}
    given = {each["name"]: GIVEN for each in spec.get("arguments", {}).get("parameters", []) if "value" not in each}
    scope = dict(_outputs(templates))
    ways = _ways(templates, spec["entrypoint"])
    return [{"workflow": manifest, "parameters": given, "path": list(way), "scope": scope} for way in ways]


def _ways(templates: dict[str, Any], name: str) -> Iterator[Path]:
    for task in templates[name].get("dag", {}).get("tasks", []):
        inner = templates[task["template"]]
        if "container" in inner:
            yield (task["name"],)
        elif "dag" in inner:
            yield from ((task["name"], *way) for way in _ways(templates, task["template"]))


def _outputs(templates: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for template in templates.values():
        for task in template.get("dag", {}).get("tasks", []):
            for output in templates[task["template"]].get("outputs", {}).get("parameters", []):
                yield f"tasks.{task['name']}.outputs.parameters.{output['name']}", GIVEN


def _compare(text: str, ours: list[Any], twins: list[Any]) -> None:
    if len(ours) != len(twins):
        raise Injected(f"Argo makes {len(ours)} pods, for its twin {len(twins)}")
    for here, there in zip(ours, twins, strict=True):
        words, wanted = _started(here["container"]), _started(there["container"])
        if words != [word.replace(TWINS[0], text) for word in wanted]:
            raise Injected(f"a program would be started with {words!r:.400}, its twin with {wanted!r:.300}")


def _started(container: dict[str, Any]) -> list[str]:
    """The words and the variables that the program gets."""
    env = dict(SECRETS)
    own: dict[str, str] = {}
    for entry in container.get("env", []):
        own[entry["name"]] = env[entry["name"]] = kubelet(entry.get("value", ""), env)
    words = [kubelet(word, env) for word in (*container.get("command", []), *container.get("args", []))]
    return [*words, *(f"{name}={value}" for name, value in own.items() if name != "GPUFLOW_BRACE")]


_EXPANSION = re.compile(r"\$(?:(\$)|\(([^)]*)\)|(?s:.))")


def kubelet(text: str, variables: dict[str, str]) -> str:
    """Kubernetes' own rule: `$$` is `$`, `$(NAME)` is replaced when it is known, everything else stays."""
    return _EXPANSION.sub(lambda found: "$" if found[1] else variables.get(found[2] or "", found[0]), text)
