"""The fields that an object may have and what each holds, by the OpenAPI schemas of Kubernetes and of the kinds' CRDs.

`schemas.json` has what strictness needs of them, written by `tools/schemas.py`; where the cluster's own CRDs are known,
these count instead. An unknown field is refused by kubectl, which asks the API server to be strict since 1.27, and is
dropped without a word where nobody asks for that. A value of the wrong type is refused everywhere. What Kubernetes
requires in kinds of its own is no matter of its decoder, and not looked for here.

Mirrors the decoder of k8s.io/apimachinery/pkg/runtime/serializer/json for Kubernetes' own kinds, and
k8s.io/apiextensions-apiserver/pkg/apiserver/schema (pruning, validation) for others; Kubernetes v1.36.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpuflow.cluster.kinds import nearest_word
from gpuflow.core.errors import did_you_mean
from gpuflow.formats.nodes import mapping, maps

FieldPath = tuple[str | int, ...]
DATA: Final = Path(__file__).with_name("schemas.json")
ANY: Final = "any"
TYPES: Final = {
    "text": "a text",
    "bool": "true or false",
    "int32": "a whole number of 32 bits",
    "int64": "a whole number",
    "number": "a number",
    "int-or-string": "a whole number or a text",
    "quantity": "a quantity",
}
"""What a field may hold beside maps and lists, and how a sentence says it."""
DEEPEST: Final = 5
"""So many levels below a place a field is looked for that stands in the wrong one."""


class Fault(NamedTuple):
    """What is wrong at one place of a document."""

    code: str
    path: FieldPath
    takes: str = ""
    """What the place takes."""
    hint: str | None = None


class Schema(NamedTuple):
    """What the objects of one kind and version hold."""

    nodes: list[Any]
    """A word of `TYPES`, or a map: `fields` (with `required`, and `open` to others), `list`, `map` or `enum`. What
    others hold is a place in this list."""
    root: int
    source: str
    """Whose schema it is: Kubernetes 1.36."""
    is_native: bool = False
    """Kubernetes' own decoder makes something empty of null; a CRD takes null as a value of a field only."""
    is_patch: bool = False
    """Nothing is required, and there may be directives."""

    def faults(self, value: Any, at: int | None = None, path: FieldPath = ()) -> Iterator[Fault]:
        """What is wrong with a document."""
        node = self.nodes[self.root if at is None else at]
        if value is None or node == ANY:
            return
        if isinstance(node, str):
            if not _holds(node, value):
                yield Fault("GF816", path, TYPES[node])
        elif "enum" in node:
            if not isinstance(value, str):
                yield Fault("GF816", path, "a text")
            elif value not in node["enum"]:
                yield Fault("GF818", path, " or ".join(node["enum"]), did_you_mean(value, node["enum"]))
        elif "list" in node:
            if not isinstance(value, list):
                yield Fault("GF816", path, "a list")
                return
            for index, each in enumerate(value):
                if each is None and not self.is_native and self.nodes[node["list"]] != ANY:
                    yield Fault("GF816", (*path, index), "a value")
                yield from self.faults(each, node["list"], (*path, index))
        elif not isinstance(value, Mapping):
            yield Fault("GF816", path, "a map")
        elif "map" in node:
            for key, each in value.items():
                yield from self.faults(each, node["map"], (*path, key))
        else:
            fields = node["fields"]
            for key, each in value.items():
                if key in fields:
                    yield from self.faults(each, fields[key], (*path, key))
                elif not node.get("open") and not (self.is_patch and key.startswith("$")):
                    yield Fault("GF815", (*path, key))
            for key in () if self.is_patch else node.get("required", ()):
                if value.get(key) is None:
                    yield Fault("GF817", (*path, key))

    def meant(self, unknown: FieldPath) -> str | None:
        """What was probably meant by an unknown field: one spelled alike, or the same one at another level."""
        path, key = unknown[:-1], str(unknown[-1])
        *outer, (_, here) = [(path[:depth], at) for depth, at in enumerate(self._nodes_on(path))]
        fields: Mapping[str, int] = self.nodes[here]["fields"]
        if nearest_word(key, fields):
            return did_you_mean(key, fields)
        above = [place for place, at in reversed(outer) if key in mapping(self.nodes[at]).get("fields", ())]
        if self.nodes is load_shipped().nodes:
            below, anywhere = ((start, _places_below(at).get(key)) for start, at in ((path, here), ((), self.root)))
            above = [(*start, *found) for start, found in (below,) if found is not None] + above
            above += [found for _, found in (anywhere,) if found is not None]
        if above:
            return f'"{key}" is a field of {path_text(above[0]) or "the object itself"}'
        return did_you_mean(key, fields)

    def _nodes_on(self, path: FieldPath) -> Iterator[int]:
        at = self.root
        yield at
        for part in path:
            node = self.nodes[at]
            at = node["list"] if "list" in node else node["map"] if "map" in node else node["fields"][part]
            yield at

    def at(self, *path: str | int) -> Schema:
        """The schema of what stands at a place."""
        *_, last = self._nodes_on(path)
        return self._replace(root=last)


@lru_cache(maxsize=64)
def _places_below(at: int) -> dict[str, FieldPath]:
    """By the names of fields, the nearest place below one of the shipped nodes that has such a field."""
    nodes = load_shipped().nodes
    found: dict[str, FieldPath] = {}
    level: list[tuple[FieldPath, int]] = [((), at)]
    for _ in range(DEEPEST):
        inner: list[tuple[FieldPath, int]] = []
        for place, node in ((place, mapping(nodes[each])) for place, each in level):
            inner += [((*place, name), field) for name, field in node.get("fields", {}).items()]
            inner += [((*place, 0), node["list"])] if "list" in node else []
        for place, each in inner:
            for name in mapping(nodes[each]).get("fields", ()):
                found.setdefault(name, place)
        level = inner
    return found


