"""What became of many cases, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from proofs.checker.proving import Answer

VERDICTS = ("always", "may-queue", "never", "unknown")
TRUTHS = ("always", "may-queue", "never", "open", "too-large")
FAULTS = ("wrong always", "wrong never", "needless may queue", "needless unknown", "error")
LIMITS = {"wrong always": 0.0, "wrong never": 0.0, "needless may queue": 1.0, "needless unknown": 2.0, "error": 0.0}
"""In percent of all cases."""
LEAST_SHARE = 15.0
LEAST_TIMES = 200


def lines(answers: Sequence[Answer]) -> Iterator[str]:
    """The table of verdicts and truths, the faults, the families and the engines."""
    count = len(answers)
    cells = Counter((each.verdict, each.truth) for each in answers)
    yield f"{'verdict':<12}" + "".join(f"{truth:>12}" for truth in TRUTHS)
    for verdict in (*VERDICTS, *sorted({each.verdict for each in answers} - set(VERDICTS))):
        yield f"{verdict:<12}" + "".join(f"{cells[verdict, truth]:>12,}" for truth in TRUTHS)
    totals = Counter(each.truth for each in answers)
    yield f"{'share':<12}" + "".join(f"{100 * totals[truth] / count:>11.1f}%" for truth in TRUTHS)
    yield ""
    for fault, number in faults(answers).items():
        yield f"{fault:<20}{number:>8,}  {100 * number / count:.2f} % (at most {LIMITS[fault]:g} %)"
    yield ""
    wrong = Counter((family, each.fault) for each in answers for family in each.families if each.fault)
    occurs = Counter(family for each in answers for family in each.families)
    yield f"{'family':<12}{'cases':>8}" + "".join(f"{fault:>20}" for fault in FAULTS)
    for family in sorted(occurs):
        yield f"{family:<12}{occurs[family]:>8,}" + "".join(f"{wrong[family, fault]:>20,}" for fault in FAULTS)
    engines = Counter(each.engine for each in answers)
    yield "engines: " + ", ".join(f"{engine} {number:,}" for engine, number in sorted(engines.items()))


def faults(answers: Sequence[Answer]) -> dict[str, int]:
    """How often each fault occurs."""
    found = Counter(each.fault for each in answers)
    return {fault: found[fault] for fault in FAULTS}


def shortfalls(answers: Sequence[Answer]) -> list[str]:
    """What the run does not show."""
    count = len(answers)
    found = [f"{fault}: {number}" for fault, number in faults(answers).items() if 100 * number / count > LIMITS[fault]]
    totals = Counter(each.truth for each in answers)
    found += [
        f"only {100 * totals[truth] / count:.1f} % of the cases are {truth} in truth"
        for truth in TRUTHS[:3]
        if 100 * totals[truth] / count < LEAST_SHARE
    ]
    if count >= 20_000:
        for kind in ("families", "engine"):
            occurs: Counter[str] = Counter()
            for each in answers:
                occurs.update(each.families if kind == "families" else (each.engine,))
            found += [f"{name} occurs {number} times only" for name, number in occurs.items() if number < LEAST_TIMES]
    return found
