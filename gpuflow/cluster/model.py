"""The cluster as its own manifests describe it, and where in a manifest a value stands.

Observed, never authored by gpuflow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from gpuflow.cluster.block_yaml import Block
from gpuflow.cluster.kinds import ALL, NAMESPACED, is_known_kind, kind_title
from gpuflow.core import yaml_tree
from gpuflow.core.errors import Where
from gpuflow.kubernetes.resources import BadField

Path = tuple[str | int, ...]
_ENDS = re.compile(r"[.\[:\s,]|$")
T = TypeVar("T")


def place(body: Mapping[str, Any], start: Where, path: Sequence[str | int], *, key: bool = False) -> Where:
    """The place of the value at `path` (or of its key), or of the nearest thing above it that is there."""
    tree: Any = body
    spot = None
    for depth, part in enumerate(path):
        spots: Any = None
        if isinstance(tree, yaml_tree.Map) and isinstance(part, str) and part in tree:
            wants_key = key and depth == len(path) - 1
            spots = (tree.key_at if wants_key else tree.value_at).get(part)
        elif isinstance(tree, yaml_tree.Seq) and isinstance(part, int) and 0 <= part < len(tree):
            spots = tree.item_at[part]
        else:
            break
        spot, tree = spots or spot, tree[part]
    return start if spot is None else Where(start.file, spot.line, spot.column)


def with_entry(tree: Mapping[str, Any], key: str, value: Any) -> Mapping[str, Any]:
    """The mapping with one entry set, everything else at its place."""
    if isinstance(tree, Block):
        same = Block(tree.spot)
        same.update(tree, **{key: value})
        return same
    if not isinstance(tree, yaml_tree.Map):
        return {**tree, key: value}
    copy = yaml_tree.Map(tree.spot)
    copy.update(tree)
    copy.file, copy.key_at, copy.value_at = tree.file, dict(tree.key_at), dict(tree.value_at)
    copy[key] = value
    copy.key_at.setdefault(key, tree.spot)
    copy.value_at.setdefault(key, tree.spot)
    return copy


def parts_of(body: Mapping[str, Any], field: str) -> Path:
    """The parts of a path such as `spec.limits[0].max[cpu]`, as far as it leads in the manifest."""
    first = _ENDS.split(field, maxsplit=1)[0]
    return (first, *_rest(body[first], field[len(first) :])) if first in body else ()


def _rest(tree: Any, text: str) -> Path:
    found: list[str | int] = []
    while text:
        if text[0] == "[":
            word, _, text = text[1:].partition("]")
            part = _index(tree, word)
        elif text[0] == ".":
            part = _longest_key(tree, text[1:])
            text = text[1 + len(str(part or "")) :]
        else:
            break
        if part is None:
            break
        found.append(part)
        tree = tree[part]
    return tuple(found)


def _index(tree: Any, word: str) -> str | int | None:
    """What stands in brackets: the number of an item, its name, or a key."""
    if isinstance(tree, Mapping):
        return word if word in tree else None
    if not isinstance(tree, list):
        return None
    if word.isdecimal():
        return int(word) if int(word) < len(tree) else None
    names = (index for index, item in enumerate(tree) if isinstance(item, Mapping) and item.get("name") == word)
    return next(names, None)


def _longest_key(tree: Any, text: str) -> str | None:
    """The longest key that the text begins with: keys may hold dots themselves."""
    keys = tree if isinstance(tree, Mapping) else ()
    fitting = [key for key in keys if isinstance(key, str) and text.startswith(key) and _ENDS.match(text, len(key))]
    return max(fitting, key=len, default=None)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object: what it says, and where that stands."""

    kind: str
    group: str
    name: str
    namespace: str | None
    body: Mapping[str, Any]
    where: Where
    is_new: bool = False
    """The files of a check bring it, and the snapshot does not show it: it says nothing of others of its kind."""

    @property
    def key(self) -> tuple[str, str, str | None, str]:
        """What objects have in common that are the same one. One that Kubernetes names itself is like no other."""
        name = self.name or ("" if self.kind == "Configuration" else f"/{self.where}")
        return self.kind, self.group, self.namespace, name

    @property
    def title(self) -> str:
        """Its kind; with the apiVersion when it is another thing than what gpuflow calls by that name."""
        return kind_title(self.kind, self._api_version)

    @property
    def is_known(self) -> bool:
        """Whether its kind, in its API group and version, is one that gpuflow knows."""
        return is_known_kind(self.kind, self._api_version)

    @property
    def _api_version(self) -> str:
        return str(self.body.get("apiVersion", self.group))

    def in_namespace(self, namespace: str) -> bool:
        """Whether it counts there. A manifest without a namespace is applied to the one in question."""
        return self.namespace is None or self.namespace == namespace

    def at(self, *path: str | int, key: bool = False) -> Where:
        """Where a value of it (or its key) stands; the nearest thing above when it is not there."""
        return place(self.body, self.where, path, key=key)

    def at_fault(self, refusal: ValueError) -> Where:
        """The place that a reader refused; the object as a whole where the refusal names no field."""
        return self.at(*parts_of(self.body, refusal.field)) if isinstance(refusal, BadField) else self.where


