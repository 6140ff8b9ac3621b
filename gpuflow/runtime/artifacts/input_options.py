"""What `--input`, `--input-type` and `--input-digest` say: which paths the command reads, and where they come from."""

from __future__ import annotations

import json
import posixpath
import re

from gpuflow.runtime.artifacts.kubeflow_outputs import resolve_input
from gpuflow.runtime.base.options import BadOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuflow.runtime.base.options import Options

KINDS = ("file", "directory")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class Input:
    """One path and the parts that belong there: one, or with `fan_in` those of the items of a step, by number."""

    def __init__(self, path: str, parts: list[tuple[str, str]], *, fan_in: bool) -> None:
        self.path, self.parts, self.fan_in = path, parts, fan_in
        self.kind: str | None = None
        self.digest: str | None = None


def parse(options: Options) -> list[Input]:
    """The inputs in the order they were given; BadOption for what cannot be meant."""
    found: dict[str, Input] = {}
    for word in options.input:
        path, value = _pair(word, "input", "URI")
        if path in found:
            raise BadOption(f"--input {path} is given twice")
        uri, kind = resolve_input(value)
        found[path] = _input(path, uri)
        found[path].kind = kind
    for word in options.input_type:
        path, kind = _pair(word, "input-type", "file|directory")
        if kind not in KINDS:
            raise BadOption(f'--input-type {path}: "{kind}" is neither file nor directory')
        _require_input(found, path, "input-type").kind = kind
    for word in options.input_digest:
        path, digest = _pair(word, "input-digest", "sha256:HEX")
        if (match := _DIGEST.fullmatch(digest.lower())) is None:
            raise BadOption(f'--input-digest {path}: "{digest}" is not sha256: and 64 hex digits')
        if _require_input(found, path, "input-digest").fan_in:
            raise BadOption(f"--input-digest {path}: it is a list, and each of its parts has a digest of its own")
        found[path].digest = match.group(1)
    _check_not_nested(sorted(found))
    return list(found.values())


def _pair(word: str, option: str, value: str) -> tuple[str, str]:
    path, equals, text = word.partition("=")
    if not equals:
        raise BadOption(f'--{option} "{word}" is not PATH={value}')
    if not posixpath.isabs(path) or posixpath.normpath(path) in ("/", "//") or "\0" in path:
        raise BadOption(f'--{option} "{word}": "{path}" is no absolute path below /')
    if ".." in path.split("/"):
        raise BadOption(f'--{option} "{word}": write the path without ".."')
    return posixpath.normpath(path), text


def _input(path: str, value: str) -> Input:
    if not value.startswith("["):
        return Input(path, [(path, _uri(path, value))], fan_in=False)
    try:
        items = json.loads(value)
    except (ValueError, RecursionError):
        raise BadOption(f"--input {path}: {value[:80]!r} begins like a list, and is not one in JSON") from None
    parts = []
    for number, item in enumerate(items):
        # An item that was skipped left nothing; the others keep their numbers.
        if item is None or item == "":
            continue
        if not isinstance(item, str):
            raise BadOption(f"--input {path}: entry {number} of the list is {str(item)[:80]!r}, and not a URI or null")
        parts.append((f"{path}/{number}", _uri(path, item)))
    return Input(path, parts, fan_in=True)


def _uri(path: str, text: str) -> str:
    """As it is, when it can be one. What an engine did not fill in is not looked for on a disk."""
    scheme, found, rest = text.partition("://")
    whole = rest if found else text
    if (found and not (scheme and rest)) or (not found and not text.startswith("/")) or "\0" in text:
        hint = "" if text else ": the step it comes from gave none; was it skipped?"
        raise BadOption(f"--input {path}: {text[:200]!r} is neither a URI nor an absolute path{hint}")
    if ".." in whole.split("/"):
        raise BadOption(f'--input {path}: {text[:200]!r} has ".." in it; write the URI without')
    return text


def _require_input(found: dict[str, Input], path: str, option: str) -> Input:
    if path not in found:
        raise BadOption(f"--{option} {path}: there is no --input for that path")
    return found[path]


def _check_not_nested(paths: Sequence[str]) -> None:
    """One inside the other would be taken for foreign content of it."""
    for outer in paths:
        for inner in paths:
            if inner.startswith(f"{outer}/"):
                raise BadOption(f"--input {inner} lies inside of --input {outer}; give it a path of its own")
