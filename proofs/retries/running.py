"""Cases side by side on both engines: each gets its faults when they are due, and is compared with its promise."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from gpuflow.runtime.base import outcomes
from gpuflow.runtime.supervise import evidence

from .contract import (
    FAILED,
    FAILURE,
    HELD,
    HOPELESS,
    INIT,
    INTERRUPTION,
    REFUSED,
    SUCCEEDED,
    WRITTEN,
    Case,
    End,
    costs,
    cut_short,
    faults,
    promised,
    starts_program,
)
from .ground import Ground
from .on_airflow import Airflow
from .on_argo import Argo
from .pipelines import taint_of
from .striking import Play, clear, prepare, strike

PATIENCE = 480.0
"""Seconds for one case."""
AT_ONCE = 14
"""Pods start at about one a second on two cores."""
STRIKING = 6
"""Faults that are being caused at the same time: some take seconds."""
ALONE = ("preempt", "quota")
"""What hits more than its own case when two of its kind are under way."""
COSTS = {
    "failed (retryable)": FAILURE,
    "failed (final)": FAILURE,
    "out of memory": FAILURE,
    "timed out": FAILURE,
    "disk limit": FAILURE,
    "interrupted": INTERRUPTION,
    "": INTERRUPTION,
    "never started": None,
}
"""Which budget a word of the supervisor's book costs; "" when it has none."""

BEFORE_MAIN = "Pod failed before main container starts"
ROOM = ": waiting for room: "
"""What the operator says before the API server's own sentence."""

Result = dict[str, Any]
Engines = dict[str, Argo | Airflow]


def run(ground: Ground, cases: Sequence[Case], keep: Callable[[Result], None], engines: Engines | None = None) -> None:
    """Play all cases to their end, and hand each result to `keep`."""
    engines = _engines(ground, cases)
    waiting, playing = list(cases), list[Play]()
    try:
        with ThreadPoolExecutor(STRIKING) as pool:
            while waiting or playing:
                _begin(ground, engines, waiting, playing)
                for engine in engines.values():
                    engine.look()
                for play in list(playing):
                    result = _advance(ground, engines[play.case.engine], play, pool)
                    if result is not None:
                        playing.remove(play)
                        clear(ground, play.case)
                        keep(result)
                time.sleep(0.4)
    finally:
        for engine in engines.values():
            engine.close()


def _engines(ground: Ground, cases: Sequence[Case]) -> Engines:
    made: Engines = {}
    for name, kind in (("argo", Argo), ("airflow", Airflow)):
        chosen = [case for case in cases if case.engine == name]
        if chosen:
            made[name] = kind(ground)
            made[name].compile(chosen)
    return made


def _begin(ground: Ground, engines: Engines, waiting: list[Case], playing: list[Play]) -> None:
    for case in list(waiting):
        if len(playing) >= AT_ONCE:
            return
        if any(_disturb(case, play.case) for play in playing):
            continue
        folder = ground.plays / case.name
        folder.mkdir()
        folder.chmod(0o777)
        prepare(ground, case)
        engines[case.engine].start(case)
        waiting.remove(case)
        playing.append(Play(case))


def _disturb(one: Case, other: Case) -> bool:
    """Whether what happens to one case would hit the other."""
    if one.has("taint") and other.has("taint") and taint_of(one) == taint_of(other):
        return True
    return any(one.has(kind) and other.has(kind) for kind in ALONE)


def _advance(ground: Ground, engine: Argo | Airflow, play: Play, pool: ThreadPoolExecutor) -> Result | None:
    """The result of a case that is over; else cause what is due, beside the others."""
    if play.striking is not None and not play.striking.done():
        return None
    for node in engine.told(play.case)["nodes"] if isinstance(engine, Argo) else ():
        if node["message"] and node not in play.heard:
            play.heard.append(node)
    trouble = play.striking.exception() if play.striking is not None else None
    ended = engine.ended(play.case)
    if trouble is not None:
        words = "".join(traceback.format_exception(trouble))[-1500:]
        ended = {**engine.told(play.case), "state": "broken", "message": words}
    elif ended is None and time.monotonic() - play.begun < PATIENCE:
        play.striking = pool.submit(strike, ground, play, lambda pod: engine.seen_running(play.case, pod))
        return None
    result = judged(ground, play, ended if ended is not None else {**engine.told(play.case), "state": "stuck"})
    engine.forget(play.case)
    return result


