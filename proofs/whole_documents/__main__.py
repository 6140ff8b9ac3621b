"""Random whole documents on a private cluster: `python -m proofs whole-documents --count 2000 --seed 1`.

Each document comes into a namespace of its own, with quotas, LimitRanges, policies and webhooks. The checker answers
from a snapshot that is taken before; then the API server and the controllers do what they do. Results are kept line by
line under build/whole-documents, so that a proof that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml

from proofs.whole_documents.answers import cause, checked, checked_again, fault
from proofs.whole_documents.observed import Api, Keeper, Object, seen, settle
from proofs.whole_documents.scenes import ADDED, KINDS, Scene, numbers_of, scene_of

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "whole-documents"
NAME = "whole-documents"
ADDONS = ("kueue", *dict.fromkeys(ADDED.values()))
BATCH = 40
"""Namespaces that are made together: a policy takes a moment before it is in force."""
SLOTS = 24
"""Documents that are watched at the same time."""


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs whole-documents", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many documents (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="where they come from (%(default)s)")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="the results so far (build/whole-documents/SEED.jsonl)"
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="only documents of these kinds alone")
    parser.add_argument("--number", type=int, action="append", help="only the document of this number; may be repeated")
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print one scene, and end")
    parser.add_argument(
        "--judge", action="store_true", help="ask the checker again of what was seen before, without a cluster"
    )
    parser.add_argument(
        "--cluster", default=NAME, metavar="NAME", help="the private cluster; one that runs is used, and left"
    )
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    kinds = tuple(options.kinds.split(","))
    if options.show is not None:
        scene = scene_of(options.seed, options.show)
        before, file = yaml.safe_dump_all(scene.before), yaml.safe_dump_all(scene.documents)
        print(f"# {scene.features}\n# before\n{before}# the file\n{file}")
        return 0
    results = options.resume or HOME / f"{options.seed}.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    if options.judge:
        judged_again(results)
    elif options.inside:
        run(Api(options.inside), options, kinds, results)
        return 0
    elif status := on_cluster(
        options.cluster, kinds, [*(sys.argv[1:] if given is None else given), "--resume", str(results)]
    ):
        return status
    return report(rows_of(results), options.seed)


def on_cluster(name: str, kinds: Sequence[str], words: Sequence[str]) -> int:
    """The rest in the network of the private cluster, which is started for it unless it runs."""
    from tests.cluster.cluster import Cluster

    found = Cluster.find(name)
    addons = ["kueue", *dict.fromkeys(ADDED[kind] for kind in kinds if kind in ADDED)]
    meta = {"name": "kueue-manager-config"}
    cluster = found or Cluster.up(name, node=False, addons=addons, say=lambda line: print(line, file=sys.stderr))
    try:
        for addon in addons:
            cluster.ensure(addon, say=lambda line: print(line, file=sys.stderr))
        told = {"controller_manager_config.yaml": (cluster.layout.run / "kueue" / "config.yaml").read_text()}
        cluster.kube.within("kueue-system").apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": told}
        )
        own = [sys.executable, "-m", "proofs.whole_documents", *words, "--inside", str(cluster.layout.kubeconfig)]
        return subprocess.run([*cluster.enter, *own], cwd=ROOT, check=False).returncode
    finally:
        if found is not None:
            cluster.kube.within("kueue-system")("delete", "configmap", meta["name"], "--ignore-not-found")
        else:
            Cluster.down(name)


def rows_of(results: Path) -> list[Object]:
    """The last result of each document."""
    if not results.exists():
        return []
    rows = (json.loads(line) for line in results.read_text().splitlines())
    return list({row["number"]: row for row in rows}.values())


def run(api: Api, options: argparse.Namespace, kinds: Sequence[str], results: Path) -> None:
    """Every document that has no result yet, a batch of namespaces after another, many documents at once."""
    keeper = Keeper(api)
    keeper.furnish()
    keeper.start()
    known = {row["number"] for row in rows_of(results)}
    wanted = options.number or numbers_of(options.seed, options.count, kinds)
    numbers = [number for number in wanted if options.number or number not in known]
    begun, done = time.monotonic(), 0
    with (
        ThreadPoolExecutor(SLOTS) as slots,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as judges,
        results.open("a") as file,
    ):
        under_way: set[Future[Object]] = set()
        for start in range(0, len(numbers), BATCH):
            scenes = [(number, scene_of(options.seed, number)) for number in numbers[start : start + BATCH]]
            lacking = list(slots.map(lambda each: furnished(api, each[1]), scenes))
            time.sleep(3)  # policies and webhooks come into force
            shared = Remembered(api)
            for (number, scene), said in zip(scenes, lacking, strict=True):
                if said:
                    print(f"{scene.namespace}: not made: {said}", file=sys.stderr)
                    continue
                folder = snapshot(shared, scene)
                answer = judges.submit(checked, folder, scene.documents, scene.namespace)
                under_way.add(slots.submit(watched, api, keeper, number, scene, answer, folder))
            last = start + BATCH >= len(numbers)
            while under_way and (last or len(under_way) > SLOTS):
                ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for each in ended:
                    file.write(json.dumps(each.result()) + "\n")
                    done += 1
                file.flush()
                spent = time.monotonic() - begun
                print(f"{done}/{len(numbers)} after {spent:.0f} s", file=sys.stderr, flush=True)
    while any(item["metadata"]["name"].startswith(f"d{options.seed}-") for item in api.items("/api/v1/namespaces")):
        time.sleep(0.5)
    keeper.leave()
    if keeper.trouble:
        print(f"the last trouble of the keeper: {keeper.trouble!r}", file=sys.stderr)


class Remembered:
    """The cluster's own lists are read once for a batch; those of a namespace each time."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.kept: dict[str, Any] = {}

    def get(self, path: str, query: Mapping[str, object]) -> Any:
        key = f"{path}?{sorted(query.items())}"
        if "/namespaces/" in path:
            return self.api.get(path, query)
        if key not in self.kept:
            self.kept[key] = self.api.get(path, query)
        return self.kept[key]


