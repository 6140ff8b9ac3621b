"""User text on its way through KFP.

A command passes Argo's substitution several times, then KFP's driver, the kubelet and KFP's launcher. Argo evaluates
every `{{…}}` it knows and offers no escape, so no literal `{{` may stand in the IR: the second brace is written as
`$(GPUFLOW_BRACE)`, which the kubelet replaces when the container starts, after Argo and the driver are done. The
launcher comes later still; what it would take for its own placeholder (`{{$}}`, `{{$.…}}`) a command cannot carry.

Values (of parameters, outputs and items) take the same way without any of this: the driver puts them into the pod's
args, whoever made them. There Argo reads `{{…}}` and the kubelet reads `$$` and `$(NAME)`. Those that are known now are
refused, those that are not are named in a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from gpuflow.spec.text import Ref
from gpuflow.targets.kubeflow.names import Channel, input_name, placeholder

BRACE = "GPUFLOW_BRACE"
_SAFE = f"$({BRACE})"
_DOLLARS = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_]*)\))")


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


def without_double_braces(text: str) -> str:
    """`text` with no `{{` in it, and no `{` at its end that a following placeholder would make one."""
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
    some, all in capitals.
    """
    if "{{" in value:
        return "{{, which Argo would evaluate"
    for found in _DOLLARS.finditer(value):
        if found[1] == "$":
            return "$$, which the kubelet turns into $"
        if found[2].isupper() or found[2] in variables():
            return f"{found[0]}, which the kubelet would replace"
    return None