def judged(ground: Ground, play: Play, told: dict[str, Any]) -> Result:
    """What was promised, what was seen, and every difference between them."""
    case, name = play.case, play.name
    folder = ground.plays / name
    names = sorted(path.name for path in folder.iterdir())
    words = ground.book(name)
    starts = sum(name.isdigit() for name in names)
    end = promised(case)
    notes = []
    if told["state"] == FAILED and starts < end.starts and _used_up(case, told["nodes"]):
        end = cut_short(case, starts)
        notes.append("Argo's own retries were used up by a pod that never got to its supervisor")
    counted, ledger = _counted(case, end, words, len(told["nodes"])), told.get("ledger")
    if case.engine == "airflow":
        counts = {key: int((ledger or {}).get(key, 0)) for key in ("failures", "interruptions")}
    elif case.supervised and not case.has("closed"):
        counts = counted
    else:
        # Argo counts nothing that can be read; the starts and the end show what it took each attempt for.
        counts = {}
    seen = {"state": told["state"], "starts": starts, **counts}
    due = {key: value for key, value in asdict(end).items() if key in seen}
    differences = [f"{key} {seen[key]}, promised {value}" for key, value in due.items() if seen[key] != value]
    if case.engine == "airflow" and case.supervised and counted != counts and _counts_itself(case):
        differences.append(f"the supervisor's book says {counted}")
    differences += [f"it ran twice at once: {name}" for name in names if name.startswith("overlap-")]
    if ("done" in names) != (told["state"] == SUCCEEDED):
        differences.append("green and success are not the same")
    rows = _rows(ground, play, told)
    if case.outcome and case.outcome not in {row["outcome"] for row in rows}:
        differences.append(f"the table says {sorted({row['outcome'] for row in rows})}, expected {case.outcome}")
    return {
        "name": name,
        "engine": case.engine,
        "care": case.care,
        "budget": f"{case.failures}" if case.plain else f"F={case.failures} I={case.interruptions}",
        "acts": list(case.acts),
        "faults": faults(case),
        "promised": asdict(end),
        "seen": seen,
        "book": words,
        "outcome": case.outcome,
        "rows": rows,
        "told": told,
        "notes": notes,
        "seconds": round(time.monotonic() - play.begun),
        "differences": differences,
    }


def _used_up(case: Case, nodes: list[dict[str, Any]]) -> bool:
    """Whether Argo had no retry left because it spent one on a pod that failed before its supervisor ran.

    Usually it makes such a pod anew at no cost; the reference says that it may not.
    """
    before = [node for node in nodes if node["message"].startswith(BEFORE_MAIN)]
    return case.engine == "argo" and bool(before) and len(nodes) > case.failures + case.interruptions


def _counted(case: Case, end: End, words: list[str], nodes: int) -> dict[str, int]:
    """What the supervisor's book adds up to.

    After the last attempt that the engine allows nobody comes who could be told why it ended: of that one, and of that
    one alone, the book may keep a word that costs another budget. Nothing depends on it any more. Argo allows as many
    as both budgets together, and counts among them pods that never got to their supervisor, when it saw them fail; the
    operator on Airflow knows by itself that a budget is spent.
    """
    told = [COSTS.get(word, "?") for word in words]
    is_last = len(told) == end.starts if case.engine == "airflow" else nodes > case.failures + case.interruptions
    due = [budget for act, budget in zip(case.acts, costs(case), strict=True) if starts_program(act)]
    if end.state == FAILED and is_last and 0 < len(told) <= len(due):
        told[-1] = due[len(told) - 1]
    return {"failures": told.count(FAILURE), "interruptions": told.count(INTERRUPTION)}


def _counts_itself(case: Case) -> bool:
    """Whether the supervisor sees everything that happens to the step: not what happens before it runs."""
    return not case.has(*INIT, *HELD, *WRITTEN, *REFUSED, *HOPELESS)


def _rows(ground: Ground, play: Play, told: dict[str, Any]) -> list[dict[str, Any]]:
    """What the table of evidence says of everything that was to be seen of the pods, by whom."""
    case, views = play.case, list[tuple[str, evidence.Evidence]]()
    for pod in [*play.sights, *ground.pods_of(case.name)]:
        views.append(("pod", evidence.from_pod(pod, supervised=case.supervised)))
    if case.engine == "airflow" and not views and told["message"]:
        views.append(("operator", evidence.Evidence(messages=(told["message"],))))
    for node in [*play.heard, *told["nodes"]]:
        view = evidence.from_argo(node["phase"], node["message"] or None, node["exit_code"], supervised=case.supervised)
        views.append(("argo", view))
    waits = (line.partition(ROOM)[2] for line in told.get("said", ()) if ROOM in line)
    views += [("operator", evidence.Evidence(messages=(words,))) for words in waits]
    found: list[dict[str, Any]] = []
    for who, view in views:
        verdict = evidence.judge(view, final_exit_codes=case.final)
        number = next((index for index, row in enumerate(evidence.TABLE) if row.matches(view)), None)
        if verdict is None or number is None:
            continue
        row = {"by": who, "row": number, "outcome": verdict.outcome, "because": verdict.because}
        if row not in found:
            found.append(row)
    for line in told.get("said", ()):
        # "pod NAME: OUTCOME: BECAUSE", as the operator says it when it has judged.
        parts = line.split(": ", 2)
        if len(parts) == 3 and parts[1] in outcomes.OUTCOMES:
            row = {"by": "operator", "outcome": parts[1], "because": parts[2]}
            if row not in found:
                found.append(row)
    return found
