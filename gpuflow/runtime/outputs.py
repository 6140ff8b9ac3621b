"""What a step leaves behind: written in one way, put where each engine looks.

The program writes `$GPUFLOW_OUTPUTS/<name>`, or the path the step gives. A value is the text of that file without one
last newline, on every engine: Argo cuts it itself, KFP and Airflow do not.
"""

from __future__ import annotations

import json
import os

from gpuflow.runtime.options import OUTPUT_TYPES, BadOption
from gpuflow.runtime.store import StorageError, open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

XCOM = "/airflow/xcom/return.json"
ARTIFACTS = ("file", "directory")


class BadOutput(Exception):
    """The program ended well but its outputs are not there, or not what they should be."""


class Output:
    """One output: its name, its type, and where the program writes it when not in the usual place."""

    def __init__(self, name: str, kind: str, path: str | None) -> None:
        self.name, self.kind, self.path = name, kind, path


def parse(words: Sequence[str]) -> list[Output]:
    """`NAME[:TYPE][=PATH]` each."""
    outputs = []
    for word in words:
        head, _, path = word.partition("=")
        name, _, kind = head.partition(":")
        if not name or "/" in name or name.startswith("."):
            raise BadOption(f'--output "{word}": "{name}" cannot name an output')
        if (kind or "string") not in OUTPUT_TYPES:
            raise BadOption(f'--output "{word}": "{kind}" is not one of {", ".join(OUTPUT_TYPES)}')
        outputs.append(Output(name, kind or "string", path or None))
    return outputs


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` each."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise BadOption(f'--{option} "{word}" is not NAME={"URI" if option == "artifact" else "PATH"}')
        found[name] = value
    return found


def collect(outputs: Sequence[Output], folder: str, artifacts: Mapping[str, str]) -> dict[str, Any]:
    """What the program wrote, checked: values as text with a hash; artifacts uploaded, with their URI."""
    import hashlib

    marker = {}
    for output in outputs:
        path = output.path or os.path.join(folder, output.name)
        if not os.path.lexists(path):
            raise BadOutput(f'the output "{output.name}" was not written: there is no {path}')
        if output.kind in ARTIFACTS:
            marker[output.name] = _keep_artifact(output, path, artifacts.get(output.name))
            continue
        try:
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read()
        except (OSError, ValueError) as refusal:
            raise BadOutput(f'the output "{output.name}" cannot be read as text: {refusal}') from None
        text = text[:-1] if text.endswith("\n") else text
        typed(output, text)
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        marker[output.name] = {"type": output.kind, "value": text, "sha256": sha256}
    return marker


def deliver(marker: Mapping[str, Any], engine: str, folder: str, places: Mapping[str, str], xcom: str = XCOM) -> None:
    """Put the outputs where the engine looks. Works from the success marker alone, so that it can be done again."""
    values = {name: output["value"] for name, output in marker.items() if "value" in output}
    uris = {name: output["uri"] for name, output in marker.items() if output.get("uri")}
    for name, text in values.items():
        _write(os.path.join(folder, name), text)
    for name, uri in uris.items():
        _write(os.path.join(folder, f"{name}.uri"), uri)  # beside the artifact, which may lie under its name
    for name, place in places.items():
        if name in values or name in uris:
            _write(place, values[name] if name in values else uris[name])
    if engine == "airflow":
        kinds = {name: typed(Output(name, marker[name]["type"], None), text) for name, text in values.items()}
        _write(xcom, json.dumps(kinds, sort_keys=True, ensure_ascii=False))


def typed(output: Output, text: str) -> Any:
    """The value a text stands for, or BadOutput."""
    try:
        if output.kind == "string":
            return text
        if output.kind == "int":
            return int(text.strip())
        if output.kind == "float":
            return float(text.strip())
        value = json.loads(text.strip().lower() if output.kind == "bool" else text)
        if output.kind == "bool" and not isinstance(value, bool):
            raise ValueError
        return value
    except ValueError:
        raise BadOutput(f'the output "{output.name}" is not of type {output.kind}: {text[:80]!r}') from None


def _keep_artifact(output: Output, path: str, uri: str | None) -> dict[str, Any]:
    if os.path.isdir(path) != (output.kind == "directory"):
        raise BadOutput(f'the output "{output.name}" should be a {output.kind}, and {path} is not')
    import hashlib

    whole, count = hashlib.sha256(), 0
    store = open_store(uri) if uri else None
    for relative, file in _files(path):
        sha256, size = _hash(file)
        whole.update(f"{relative}\0{sha256}\n".encode())
        count += size
        if store is not None:
            store.put(relative, _chunks(file), size)
            if dict(store.names(relative)).get(relative, size) != size:
                raise StorageError(f"{uri}/{relative} did not arrive whole")
    facts: dict[str, Any] = {"type": output.kind, "sha256": whole.hexdigest(), "bytes": count}
    return {**facts, "uri": uri} if uri else facts


def _files(path: str) -> Iterator[tuple[str, str]]:
    if not os.path.isdir(path):
        yield "", path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = os.path.join(folder, name)
            yield os.path.relpath(file, path).replace(os.sep, "/"), file


def _hash(path: str) -> tuple[str, int]:
    import hashlib

    hashed, size = hashlib.sha256(), 0
    for data in _chunks(path):
        hashed.update(data)
        size += len(data)
    return hashed.hexdigest(), size


def _chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        while True:
            data = file.read(1 << 20)
            if not data:
                return
            yield data


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