def path_text(path: FieldPath) -> str:
    """`spec.containers[0].image`"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _holds(word: str, value: object) -> bool:
    """Whether a value is what the decoder takes for such a field."""
    if isinstance(value, str):
        return word in ("text", "quantity", "int-or-string")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return word == "bool" and isinstance(value, bool)
    bits = {"int32": 31, "int64": 63, "int-or-string": 63}.get(word, 0)
    return word in ("quantity", "number") or (
        (isinstance(value, int) or value.is_integer()) and -(2**bits) <= value < 2**bits != 1
    )


class Definitions:
    """Schemas as nodes, each of which stands once."""

    def __init__(self, nodes: Iterable[Any] = ()) -> None:
        self.nodes = list(nodes)
        self._places = {_key(each): place for place, each in enumerate(self.nodes)}

    def put(self, node: Any) -> int:
        place = self._places.setdefault(_key(node), len(self.nodes))
        if place == len(self.nodes):
            self.nodes.append(node)
        return place

    def add(self, schema: Mapping[str, Any], metadata: int | None = None) -> int:
        """A structural schema. `metadata`: that of objects, which CRDs leave out."""
        kind, is_open = schema.get("type"), bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        if schema.get("format") == "quantity":
            return self.put("quantity")
        if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
            return self.put("int-or-string")
        if kind == "array":
            return self.put({"list": self.add(mapping(schema.get("items")), metadata)})
        if kind == "object":
            inner = schema.get("additionalProperties")
            if isinstance(inner, Mapping):
                return self.put({"map": self.add(inner, metadata)})
            written = mapping(schema.get("properties"))
            fields = {name: self.add(mapping(each), metadata) for name, each in written.items()}
            if schema.get("x-kubernetes-embedded-resource") and metadata is not None:
                text = self.put("text")
                fields |= {"apiVersion": text, "kind": text, "metadata": metadata}
            node: dict[str, Any] = {"fields": dict(sorted(fields.items()))}
            # What is missing and has a default is filled in before anything is required.
            if needed := sorted(
                name for name in schema.get("required") or () if "default" not in mapping(written.get(name))
            ):
                node["required"] = needed
            if is_open or inner is True:
                node["open"] = True
            return self.put(node)
        words = schema.get("enum")
        if kind == "string" and words and all(isinstance(each, str) for each in words):
            return self.put({"enum": sorted(words)})
        bits = "int32" if schema.get("format") == "int32" else "int64"
        return self.put({"string": "text", "boolean": "bool", "number": "number", "integer": bits}.get(str(kind), ANY))

    def add_object(self, schema: Mapping[str, Any], metadata: int) -> int:
        """That of a whole object: what the API server itself knows of it stands in no CRD; its status is not ours."""
        whole = self.nodes[self.add(schema, metadata)]
        if not isinstance(whole, Mapping) or "fields" not in whole:
            return self.put(ANY)
        text, fields = self.put("text"), {"status": self.put(ANY)} if "status" in whole["fields"] else {}
        fields = {**whole["fields"], **fields, "apiVersion": text, "kind": text, "metadata": metadata}
        required = [name for name in whole.get("required", ()) if name != "status"]
        return self.put(
            {**whole, "fields": dict(sorted(fields.items())), **({"required": required} if required else {})}
        )


def _key(node: Any) -> str:
    return json.dumps(node, sort_keys=True)


class Shipped(NamedTuple):
    """What `schemas.json` holds."""

    nodes: list[Any]
    metadata: int
    sources: list[str]
    kinds: Mapping[str, list[int]]
    """By apiVersion and kind: the root, and the source."""


@cache
def load_shipped() -> Shipped:
    data = json.loads(DATA.read_bytes())
    titles = [f"{each['name']} {each['version']}" for each in data["sources"]]
    return Shipped(data["nodes"], data["metadata"], titles, data["kinds"])


def versions_of(group: str, kind: str) -> list[str]:
    """The versions of a kind, as an apiVersion has them, of which there is a schema."""
    named = (each.rpartition(" ") for each in load_shipped().kinds)
    return [version for version, _, name in named if name == kind and version.rpartition("/")[0] == group]


def schema_of(version: str, kind: str, own: Iterable[Mapping[str, Any]] = ()) -> Schema | None:
    """The schema of a kind. `own`: the cluster's CRDs, which count before those that are shipped."""
    known = load_shipped()
    group, _, name = version.rpartition("/")
    for each in own:
        spec = mapping(each.get("spec"))
        if (spec.get("group"), mapping(spec.get("names")).get("kind")) != (group, kind):
            continue
        for one in maps(spec.get("versions")):
            structure = mapping(one.get("schema")).get("openAPIV3Schema")
            if one.get("name") == name and isinstance(structure, Mapping):
                definitions = Definitions(known.nodes)
                root = definitions.add_object(structure, known.metadata)
                return Schema(definitions.nodes, root, f"the cluster's {kind}")
        return None
    if (found := known.kinds.get(f"{version} {kind}")) is None:
        return None
    return Schema(known.nodes, found[0], known.sources[found[1]], is_native=found[1] == 0)
