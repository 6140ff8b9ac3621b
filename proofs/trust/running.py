"""Cases in an order that spreads over places and modes, each judged; what came of them, by place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

from gpuflow.core.errors import GpuflowError
from proofs.trust.argo_itself import ArgoItself
from proofs.trust.compiling import MODES, TWINS, Case, Mode, Refused, Unchanged
from proofs.trust.documents import Place, places
from proofs.trust.judging import Injected, judge, judge_words
from proofs.trust.payloads import payload


@dataclass
class Tally:
    """What came of the cases so far."""

    compiled: Counter[str] = field(default_factory=Counter)
    """By mode."""
    refused: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    """Cases that compiled, by model and field."""
    turned_away: Counter[str] = field(default_factory=Counter)
    """Cases that were refused, by model and field."""
    nothing: int = 0
    """Cases without a case: no file can have such a name."""
    injected: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        return sum(self.compiled.values()) + sum(self.refused.values())

    @property
    def always_refused(self) -> list[str]:
        """Fields that no hostile text got into: the judge has seen nothing of them."""
        return sorted(name for name in self.turned_away if not self.held[name])

    def document(self) -> dict[str, Any]:
        """For a file."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}

    @classmethod
    def read(cls, document: dict[str, Any]) -> Tally:
        return cls(**{name: Counter(value) if isinstance(value, dict) else value for name, value in document.items()})


def modes_of(environment: str) -> tuple[Mode, ...]:
    return tuple(mode for mode in MODES if mode.environment == environment)


@lru_cache(maxsize=4)
def _order(environment: str, seed: int) -> list[tuple[Mode, Place, str]]:
    """Every mode at every place in both ways, shuffled, so that any part of them is a fair sample."""
    ways = [(place, how) for place in places() for how in ("instead", "behind")]
    every = [(mode, *way) for mode in modes_of(environment) for way in ways]
    Random(f"{environment}/{seed}").shuffle(every)
    return every


def case(environment: str, seed: int, number: int) -> Case:
    """Case number n of a seed; the same however many are run."""
    order, random = _order(environment, seed), Random(f"{environment}/{seed}/{number}")
    mode, place, how = order[number % len(order)]
    # Where even harmless text is refused there is little to see: most of these are drawn again.
    for _ in range(10):
        if random.random() < 0.1 or _twin(mode, place, how) is not None:
            break
        mode, place, how = random.choice(order)
    return Case(mode, place, how, payload(random))


def cases(environment: str, seed: int, first: int, count: int) -> Iterator[tuple[int, Case]]:
    for number in range(first, first + count):
        yield number, case(environment, seed, number)


@lru_cache(maxsize=30_000)
def _twin(mode: Mode, place: Place, how: str, word: str = TWINS[0]) -> str | None:
    """What the harmless twin makes; None when even that is refused."""
    try:
        return Case(mode, place, how, "").twin(word).made()
    except (GpuflowError, Unchanged):
        return None


def run(tried: Case, tally: Tally, argo: ArgoItself | None = None) -> None:
    """Compile one case and judge it; with `argo`, also by what Argo's own code makes of it."""
    name = ".".join(tried.place.field)
    try:
        made = tried.made()
    except Unchanged:
        tally.nothing += 1
        return
    except Refused as refusal:
        tally.refused[tried.mode.name] += 1
        tally.turned_away[name] += 1
        try:
            judge_words(tried.text, refusal.printed)
        except Injected as found:
            tally.injected.append(f"{_shown(tried)}: the refusal itself: {found}")
        return
    except GpuflowError as refusal:
        tally.refused[tried.mode.name] += 1
        tally.turned_away[name] += 1
        tally.codes.update({finding.code for finding in refusal.findings})
        return
    except Exception as fault:  # whatever a text does to gpuflow, it must be said with a code
        tally.injected.append(f"{_shown(tried)}: {type(fault).__name__}: {fault!s:.300}")
        return
    tally.compiled[tried.mode.name] += 1
    tally.held[name] += 1
    twin = _twin(tried.mode, tried.place, tried.how)
    if twin is None and _without_digest(made) == _without_digest(_plain(tried)):
        return  # the text was white space around what stood there, and said nothing
    if twin is None and not tried.text.strip():
        return  # the same, shown as it was written
    if twin is None and tried.text.strip().replace("e", "").isdecimal():
        return  # a number behind a number, where a word is none
    if twin is None:
        tally.injected.append(f"{_shown(tried)}: compiled, though harmless text is refused here")
        return
    try:
        judge(tried, made, twin)
        if argo is not None and tried.mode.name == "argo Workflow":
            argo.judge(tried.text, made, twin)
    except Injected as found:
        if not _is_like_another_twin(tried, made):
            tally.injected.append(f"{_shown(tried)}: {found}")
    except Exception as fault:  # what the engine's reader does not take is no artifact
        tally.injected.append(f"{_shown(tried)}: cannot be read: {type(fault).__name__}: {fault!s:.300}")


def _is_like_another_twin(tried: Case, made: str) -> bool:
    for word in TWINS[1:]:
        twin = _twin(tried.mode, tried.place, tried.how, word)
        try:
            if twin is not None:
                judge(tried, made, twin, word)
                return True
        except Injected:
            continue
    return False


def _plain(tried: Case) -> str:
    """What the document makes without any text put into it."""
    try:
        return Case(tried.mode, tried.place, "behind", "").made()
    except (GpuflowError, Unchanged):
        return ""


def _without_digest(made: str) -> str:
    return re.sub(r"sha256:\w+", "", made)


def _shown(tried: Case) -> str:
    return f"{tried.mode.name} | {tried.place.name} | {tried.how} | {tried.text!r:.120}"
