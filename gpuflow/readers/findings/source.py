"""The document behind a demand that gpuflow did not write: findings about it, and the codes that it silences.

    # gpuflow: silence GF769 GF773
    metadata: {annotations: {gpuflow.dev/silence: "GF769, GF773"}}

A comment counts for its whole file, an annotation for its object, and `silence` of the site for everything. Annotations
are for documents from tools that drop comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpuflow.core.codes import CODES
from gpuflow.core.errors import Finding, Problem, Rule, Where, did_you_mean, rule
from gpuflow.demands.model import Demand
from gpuflow.formats.documents import Document
from gpuflow.readers.findings import rules
from gpuflow.readers.findings.subject import Subject
from gpuflow.site.model import Site, without_site_silenced
from gpuflow.spec.problems import is_always_error
from gpuflow.spec.rules.remarks import without_codes

ANNOTATION: Final = "gpuflow.dev/silence"


class Silence(NamedTuple):
    """Codes that are silenced at one place."""

    codes: tuple[str, ...]
    where: Where


def silences_of(document: Document) -> Iterator[Silence]:
    """Where the document silences which codes; a place without codes that can be silenced is none."""
    for words, where in _silence_places(document):
        codes = tuple(word for word in words if word in CODES and not is_always_error(word))
        if codes:
            yield Silence(codes, where)


@rule("GF783")
def unused_silences(subject: Subject) -> Iterator[Problem]:
    """Words that silence nothing."""
    for words, where in _silence_places(subject.document):
        for word in dict.fromkeys(words):
            if word not in CODES:
                hint = did_you_mean(word, CODES) or "gpuflow explain lists them"
                yield Problem(f'"{word[:40]}" is not a code, and silences nothing', where, hint)
            elif is_always_error(word):
                text = f'{word} ("{CODES[word].title}") is an error, which cannot be silenced'
                yield Problem(text, where, f"gpuflow explain {word}")


def _silence_places(document: Document) -> Iterator[tuple[tuple[str, ...], Where]]:
    if document.silenced:
        first = min(each.line for each in document.silenced)
        yield tuple(each.code for each in document.silenced), Where(document.file, first, 1)
    metadata = document.tree.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    text = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    if isinstance(text, str):
        where = document.where("metadata", "annotations", ANNOTATION)
        yield tuple(word for word in re.split(r"[\s,]+", text) if word), where


RULES: Final[tuple[Rule[Subject], ...]] = (*rules.RULES, unused_silences)
CODES_OF_CHECK = {"GF553": "GF772"}
"""What a check says with its verdict, and the same without one: it is said once."""


def foreign_source(document: Document, demand: Demand, site: Site, documents: Iterable[Document] = ()) -> ForeignSource:
    """The source of a demand that was read from a document; `documents`: all that were given with it."""
    return ForeignSource(Subject(document, demand, site, tuple(documents)))


@dataclass(frozen=True)
class ForeignSource:
    """It is what the checker knows as `Source`."""

    subject: Subject

    def warnings(self) -> Iterator[Finding]:
        """What the author may not know."""
        return (finding for each in RULES for finding in each(self.subject))

    def unsilenced_findings(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that neither the document nor the site silences."""
        left = list(findings)
        again = {CODES_OF_CHECK[each.code] for each in left if each.code in CODES_OF_CHECK}
        left = [each for each in left if each.code not in again]
        for silence in silences_of(self.subject.document):
            left = without_codes(silence.codes, left, silence.where)
        return without_site_silenced(self.subject.site, left)
