"""Advice of a report, followed: every line with a number or a GPU is written into the pipeline's text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from gpuflow.checker.report import Report
from gpuflow.core.errors import Finding

PARALLEL = re.compile(r"^always admitted with parallel: (\d+)$", re.MULTILINE)
FEWER = re.compile(r"\bask for (\d+) in each pod$", re.MULTILINE)
FITS = re.compile(r"^fits here(?:, with (?:as much|less) GPU memory)?: (.+)$", re.MULTILINE)
OFFER = re.compile(r"(?:(?P<profile>\S+) of )?(?P<model>\S+) \([0-9.e+]+ GiB\)")
MEMORY = re.compile(r"^say more_memory\.max: (\w+):", re.MULTILINE)
COUNTED = re.compile(r"^(?P<model>.+?)(?: x (?P<count>\d+))?$")


class Line(NamedTuple):
    """One line of advice, and the text of the pipeline that follows it."""

    kind: str
    words: str
    text: str

    def is_kept(self, before: Report, after: Report) -> bool:
        """Whether the report on the changed text says what the line promised."""
        if self.kind == "parallel":
            return after.verdict == "always"
        if self.kind == "memory":
            return not any(finding.code == "GF525" for finding in after.findings)
        return before.verdict == "never" and after.verdict in ("always", "may-queue")


def advice(text: str, report: Report) -> Iterator[Line]:
    """The lines of a report on a pipeline, whose steps are written in `text`."""
    document = yaml.safe_load(text)
    for finding in report.findings:
        hint = finding.hint or ""
        for found in PARALLEL.finditer(hint):
            yield _line("parallel", found, {**document, "parallel": int(found[1])})
        for found in MEMORY.finditer(hint):
            yield _line("memory", found, _changed(document, finding, _with_memory_max(found[1])))
        for found in FEWER.finditer(hint):
            yield _line("fewer", found, _changed(document, finding, _with_count(int(found[1])), alone=True))
        for found in FITS.finditer(hint):
            for offer in OFFER.finditer(found[1]):
                yield _line("fits", offer, _changed(document, finding, _with_offer(offer), alone=True))


def _line(kind: str, found: re.Match[str], document: dict[str, Any]) -> Line:
    return Line(kind, found[0], yaml.safe_dump(document, sort_keys=False))


def _changed(document: dict[str, Any], finding: Finding, change: Any, *, alone: bool = False) -> dict[str, Any]:
    """The pipeline with every step that the finding names changed; `alone`: and without the others."""
    steps = document["steps"]
    named = {name: change(step) for name, step in steps.items() if re.search(rf"\b{name}\b", finding.message)}
    assert named, finding.message
    if not alone:
        return {**document, "steps": {**steps, **named}}
    kept = {name: {key: value for key, value in step.items() if key != "needs"} for name, step in named.items()}
    return {**document, "steps": kept}


def _asked(step: dict[str, Any]) -> tuple[str, int]:
    made = COUNTED.match(step.get("gpu") or step["mig"])
    assert made
    return made["model"], int(made["count"] or 1)


def _with_count(count: int) -> Any:
    def change(step: dict[str, Any]) -> dict[str, Any]:
        field = "gpu" if "gpu" in step else "mig"
        return {**step, field: f"{_asked(step)[0]} x {count}"}

    return change


def _with_offer(offer: re.Match[str]) -> Any:
    def change(step: dict[str, Any]) -> dict[str, Any]:
        rest = {key: value for key, value in step.items() if key not in ("gpu", "mig")}
        field, words = (
            ("mig", f"{offer['profile']} of {offer['model']}") if offer["profile"] else ("gpu", offer["model"])
        )
        return {**rest, field: f"{words} x {_asked(step)[1]}"}

    return change


def _with_memory_max(most: str) -> Any:
    def change(step: dict[str, Any]) -> dict[str, Any]:
        retry = step["retry"]
        return {**step, "retry": {**retry, "more_memory": {**retry["more_memory"], "max": most}}}

    return change
