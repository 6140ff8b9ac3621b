"""`python -m proofs kubeflow`: compiled pipelines on the real KFP of a private cluster, in one table.

It uses the cluster of that name, or starts one and ends it. What was run is kept, and the next call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from tests.cluster import kubeflow
from tests.cluster.borrowing import borrowed
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import TooLate
from tests.engines import build

from . import acting, scenes
from .all_cases import every_case
from .case import Case
from .playing import Player, Result, ground
from .reporting import by_construct, figures

Act = Callable[[Player], Iterator[Result]]


def acts(settings: str, seed: int, count: int) -> dict[str, Act]:
    """What is done to runs; `count` interruptions more, of kinds that `seed` chooses."""
    found: dict[str, Act] = {}
    ways = list(acting.WAYS)
    if settings == "always":
        found["cached-twice"] = lambda player: iter([acting.cache(player)])
        found["terminated"] = lambda player: iter([acting.terminate(player)])
        found["deleted"] = lambda player: iter([acting.delete_running(player)])
        found["schedules"] = acting.schedules
        found["notified"] = lambda player: iter([acting.notify(player)])
        found["budget-3-of-3"] = lambda player: iter([acting.spend(player, 3)])
        found["budget-4-of-3"] = lambda player: iter([acting.spend(player, 4)])
    for way in ways:
        found[f"interrupted-{settings}-{way.replace('_', '-')}"] = _interrupting(settings, way)
    chance = random.Random(f"{seed}-{settings}")
    for number in range(count):
        way = chance.choice(ways)
        found[f"interrupted-{settings}-{way.replace('_', '-')}-{number}"] = _interrupting(settings, way)
    return found


def _interrupting(settings: str, way: str) -> Act:
    return lambda player: iter([acting.interrupt(player, settings, way)])


class Results:
    """What was run, one JSON line for each, for one seed."""

    def __init__(self, seed: int) -> None:
        self.path = build.cache() / "proofs" / f"kubeflow-{seed}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.all: dict[str, Result] = {row["key"]: row for row in map(json.loads, lines)}

    def of(self, keys: Sequence[str]) -> list[Result]:
        """The results under these keys, and the further ones of acts that have several: `schedules-1`."""
        several = {f"{key}-{number}" for key in keys for number in range(1, 9)} - set(keys)
        return [self.all[key] for key in (*keys, *sorted(several)) if key in self.all]

    def keep(self, key: str, result: Result) -> None:
        self.all[key] = {**result, "key": key}
        with self.path.open("a") as file:
            file.write(json.dumps({**result, "key": key}) + "\n")
        wrong = [*result["complaints"], *result.get("differences", ())]
        extra = {name: result[name] for name in ("steps", "second", "runs", "pods_ended") if name in result}
        print(f"{key:36} {result['state']:12} {result.get('seconds', 0):5} s  {extra or ''}", flush=True)
        for line in wrong:
            print(f"    {line[:600]}", flush=True)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs kubeflow", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="which further interruptions (%(default)s)")
    parser.add_argument("--count", type=int, default=0, help="how many of them under each setting (%(default)s)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only what has this in its name")
    parser.add_argument("--settings", default="always,stock,before", help="which of them (%(default)s)")
    parser.add_argument("--again", action="store_true", help="run also what has been run")
    parser.add_argument("--judge", action="store_true", help="run nothing; look again at the runs that are there")
    parser.add_argument("--sum", action="store_true", help="run nothing; print what there is")
    parser.add_argument("--table", action="store_true", help="print one row for each construct as well")
    parser.add_argument("--name", default="kubeflow", help="the name of the private cluster (%(default)s)")
    parser.add_argument("--at-once", type=int, default=10, help="how many runs side by side (%(default)s)")
    options = parser.parse_args(given)
    kept, begun = Results(options.seed), time.monotonic()
    wanted: dict[str, list[Case]] = {"always": every_case()}
    for settings in ("stock", "before"):
        wanted[settings] = list(scenes.retries_of(settings))
    keys: list[str] = []
    todo: dict[str, tuple[list[Case], dict[str, Act]]] = {}
    for settings in options.settings.split(","):
        cases = [case for case in wanted[settings] if re.search(options.only, case.name)]
        doing = {k: v for k, v in acts(settings, options.seed, options.count).items() if re.search(options.only, k)}
        keys += [*(case.name for case in cases), *doing]
        if not options.again:
            cases = [case for case in cases if case.name not in kept.all]
            doing = {key: act for key, act in doing.items() if key not in kept.all}
        if cases or doing:
            todo[settings] = (cases, doing)
    if options.judge and (cluster := Cluster.find(options.name)):
        before = [case for case in wanted["always"] if case.name in kept.all and case.name in keys]
        player = Player(cluster, cluster.layout.run / "kfp-live")
        player.judge_again(before, dict(kept.all), lambda case, result: kept.keep(case.name, result))
        todo = {}
    print(f"seed {options.seed}: {len(keys)} to show, {kept.path}", flush=True)
    if todo and not options.sum:
        with borrowed(options.name, "kubeflow") as cluster:
            _play(cluster, todo, kept, options.at_once)
    found = kept.of(keys)
    print("\n".join(figures(found)))
    if options.table:
        print("\n".join(by_construct(found)))
    print(f"{time.monotonic() - begun:.0f} s; seed {options.seed}")
    wrong = any(result["complaints"] or result.get("differences") for result in found)
    return 0 if all(key in kept.all for key in keys) and not wrong else 1


def _play(cluster: Cluster, todo: dict[str, tuple[list[Case], dict[str, Act]]], kept: Results, at_once: int) -> None:
    for settings, (cases, doing) in todo.items():
        kubeflow.settings(cluster, kubeflow.SETTINGS[settings])
        with ground(cluster) as player:
            player.play(cases, lambda case, result: kept.keep(case.name, result), at_once)
            for key, act in doing.items():
                try:
                    for number, result in enumerate(act(player)):
                        kept.keep(key if number == 0 else f"{key}-{number}", result)
                except (TooLate, AssertionError) as error:
                    words = str(error)[:800]
                    kept.keep(key, {"name": key, "state": "NOT DONE", "complaints": [words]})


if __name__ == "__main__":
    sys.exit(main())
