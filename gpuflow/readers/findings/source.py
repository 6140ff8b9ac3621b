"""The document behind a demand that is not ours: what is to be said of it, and what it silences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuflow.demands.model import Demand
from gpuflow.errors import Finding
from gpuflow.readers.documents import Document
from gpuflow.readers.findings.every_rule import RULES
from gpuflow.readers.findings.silence import silences_of, vain_silences
from gpuflow.readers.findings.subject import Subject
from gpuflow.site.model import Site
from gpuflow.site.silence import heard_at
from gpuflow.spec.remarks import without

SAID_BY_THE_CHECK = {"GF553": "GF772"}
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
        for rule in RULES:
            yield from rule(self.subject)
        yield from vain_silences(self.subject.document)

    def heard(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that neither the document nor the site silences."""
        left = list(findings)
        again = {SAID_BY_THE_CHECK[each.code] for each in left if each.code in SAID_BY_THE_CHECK}
        left = [each for each in left if each.code not in again]
        for silence in silences_of(self.subject.document):
            left = without(silence.codes, left, silence.where)
        return heard_at(self.subject.site, left)
