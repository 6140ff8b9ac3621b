"""Judge the checker: `python -m proofs checker --count 20000 --seed 1`, or look at one case: `--case FILE`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import Counter
from functools import partial
from pathlib import Path

from proofs.checker import table
from proofs.checker.case import Case
from proofs.checker.comparing import checked, fault
from proofs.checker.draw_case import TWISTS
from proofs.checker.draw_case import case as drawn_case
from proofs.checker.judge import Judge
from proofs.checker.live import live
from proofs.checker.proving import HOME, Answer, advice, answers
from proofs.checker.recorded import record
from proofs.checker.shrinking import shrunk
from proofs.checker.worlds import questions
from tests.differential.oracle import OracleUnavailable

WORST = ("wrong always", "wrong never", "error", "needless may queue", "needless unknown")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs checker", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many cases (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="where they come from (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="how many processes (%(default)s)")
    parser.add_argument("--case", metavar="FILE|SEED", help="one case: a file, or a seed such as 1/42")
    parser.add_argument("--family", choices=sorted(TWISTS), help="with --case SEED: the twist that was asked for")
    parser.add_argument("--shrink", type=int, default=6, help="how many failing cases are made small (%(default)s)")
    parser.add_argument("--fault", choices=WORST, help="shrink and print only cases with this fault")
    parser.add_argument("--record", action="store_true", help="write the truths anew that make test is held against")
    parser.add_argument("--advice", action="store_true", help="follow the advice: --count lines of it, judged again")
    parser.add_argument("--live", type=int, metavar="N", help="repeat N cases on the cluster of KUBECONFIG")
    parser.add_argument("--only", default="", metavar="SEEDS", help="with --live: only these of the N, 1/42,1/57,…")
    parser.add_argument("--threads", type=int, default=12, help="with --live: how many side by side (%(default)s)")
    given = parser.parse_args(arguments)
    try:
        if given.record:
            print(record())
            return 0
        if given.live:
            only = frozenset(filter(None, given.only.split(",")))
            return live(Path(os.environ["KUBECONFIG"]), given.live, given.seed, given.threads, only)
        if given.advice:
            return _advice(given.count, given.seed, given.workers)
        if given.case:
            return _one(given.case, given.family)
        return _many(given.count, given.seed, given.workers, given.shrink, given.fault)
    except OracleUnavailable as reason:
        print(f"the judge cannot be asked: {reason}", file=sys.stderr)
        return 2


def _many(count: int, seed: int, workers: int, most: int, only: str | None) -> int:
    print(f"== {count:,} cases from seed {seed}; truths are kept under {HOME.name}/")
    found = list(answers(count, seed, workers))
    print("\n".join(table.lines(found)))
    failing = sorted(
        (each for each in found if each.fault and only in (None, each.fault)),
        key=lambda each: (WORST.index(str(each.fault)), each.families, int(each.seed.partition("/")[2])),
    )
    _write(failing, most)
    missing = table.shortfalls(found)
    for each in missing:
        print(f"not shown: {each}")
    return 1 if missing else 0


def _advice(count: int, seed: int, workers: int) -> int:
    """Lines of advice, followed: by kind, how many there were and how many are untrue."""
    print(f"== {count:,} lines of advice, followed; cases from seed {seed}")
    found = list(advice(count, seed, workers))
    folder = HOME / "advice"
    folder.mkdir(parents=True, exist_ok=True)
    told: Counter[str] = Counter()
    for each in found:
        if not each.is_untrue:
            continue
        told[each.line.kind] += 1
        if told[each.line.kind] <= 5:
            path = folder / f"{each.line.kind.split()[0].strip(',')}-{each.seed.replace('/', '-')}.json"
            path.write_text(each.line.followed.written(indent=1))
            print(f"untrue: {each.line.text!r} in {each.seed}: verdict {each.verdict}, truth {each.truth}; followed:")
            print(f"  python -m proofs checker --case {shlex.quote(str(path))}")
    lines = Counter(each.line.kind for each in found)
    for kind in sorted(lines):
        print(f"{kind:<20}{lines[kind]:>8,} followed{told[kind]:>8,} untrue")
    print(f"{'together':<20}{len(found):>8,} followed{sum(told.values()):>8,} untrue")
    return 1 if told else 0


def _write(failing: list[Answer], most: int) -> None:
    """The failing cases as files, the first of each fault and family made small."""
    folder = HOME / "failing"
    folder.mkdir(parents=True, exist_ok=True)
    seen: Counter[tuple[str | None, tuple[str, ...]]] = Counter()
    with Judge() as judge:
        for each in failing:
            kind = each.fault, each.families
            seen[kind] += 1
            if seen[kind] > 1 or sum(count == 1 for count in seen.values()) > most:
                continue
            case = drawn_case(each.seed)
            small = shrunk(case, partial(_shows, judge, each.fault))
            path = (
                folder
                / f"{'-'.join(str(each.fault).split())}-{'-'.join(each.families)}-{each.seed.replace('/', '-')}.json"
            )
            path.write_text(small.written(indent=1))
            print(f"{each.fault}: {', '.join(each.families)}, {each.engine}; to look at it:")
            print(f"  python -m proofs checker --case {shlex.quote(str(path))}")
    rest = Counter((each.fault, each.families) for each in failing)
    (folder / "seeds.txt").write_text(
        "".join(f"{each.fault}\t{','.join(each.families)}\t{each.engine}\t{each.seed}\n" for each in failing)
    )
    if rest:
        print(f"seeds of all {len(failing)}: {folder / 'seeds.txt'}")


def _shows(judge: Judge, kind: str | None, case: Case) -> bool:
    return _fault_of(case, judge) == kind


def _fault_of(case: Case, judge: Judge) -> str | None:
    try:
        truth = judge.truths([case])[0]
    except Exception:
        return None  # no longer a case that can be asked
    try:
        return fault(checked(case).verdict, truth, case.is_open)
    except Exception:
        return "error"


def _one(name: str, family: str | None) -> int:
    """One case with everything that is known about it."""
    path = Path(name)
    case = Case.read(path.read_text()) if path.exists() else drawn_case(name, family)
    print(case.written(indent=1))
    with Judge() as judge:
        truth = judge.truths([case])[0]
    for number, said in enumerate(truth.because):
        units = [each["name"] for each in questions(case)[number]["units"]] if "refused" not in said else []
        print(f"world {number}: {truth.worlds[number]} ({said.get('states', 0)} states; pods {', '.join(units)})")
        for part in ("refused", "waits", "waiting", "ends"):
            if said.get(part):
                print(f"  {part}: {said[part]}")
    report = checked(case)
    print(f"verdict: {report.verdict}; truth: {truth.word}; fault: {fault(report.verdict, truth, case.is_open)}")
    for finding in report.findings:
        print(f"  {finding.severity} {finding.code} {finding.message}")
        for more in (finding.kubernetes, finding.hint):
            if more:
                print("     ", more.replace("\n", "\n      "))
    for line in report.scopes:
        amounts = f"used {line.used} peak {line.peak} hard {line.hard}"
        print(f"  line {line.kind} {line.name} {line.resource}: {amounts} {line.verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
