"""Advice that is printed, followed: each line is applied to the pipeline, and both sides judge again."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuflow.checker.report import Report
from proofs.checker.case import Case, Manifest
from proofs.checker.comparing import checked
from proofs.checker.judge import Judge

PARALLEL = re.compile(r"^(?:always admitted )?with parallel: (\d+)(.*)$", re.MULTILINE)
FEWER = re.compile(r"ask for (\d+) in each pod")
FITS = re.compile(r"fits here[^:\n]*: (.+)$", re.MULTILINE)
OFFER = re.compile(r"^(?:(?P<profile>\S+) of )?(?P<model>[a-z0-9.-]+)(?: \([^)]*\))?$")


@dataclass(frozen=True)
class Line:
    """One line of advice and the case in which it is followed."""

    kind: str
    text: str
    followed: Case
    whole: bool
    """Whether it promises that the run is always admitted; if not, that the step can run at all."""


@dataclass(frozen=True)
class Followed:
    """What became of it."""

    seed: str
    line: Line
    verdict: str
    truth: str

    @property
    def is_untrue(self) -> bool:
        """A promise that the checker itself takes back, or that the judge does not keep."""
        if self.truth == "too-large":
            return False
        if self.line.whole:
            return self.verdict != "always" or self.truth != "always"
        return self.verdict == "never" or self.truth == "never"


def lines(case: Case, report: Report) -> Iterator[Line]:
    """Every line of advice that a report prints; the same line once."""
    seen: set[tuple[str, str]] = set()
    for finding in report.findings:
        hint = finding.hint or ""
        for found in PARALLEL.finditer(hint):
            # "this queue", "these nodes": a promise about a part says nothing about the whole.
            whole = not found[2].strip()
            kind = "parallel" if whole else "parallel, a part"
            pipeline = {**case.pipeline, "parallel": int(found[1])}
            yield from _once(seen, Line(kind, found[0], replace(case, pipeline=pipeline), whole))
        steps = [name for name in case.pipeline["steps"] if re.search(rf"\b{name}\b", finding.message)]
        for step in steps[:1]:
            for found in FEWER.finditer(hint):
                gpu = _gpu(case, step)
                if gpu:
                    changed = _alone(case, step, {"gpu": f"{gpu[0]} x {found[1]}"})
                    yield from _once(seen, Line("ask for", found[0], changed, False))
            for found in FITS.finditer(hint):
                for offer in re.split(r", (?![^(]*\))", found[1]):
                    made = OFFER.match(offer.strip())
                    gpu = _gpu(case, step)
                    if made and gpu:
                        slices = {"profile": made["profile"], "model": made["model"], "count": gpu[1]}
                        wish = {"mig": slices} if made["profile"] else {"gpu": f"{made['model']} x {gpu[1]}"}
                        yield from _once(seen, Line("fits here", offer.strip(), _alone(case, step, wish), False))


def _once(seen: set[tuple[str, str]], line: Line) -> Iterator[Line]:
    if (line.kind, line.text) not in seen:
        seen.add((line.kind, line.text))
        yield line


def _gpu(case: Case, step: str) -> tuple[str, int] | None:
    text = case.pipeline["steps"][step].get("gpu")
    if text is None:
        return None
    model, _, count = str(text).partition(" x ")
    return model, int(count or 1)


def _alone(case: Case, step: str, wish: Manifest) -> Case:
    """The step alone, asking for something else: what the advice is about."""
    pipeline = copy.deepcopy(case.pipeline)
    pipeline.pop("exit", None)
    one = pipeline["steps"][step]
    one.pop("needs", None)
    one.pop("gpu", None)
    pipeline["steps"] = {step: {**one, **wish}}
    return replace(case, pipeline=pipeline)


def followed(case: Case, report: Report, judge: Judge) -> list[Followed]:
    """Every line of the report, applied."""
    found = list(lines(case, report))
    truths = judge.truths([line.followed for line in found])
    return [
        Followed(case.seed, replace(line, followed=replace(line.followed)), checked(line.followed).verdict, truth.word)
        for line, truth in zip(found, truths, strict=True)
    ]
