"""Mutexes and semaphores: how many of what holds one run at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.readers.argo.parameters import TAG, Scope
from gpuflow.readers.argo.removed_fields import SYNCHRONIZATION, Release, is_read
from gpuflow.readers.argo.values import listing, mapping, number_of, text_of
from gpuflow.readers.frame import Library

Held = tuple[str, int | None, int | None, int | None]


def locks_of(
    tree: Mapping[str, Any], scope: Scope, library: Library, release: Release | None
) -> Iterator[tuple[str, int | None]]:
    """The locks of a template or workflow, each with how many may hold it; None when that is not known.

    `release`: the site's Argo. Words that it does not have lock nothing.
    """
    written = mapping(tree.get("synchronization"))
    one = {field: written.get(field) for field, removed in SYNCHRONIZATION.items() if is_read(removed, release)}
    for mutex in [one.get("mutex"), *listing(written.get("mutexes"))]:
        if not isinstance(mutex, Mapping):
            continue
        name, missing = scope.filled(text_of(mutex.get("name")) or "")
        yield f"mutex {name}", 1 if _is_one(name, bool(missing)) else None
    for semaphore in [one.get("semaphore"), *listing(written.get("semaphores"))]:
        if not isinstance(semaphore, Mapping):
            continue
        source = mapping(semaphore.get("configMapKeyRef"))
        name, missing = scope.filled(text_of(source.get("name")) or "")
        key, more = scope.filled(text_of(source.get("key")) or "")
        if not source or not _is_one(name, bool(missing)) or not _is_one(key, bool(more)):
            yield "a semaphore", None
            continue
        found = library.find("ConfigMap", name)
        limit = None if found is None else number_of(mapping(found.tree.get("data")).get(key))
        yield f"semaphore {key} of ConfigMap {name}", limit if limit is not None and limit > 0 else None


def _is_one(name: str, is_open: bool) -> bool:
    """Whether all that hold a lock of this name hold the same: what is not known of it is one for the whole run."""
    return not is_open or all(each.strip().startswith("workflow.") for each in TAG.findall(name))


def bound_by(held: list[Held]) -> Iterator[str]:
    """Why fewer may run at once than the graph says: one sentence for each lock of which that is so."""
    by_lock: dict[str, list[Held]] = {}
    for each in held:
        by_lock.setdefault(each[0], []).append(each)
    for lock, uses in by_lock.items():
        limit = uses[0][1]
        counts = [None if count is None or outer is None else count * outer for _, _, count, outer in uses]
        total = None if None in counts else sum(count or 0 for count in counts)
        if total is not None and total <= (limit or 1):
            continue
        alone = len(uses) == 1 and uses[0][3] == 1
        if limit is None or not alone:
            yield f"{lock} may let fewer run at once"
