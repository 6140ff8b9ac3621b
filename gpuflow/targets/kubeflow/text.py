"""User text on its way through KFP.

A command passes Argo's substitution several times, then KFP's driver, the kubelet and KFP's launcher. Argo evaluates
every `{{…}}` it knows and offers no escape, so no literal `{{` may stand in the IR: the second brace is written as
`$(GPUFLOW_BRACE)`, which the kubelet replaces when the container starts, after Argo and the driver are done. The
launcher comes later still; what it would take for its own placeholder (`{{$}}`, `{{$.…}}`) a command cannot carry.

Two kubelets read most text. KFP hands the driver its work as arguments of the driver's pod, so the kubelet that starts
that pod expands `$$` and `$(NAME)` in them, and the step's own kubelet does it again in what is left
(argocompiler/container.go and dag.go, the args of the templates system-container-driver and system-dag-driver):

| part of the IR | goes through | kubelets that expand it |
|---|---|---|
| container: command, args, values of variables | `--container`, then the step's args and env | both |
| container: image | `--container` | the driver's |
| Kubernetes settings: names, keys, paths, selectors, claims of volumes | `--kubernetes_config` | the driver's |
| tasks: conditions, cache keys | `--task` | the driver's |
| values: defaults, constants, items | `--runtime_config`, `--component`, `--task`, then the step's args | both |
| values: outputs of other steps | ML Metadata, then the step's args | the step's |
| labels and annotations of the pod, numbers of retries | parameters of Argo's templates | none |
| descriptions, display names | shown from the IR that was uploaded | none |

So a command is escaped for the step's kubelet where it is spelled, and `for_driver` escapes it, and all that only the
driver reads, once more on its way into the IR.

Values (of parameters, outputs and items) go the same way without any of this: people type them, conditions compare
them, and the driver puts them into the pod's args, whoever made them. There Argo reads `{{…}}` and the kubelets read
`$$` and `$(NAME)`. Those that are known now are refused, those that are not are named in a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from gpuflow.kubernetes.expansion import escaped
from gpuflow.spec.text import Ref
from gpuflow.targets.kubeflow.names import Channel, input_name, placeholder
from gpuflow.targets.tags import strings

BRACE = "GPUFLOW_BRACE"
_SAFE = f"$({BRACE})"
_DOLLARS = re.compile(r"\$(\$|\(([^)]*)\))")
_PROXY = ("http_proxy", "https_proxy", "no_proxy")
"""Variables of driver pods that are not in capitals, where the installation has a proxy."""


class KubeflowSpelling:
    """References as KFP's placeholders; remembers which ones were used."""

    def __init__(self, name_of: Callable[[Channel], str] = input_name) -> None:
        self.used: dict[Channel, None] = {}
        self._name_of = name_of

    def literal(self, text: str) -> str:
        return without_double_braces(text)

    def reference(self, ref: Ref) -> str:
        self.used[ref] = None
        return placeholder(self._name_of(ref))


def for_driver(text: str) -> str:
    """What the kubelet of a driver's pod turns into `text`, whichever variables that pod has."""
    return escaped(text)


def each_for_driver(data: Any) -> Any:
    """Plain data with every text in it, keys too, written `for_driver`."""
    if isinstance(data, str):
        return for_driver(data)
    if isinstance(data, dict):
        return {for_driver(key): each_for_driver(value) for key, value in data.items()}
    return [each_for_driver(item) for item in data] if isinstance(data, list) else data


def without_double_braces(text: str) -> str:
    """`text` with no `{{` in it, and no `{` at its end that a following placeholder would make one."""
    if "{" not in text:
        return text
    safe = text.replace("{{", "{" + _SAFE)
    if not safe.endswith("{"):
        return safe
    before = safe[:-1]
    # A lone $ stood safely before the brace; before $( it has to be doubled.
    lone = (len(before) - len(before.rstrip("$"))) % 2
    return before + "$" * lone + _SAFE


def placeholder_problems(words: list[str]) -> Iterator[tuple[str, str]]:
    """Words that KFP's launcher would read as a placeholder of its own, with the way out."""
    for mark in ("}}", "."):
        if any(f"{{{_SAFE}${mark}" in word for word in words):
            shown = f"{{{{${mark}"
            yield (
                f"kubeflow does not support the text {shown} in a command: its launcher reads it as a placeholder",
                "pass it in an environment variable, which the launcher does not change",
            )


def replaced(value: str, variables: Callable[[], Collection[str]]) -> str | None:
    """What a value holds that would not arrive, and who takes it. `variables`: the names the steps give theirs.

    The kubelet leaves `$(NAME)` alone where the container has no such variable; KFP, Kubernetes and its services add
    some, in capitals but for a proxy's.
    """
    if "{{" in value:
        return "{{, which Argo would evaluate"
    if "$$" in value:
        return "$$, which the kubelet turns into $"
    for found in _DOLLARS.finditer(value):
        if found[2].isupper() or found[2] in _PROXY or found[2] in variables():
            return f"{found[0]}, which the kubelet would replace"
    return None


def swallowed_settings(pod: dict[str, Any]) -> tuple[str, str] | None:
    """A setting that metadata of the pod takes along, with the way out.

    Metadata stands beside the settings in one argument of the driver, and nothing escapes it: Argo puts it on the pod
    as it is. An open `$(` in it makes the driver's kubelet take all up to the next `)` for a name, and leave it alone.
    """
    opens = next((text for _, text in strings(pod.get("metadata", {})) if "$(" in text), None)
    if opens is None:
        return None
    spec = {key: value for key, value in pod["spec"].items() if key != "containers"}
    main = {key: value for key, value in pod["spec"]["containers"][0].items() if key not in ("command", "args", "env")}
    taken = next((text for _, text in strings([spec, main]) if for_driver(text) != text), None)
    if taken is None:
        return None
    return (
        f"its labels or annotations hold {opens[:60]!r}, and KFP's driver could not tell where {taken[:60]!r} begins",
        "write one of the two without $",
    )
