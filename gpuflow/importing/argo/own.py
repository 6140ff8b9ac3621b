"""What gpuflow itself writes into compiled workflows: read back as what it was written for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuflow.importing.listing import Listing, Place
from gpuflow.importing.plain import maps, texts

BRACE = "GPUFLOW_BRACE"
RUNNER = "gpuflow-run"
OUTPUTS = "/gpuflow/outputs"
ATTEMPT = "=asInt(retries) + 1"
RETRIES = "asInt(lastRetry.exitCode) != 79"
"""A supervised step that is retried whatever ended it, unless the supervisor says that no attempt can help."""
_PAIRS = (
    ("'{'", "'$(GPUFLOW_BRACE)'"),
    ("'$'", "'$$'"),
    ("'%25'", "'%'"),
    ("'%7B'", "'{'"),
    ("'{'", "'%7B'"),
    ("'%'", "'%25'"),
)
_LIST = "sprig.replace('{' + '{', '{\\\\u007b', "
_ITEM = "(type(item) in ['map', 'array'] ? toJson(item) : string(item))"
_GUARD = re.compile(
    r"\((?P<ref>.+?) matches '.*?' \? (?P=ref) : sprig\.fail\('.* is not an? (?P<kind>\w+)'\)\)", re.DOTALL
)
_OPTION = re.compile(r"--([a-z-]+)(?:=(.*))?", re.DOTALL)
_OF_ENGINE = ("pipeline", "step", "run-id", "item", "engine", "outputs-dir", "timeout", "grace")
"""Options that follow from the rest of the step."""


def unwrapped(expression: str) -> tuple[str, str | None]:
    """The reference within an expression of ours, and the type that it is held to."""
    text, kind = expression.strip(), None
    while True:
        for old, new in _PAIRS:
            head = f"sprig.replace({old}, {new}, "
            if text.startswith(head) and text.endswith(")"):
                text = text[len(head) : -1]
                break
        else:
            if text.startswith(_LIST) and text.endswith(")"):
                text, kind = text[len(_LIST) : -1], "json"
            elif match := _GUARD.fullmatch(text):
                text, kind = match["ref"], match["kind"]
            else:
                return "item" if text == _ITEM else text, kind


def without_supervisor(
    main: Mapping[str, Any], spec: dict[str, Any], listing: Listing, place: Place
) -> tuple[Mapping[str, Any], dict[str, Any], dict[str, dict[str, Any]] | None]:
    """The container and the pod without gpuflow-run, and the outputs that it hands over; None: it has none."""
    words = texts(main.get("command"))
    if words[:1] != [RUNNER] or "--" not in words:
        return main, spec, None
    end = words.index("--")
    outputs: dict[str, dict[str, Any]] = {}
    for word in words[1:end]:
        match = _OPTION.fullmatch(str(word))
        name, value = (match[1], match[2] or "") if match else (str(word), "")
        if name == "output":
            declared, _, path = value.partition("=")
            title, _, kind = declared.partition(":")
            outputs[title] = {"type": kind or "string", **({"path": path} if path else {})}
        elif name not in _OF_ENGINE:
            hint = "import the rest, and write checkpoint, retry or the uri of an artifact in the step"
            listing.cannot(f"{RUNNER} --{name}", "it is not read back", place.of(main, "command"), hint)
    mounts = [each for each in maps(main.get("volumeMounts")) if each.get("mountPath") != OUTPUTS]
    scratch = [each.get("name") for each in maps(main.get("volumeMounts")) if each.get("mountPath") == OUTPUTS]
    rest = {key: value for key, value in main.items() if key != "volumeMounts"}
    volumes = [each for each in maps(spec.get("volumes")) if each.get("name") not in scratch]
    pod = {**spec, "volumes": volumes} if volumes else {key: value for key, value in spec.items() if key != "volumes"}
    own = {**rest, "command": words[end + 1 :], **({"volumeMounts": mounts} if mounts else {})}
    return own, pod, outputs