@dataclass(frozen=True)
class Cluster:
    """All objects of a snapshot, in the order they were read."""

    source: str
    objects: tuple[Manifest, ...]
    listed: frozenset[str] = frozenset()
    """Kinds that were listed in whole: none of them here means that there are none."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Kinds that the cluster has and would not show, each with the reason."""
    namespaces: tuple[str, ...] | None = None
    """Those whose own objects were listed, or `ALL`; None when that is not known."""
    labels: frozenset[str] | None = None
    """The keys of the labels that are shown of objects in other namespaces; None: all."""
    assumed: frozenset[str] = frozenset()
    """Kinds of which the author of the folder says that they let every pod pass, though none is shown."""
    given: tuple[Manifest, ...] = ()
    """What the files of a check bring, in their order; `objects` has each of them once."""
    found: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What functions that are marked with `once` found in it."""

    def of(self, kind: str, namespace: str | None = None) -> list[Manifest]:
        """The objects of a kind, in a namespace when one is given. Namesakes of other API groups are not among them."""
        found = self._by_kind.get(kind, ())
        return [item for item in found if namespace is None or item.in_namespace(namespace)]

    @cached_property
    def _by_kind(self) -> dict[str, list[Manifest]]:
        found: dict[str, list[Manifest]] = {}
        for item in self.objects:
            if item.is_known:
                found.setdefault(item.kind, []).append(item)
        return found

    def bodies(self, kind: str, namespace: str | None = None) -> list[Mapping[str, Any]] | None:
        """The plain manifests of a kind; None when the snapshot holds none and nobody looked: not known."""
        found = self.of(kind, namespace)
        is_known = kind in self.listed or any(not item.is_new for item in found)
        return [item.body for item in found] if is_known else None

    def knows(self, kind: str) -> bool:
        """Whether the snapshot says what there is of a kind: it shows some, or somebody looked and found none."""
        return kind in self.listed or any(not item.is_new for item in self._by_kind.get(kind, ()))

    def brought_to(self, namespaces: Collection[str]) -> tuple[Manifest, ...]:
        """What of the files counts in some namespaces: of namesakes the last."""
        homes = ((item, item.name if item.kind == "Namespace" else item.namespace) for item in self.given)
        return tuple({item.key: item for item, home in homes if home is None or home in namespaces}.values())

    def creates(self, namespace: str) -> bool:
        """Whether the files bring the namespace and the cluster has none of the name: nothing else is in it."""
        return "Namespace" in self.listed and namespace in (i.name for i in self.of("Namespace") if i.is_new)

    def kinds(self) -> list[str]:
        """Every kind there is, once; foreign ones with their apiVersion."""
        return list(dict.fromkeys(item.title for item in self.objects))

    def unread_by_reason(self) -> dict[str, list[str]]:
        """The kinds that could not be read, by the reason."""
        found: dict[str, list[str]] = {}
        for kind, reason in sorted(self.unread.items()):
            found.setdefault(reason, []).append(kind)
        return found

    def with_default_namespace(self, namespace: str) -> Cluster:
        """The cluster with every manifest that names no namespace, though its kind needs one, put into this one."""
        objects = tuple(_with_default_namespace(item, namespace) for item in self.objects)
        return self if objects == self.objects else replace(self, objects=objects)

    def shows(self, namespace: str) -> bool:
        """Whether its own objects were listed, as far as that is known."""
        return self.namespaces is None or ALL in self.namespaces or namespace in self.namespaces

    def seen_from(self, namespace: str) -> Cluster:
        """What is known of a namespace: where others were listed, none of a kind does not mean that it has none."""
        known = self.shows(namespace) or self.creates(namespace)
        return self if known else replace(self, listed=self.listed.difference(NAMESPACED))


def once(find: Callable[[Cluster], T]) -> Callable[[Cluster], T]:
    """A function that goes through a cluster once, however many checks ask. Nobody changes what it gives."""

    def find_once(cluster: Cluster) -> T:
        if find not in cluster.found:
            cluster.found[find] = find(cluster)
        return cluster.found[find]  # type: ignore[no-any-return]  # what `find` gave

    return find_once


def _with_default_namespace(item: Manifest, namespace: str) -> Manifest:
    if item.namespace is not None or item.kind not in NAMESPACED or not item.is_known:
        return item
    metadata = item.body.get("metadata")
    if not isinstance(metadata, Mapping):
        return item
    body = with_entry(item.body, "metadata", with_entry(metadata, "namespace", namespace))
    return replace(item, namespace=namespace, body=body)
