"""The list of what a pipeline cannot say, each with the place in the file, the reason and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuflow.core.errors import Finding, Where
from gpuflow.formats.documents import Document

FIELD, TAG, TEMPLATE, KIND, CHANGED, RULE = "GF786", "GF787", "GF788", "GF789", "GF790", "GF791"
NO_FIELD = "a pipeline has no word for it"


class Unsupported:
    """Collects findings about one document, and about those that it refers to."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[Finding] = []
        self.notes: list[Finding] = []

    def cannot(self, what: str, why: str, where: Where, hint: str | None = None, code: str = FIELD) -> None:
        """Something is lost without it, so there is no pipeline."""
        finding = Finding(code, f"{what}: {why}", where, hint)
        if finding not in self.found:
            self.found.append(finding)

    def note(self, text: str, where: Where) -> None:
        """The pipeline says it otherwise."""
        finding = Finding(CHANGED, text, where, None, "note")
        if finding not in self.notes:
            self.notes.append(finding)

    def fields(
        self, owner: object, known: Iterable[str], what: str, place: Place, hints: Mapping[str, str] | None = None
    ) -> None:
        """List every field of a map that nobody has read."""
        for key, value in owner.items() if isinstance(owner, Mapping) else ():
            if key not in known and value not in (None, [], {}):
                hint = (hints or {}).get(key)
                self.cannot(f"{what} {key}" if what else str(key), NO_FIELD, place.of(owner, key), hint)


class Place:
    """Finds lines: a map or list that was read from a file knows where its parts stand."""

    def __init__(self, document: Document, around: Where | None = None) -> None:
        """`around`: where the part stands that this is about, for what has no place of its own."""
        self.document, self.around = document, around

    def of(self, owner: Any, key: Any = None) -> Where:
        """Where `key` of a map stands, or an item of a list, or the map itself."""
        spot = getattr(owner, "key_at", {}).get(key)
        if spot is None and isinstance(key, int) and key < len(getattr(owner, "item_at", ())):
            spot = owner.item_at[key]
        spot = spot or getattr(owner, "spot", None)
        if spot is None:
            return self.around or self.document.where()
        return Where(self.document.file, spot.line, spot.column)
