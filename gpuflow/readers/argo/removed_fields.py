"""Fields that Argo had once: from which version on they are gone, and what is written instead.

Compared by api/jsonschema of v3.6.0, v3.7.0, v4.0.0 and v4.1.2. From the version that has no such field on, the full
CRDs drop it or refuse the object and the controller never sees it. Where the site does not say which Argo runs, the
field is taken as gone: it can only hold something back, so that is the worse of the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.core.errors import Finding, Where
from gpuflow.formats.documents import Document
from gpuflow.formats.nodes import as_list, as_plain, mapping

Release = tuple[int, int]
WhereOf = Callable[..., Where]
MAX_SHOWN: Final = 160


class RemovedField(NamedTuple):
    """One field, with the version that has it no more."""

    since: Release
    instead: str
    takes_list: bool = True
    """What replaces it holds a list of what it held."""


SYNCHRONIZATION: Final = {"mutex": RemovedField((4, 0), "mutexes"), "semaphore": RemovedField((4, 0), "semaphores")}
SCHEDULE: Final = RemovedField((4, 0), "schedules")
OF_WORKFLOW: Final = {"podPriority": RemovedField((3, 7), "podPriorityClassName", takes_list=False)}
OF_TEMPLATE: Final = {"priority": RemovedField((3, 7), "priorityClassName", takes_list=False)}


def is_read(removed: RemovedField, release: Release | None) -> bool:
    """Whether the site's Argo surely has the field."""
    return release is not None and release < removed.since


def removed_in_template(
    name: str, tree: Mapping[str, Any], where: WhereOf, release: Release | None
) -> Iterator[Finding]:
    """Those of a template. `where`: the place of one of its fields."""
    yield from _removed_findings(f"template {name}", tree, OF_TEMPLATE, where, release)
    yield from _removed_locks(f"template {name}", tree, where, release)


def removed_in_workflow(
    document: Document, tree: Mapping[str, Any], where: WhereOf, release: Release | None
) -> Iterator[Finding]:
    """Those of a workflow and of its schedule."""
    owner = f"{document.kind} {document.name}"
    yield from _removed_findings(owner, tree, OF_WORKFLOW, where, release)
    yield from _removed_locks(owner, tree, where, release)
    cron = mapping(document.tree.get("spec")) if document.kind == "CronWorkflow" else {}
    if cron.get("schedule") is None:
        return
    place = document.where("spec", "schedule", key=True)
    if as_list(cron.get("schedules")) or is_read(SCHEDULE, release):
        yield _finding(owner, "schedule", SCHEDULE, cron["schedule"], place, release, "it starts no run")
    else:
        effect = "the required schedules is missing, so that Argo refuses it and no run ever starts"
        yield _finding(owner, "schedule", SCHEDULE, cron["schedule"], place, release, effect, is_fatal=True)


def _removed_locks(owner: str, tree: Mapping[str, Any], where: WhereOf, release: Release | None) -> Iterator[Finding]:
    written = mapping(tree.get("synchronization"))
    for field, removed in SYNCHRONIZATION.items():
        if written.get(field) is not None:
            place = where("synchronization", field, key=True)
            shown, effect = f"synchronization.{field}", "nothing is held back by it, and it is not counted"
            yield _finding(owner, shown, removed, written[field], place, release, effect)


def _removed_findings(
    owner: str, tree: Mapping[str, Any], fields: Mapping[str, RemovedField], where: WhereOf, release: Release | None
) -> Iterator[Finding]:
    for field, removed in fields.items():
        if tree.get(field) is not None and not is_read(removed, release):
            effect = "its pods have no such priority"
            yield _finding(owner, field, removed, tree[field], where(field, key=True), release, effect)


def _finding(
    owner: str,
    field: str,
    removed: RemovedField,
    value: Any,
    place: Where,
    release: Release | None,
    effect: str,
    *,
    is_fatal: bool = False,
) -> Finding:
    since, older = ".".join(map(str, removed.since)), "3.7" if removed.since > (3, 7) else "3.6"
    says = f'engines: {{argo: {{version: "{older}"}}}}'
    hint = f"write {_replacement(removed, value)}"
    if is_read(removed, release):
        text = f"Argo {since} has no {field}; it counts here because the site's Argo is older"
        return Finding("GF719", f"{owner}: {text}", place, f"{hint} before you upgrade", severity="note")
    if release is None:
        text = (
            f"Argo {since} and later have no {field}, and the site does not say which Argo runs. With these {effect}; "
            f"Argo {older} reads it. The worse of the two counts"
        )
        hint += f"; or say {says} in the site where that is what runs"
    else:
        text = f"Argo {since} and later have no {field}: {effect}"
        hint += f"; where Argo {older} runs, say {says} in the site"
    return Finding("GF719", f"{owner}: {text}", place, hint, severity="error" if is_fatal else "warning")


def _replacement(removed: RemovedField, value: Any) -> str:
    """The new spelling, with what the old one holds."""
    if not removed.takes_list:
        return f"{removed.instead} with the name of a PriorityClass"
    held = json.dumps(as_plain(value), ensure_ascii=False, default=str)
    return f"{removed.instead}: [{held if len(held) <= MAX_SHOWN else '…'}]"
