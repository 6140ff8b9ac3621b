"""Every field of the models with a tag and a variable in it, compiled for Argo: it is data or refused, as written down.

A new field changes the list, so that somebody decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuflow.core.errors import GpuflowError
from proofs.trust.compiling import MODES, Case
from proofs.trust.documents import FILE, Place, places
from proofs.trust.judging import judge, own_words

MODE = next(mode for mode in MODES if mode.name == "argo Workflow")
TEXT = "{{workflow.name}}$(DB_PASSWORD)"
GOLDEN = Path(__file__).parent / "golden" / "every_field.txt"
PLACES_EACH = 2


def _chosen() -> Iterator[Place]:
    """Some places of every field, values and keys; the long documents first."""
    seen: dict[Any, int] = defaultdict(int)
    for place in sorted(places(), key=lambda place: place.document.startswith("construct")):
        kind = (place.field, place.is_key)
        if place.document != FILE and seen[kind] < PLACES_EACH:
            seen[kind] += 1
            yield place


def _answer(place: Place) -> str:
    """`data`, or the codes that refuse it, or that Argo is meant to read it. The judge raises at anything else."""
    how = "behind" if place.is_key else "instead"
    case = Case(MODE, place, how, TEXT)
    try:
        made = case.made()
    except GpuflowError as refusal:
        return " ".join(sorted({finding.code for finding in refusal.findings}))
    judge(case, made, case.twin().made())
    return "Argo's own language" if own_words(place.path) else "data"


def test_a_tag_in_any_field_is_data_or_refused(golden: Any) -> None:
    answers: dict[str, set[str]] = defaultdict(set)
    for place in _chosen():
        answers[".".join(place.field) + (" (key)" if place.is_key else "")].add(_answer(place))
    golden(GOLDEN, "".join(f"{name}: {', '.join(sorted(found))}\n" for name, found in sorted(answers.items())))