def furnished(api: Api, scene: Scene) -> str:
    """What is there before the documents; the words of the server where it is not made."""
    place = f"/api/v1/namespaces/{scene.namespace}"
    if api("GET", place)[0] == 200:  # of a proof that was stopped
        cleared(api, scene)
        while api("GET", place)[0] == 200:
            time.sleep(0.5)
    for item in scene.before:
        status, said = api.create(item, scene.namespace)
        if status >= 300:
            cleared(api, scene)
            return f"{item['kind']}: {said}"
    for _ in range(200):
        there = [
            api("GET", f"{place}/{path}")[0] for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
        ]
        if there == [200, 200]:
            break
        time.sleep(0.1)
    settle(api, scene.namespace)
    return ""


def snapshot(shared: Remembered, scene: Scene) -> str:
    """A folder as `gpuflow snapshot` writes it, of this namespace."""
    from gpuflow.cli.snapshot import snapshot_files
    from gpuflow.cluster.live import read_live

    folder = tempfile.mkdtemp(prefix="whole-")
    for name, text in snapshot_files(read_live(scene.namespace, reader=shared)).items():  # type: ignore[arg-type]
        (Path(folder) / name).write_text(text)
    return folder


def watched(api: Api, keeper: Keeper, number: int, scene: Scene, answer: Future[Object], folder: str) -> Object:
    """One document from its creation to the end of its namespace."""
    found = seen(api, keeper, scene.namespace, scene.documents)
    row = {
        "number": number,
        "namespace": scene.namespace,
        "features": scene.features,
        "checker": answer.result(),
        "outcome": found.outcome,
        "words": found.words[:6],
        "seconds": round(found.seconds, 1),
        "documents": scene.documents,
        "snapshot": {path.name: path.read_text() for path in Path(folder).iterdir()},
    }
    shutil.rmtree(folder)
    cleared(api, scene)
    return row


def cleared(api: Api, scene: Scene) -> None:
    for item in (*scene.documents, *scene.before):
        place = api.place(item, scene.namespace)
        if place and f"/namespaces/{scene.namespace}/" not in place and item["kind"] != "Namespace":
            api("DELETE", f"{place}/{item['metadata']['name']}")
    api("DELETE", f"/api/v1/namespaces/{scene.namespace}")


def judged_again(results: Path) -> None:
    """The checker of today on the snapshots and documents of these results."""
    rows = rows_of(results)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as judges:
        answers = list(judges.map(checked_again, rows))
    results.write_text(
        "".join(json.dumps({**row, "checker": said}) + "\n" for row, said in zip(rows, answers, strict=True))
    )


def report(rows: Sequence[Object], seed: int) -> int:
    """One line for all, and the differences by cause."""
    verdicts = Counter(row["checker"]["verdict"] for row in rows)
    faults = Counter(fault(row) for row in rows)
    wrong = {kind: faults[kind] for kind in ("wrong always", "wrong never", "no answer")}
    causes: Counter[tuple[str, str]] = Counter((fault(row), cause(row)) for row in rows if fault(row))
    for (kind, why), number in sorted(causes.items(), key=lambda each: (each[0][0], -each[1])):
        first = next(row["number"] for row in rows if (fault(row), cause(row)) == (kind, why))
        print(f"{number:5}  {kind}: {why} (number {first})")
    print(
        f"{len(rows)} documents (seed {seed}): {verdicts['always']} always, {verdicts['may-queue']} may queue, "
        f"{verdicts['never'] + verdicts['error']} never, {verdicts['unknown']} unknown; "
        f"{wrong['wrong always']} wrong always, {wrong['wrong never']} wrong never, "
        f"{sum(causes.values()) - sum(wrong.values())} other differences"
        + (f"; {wrong['no answer']} without an answer" if wrong["no answer"] else "")
    )
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
