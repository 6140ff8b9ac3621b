"""Codes that a document silences: by a comment in its file, or by an annotation where tools drop comments.

    # gpuflow: silence GF769 GF773
    metadata: {annotations: {gpuflow.dev/silence: "GF769, GF773"}}

A comment counts for its whole file, an annotation for its object, and `silence` of the site for everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpuflow.codes import CODES
from gpuflow.errors import Finding, Where, did_you_mean
from gpuflow.readers.documents import Document
from gpuflow.spec.silence import is_always_error

ANNOTATION: Final = "gpuflow.dev/silence"


class Silence(NamedTuple):
    """Codes that are silenced at one place."""

    codes: tuple[str, ...]
    where: Where


def silences_of(document: Document) -> Iterator[Silence]:
    """Where the document silences which codes; a place without codes that can be silenced is none."""
    for words, where in _places(document):
        codes = tuple(word for word in words if word in CODES and not is_always_error(word))
        if codes:
            yield Silence(codes, where)


def vain_silences(document: Document) -> Iterator[Finding]:
    """GF783: words that silence nothing."""
    for words, where in _places(document):
        for word in dict.fromkeys(words):
            if word not in CODES:
                hint = did_you_mean(word, CODES) or "gpuflow explain lists them"
                yield Finding("GF783", f'"{word[:40]}" is not a code, and silences nothing', where, hint, "warning")
            elif is_always_error(word):
                text = f'{word} ("{CODES[word].title}") is an error, which cannot be silenced'
                yield Finding("GF783", text, where, f"gpuflow explain {word}", "warning")


def _places(document: Document) -> Iterator[tuple[tuple[str, ...], Where]]:
    if document.silenced:
        first = min(each.line for each in document.silenced)
        yield tuple(each.code for each in document.silenced), Where(document.file, first, 1)
    metadata = document.tree.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    if isinstance(text, str):
        where = document.where("metadata", "annotations", ANNOTATION)
        yield tuple(word for word in re.split(r"[\s,]+", text) if word), where
