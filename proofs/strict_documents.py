"""The strict dry run of a real API server, and what gpuflow says of the fields of the same documents.

    python -m proofs strict-documents --count 5000 --seed 1

Documents of Kubernetes, Argo, Kueue, JobSet, Trainer, MPI, Volcano, Ray and LeaderWorkerSet, from the examples, the
tests and public corpora where these are at hand, each with one or two mistakes: a misspelled, moved, added or removed
field, or a value of another type. Each is posted with `dryRun=All&fieldValidation=Strict` to a private control plane
that has the CRDs.
What is no matter of the schema (names, immutability, sums) is listed apart and not counted. Cases that were asked are
kept in build/strict-documents/, and asked again only with another seed.
"""

from __future__ import annotations

import argparse
import collections
import copy
import http.client
import json
import random
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpuflow.core.errors import GpuflowError
from gpuflow.formats.documents import read_documents
from gpuflow.formats.nodes import as_plain
from gpuflow.formats.schemas import path_text, schema_of
from tests.cluster.cluster import Cluster
from tools.schemas import MODULES, folder_of

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "strict-documents"
NAME = "strict-documents"
PLACES = ("docs", "tests", "proofs")
CORPORA = ROOT.parent / "shared" / "corpora"
UNKNOWN = re.compile(r'unknown field "((?:[^"\\]|\\.)*)"')
TYPES = re.compile(r"cannot unmarshal|must be of type|cannot be handled as|expected map|expected list")
APART = (
    ".status.",
    "JSONSchemaProps",
    "quantit",
    "parsing time",
    "illegal base64",
    "unable to parse",
    "invalid character",
)
"""Faults of a value of the right type, and of what nobody writes by hand."""
FIXED = ("apiVersion", "kind", "status")


def documents(places: list[Path]) -> list[dict[str, Any]]:
    """Every document of which there is a schema, once, in a fixed order."""
    found: dict[str, dict[str, Any]] = {}
    for place in places:
        for file in sorted([*place.rglob("*.yaml"), *place.rglob("*.yml")]):
            try:
                trees = [
                    as_plain(each.tree, nulls=True, numbers=True) for each in read_documents(str(file)) if each.kind
                ]
            except GpuflowError:
                continue
            for tree in trees:
                if isinstance(tree, dict) and schema_of(str(tree.get("apiVersion")), str(tree.get("kind"))):
                    if tree["kind"] == "CustomResourceDefinition":
                        continue
                    tree.pop("status", None)
                    found.setdefault(json.dumps(tree, sort_keys=True, default=str), tree)
    return list(found.values())


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key and item of a document, but its head."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in entries:
        if not path and key in FIXED:
            continue
        if path != ("metadata",) or key not in ("name", "generateName", "namespace"):
            yield (*path, key)
        yield from places_in(each, (*path, key))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        tree = tree[part]
    return tree


def misspelled(word: str, chance: random.Random) -> str:
    place = chance.randrange(len(word))
    match chance.randrange(5):
        case 0:
            return word[:place] + word[place + 1 :] or "x"
        case 1:
            return word[:place] + word[place] + word[place:]
        case 2:
            return word.swapcase() if len(word) < 3 else word[0] + word[1:].lower()
        case 3:
            return word.removesuffix("s") if word.endswith("s") else f"{word}s"
        case _:
            return word[:place] + chance.choice("aeiounstrX_") + word[place + 1 :]


VALUES: tuple[Any, ...] = (
    "text",
    "7",
    "true",
    7,
    -1,
    2**40,
    1.5,
    True,
    False,
    None,
    [],
    ["a"],
    [1],
    {},
    {"a": "b"},
    [{}],
)


def mutated(tree: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The document with one or two mistakes, or, rarely, as it is."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice((0, 1, 1, 1, 1, 1, 2))):
        paths = list(places_in(tree))
        if not paths:
            break
        path = chance.choice(paths)
        owner, key = at(tree, path[:-1]), path[-1]
        match chance.randrange(6):
            case 0 | 1 if isinstance(key, str):
                owner[misspelled(key, chance)] = owner.pop(key)
            case 2:
                owner[key] = copy.deepcopy(chance.choice(VALUES))
            case 3 if isinstance(key, str):
                value = owner.pop(key)
                homes = [each for each in ((), *places_in(tree)) if isinstance(at(tree, each), dict)]
                at(tree, chance.choice(homes))[key] = value
            case 4 if isinstance(key, str):
                owner[chance.choice(("limit", "gpu", "nodeselector", "replica", "enabled", "image"))] = chance.choice(
                    (1, "a")
                )
            case 5:
                del owner[key]
            case _:
                owner[key] = copy.deepcopy(chance.choice(VALUES))
    return tree


def cases(trees: list[dict[str, Any]], seed: int) -> Iterator[dict[str, Any]]:
    """Of each kind as many."""
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for tree in trees:
        kinds.setdefault((tree["apiVersion"], tree["kind"]), []).append(tree)
    order = sorted(kinds)
    for number in range(10**9):
        chance = random.Random(f"{seed}-{number}")
        tree = mutated(chance.choice(kinds[chance.choice(order)]), chance)
        tree["metadata"] = tree.get("metadata")
        if isinstance(tree["metadata"], dict):
            tree["metadata"] = {
                "name": "x",
                **{k: v for k, v in tree["metadata"].items() if k not in ("namespace", "generateName")},
            }
        yield tree


def ask(address: str, token: str) -> int:
    """Inside the cluster's network: documents as lines, and what the API server says of each."""
    context = ssl._create_unverified_context()  # the certificate is the private cluster's own
    host = address.removeprefix("https://")
    line = http.client.HTTPSConnection(host, context=context, timeout=30)
    head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    resources: dict[str, dict[str, tuple[str, bool]]] = {}

    def call(method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        line.request(method, path, body, head)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")

    for text in sys.stdin:
        tree = json.loads(text)
        version, kind = tree["apiVersion"], tree["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in resources:
            listed = call("GET", root)[1].get("resources", ())
            resources[version] = {
                each["kind"]: (each["name"], each["namespaced"]) for each in listed if "/" not in each["name"]
            }
        if kind not in resources[version]:
            print(json.dumps([404, "not served"]), flush=True)
            continue
        plural, namespaced = resources[version][kind]
        where = f"{root}/namespaces/default/{plural}" if namespaced else f"{root}/{plural}"
        status, said = call("POST", f"{where}?dryRun=All&fieldValidation=Strict", json.dumps(tree).encode())
        print(json.dumps([status, said.get("message", "") if status >= 300 else ""]), flush=True)
    return 0


def difference(tree: Mapping[str, Any], status: int, said: str) -> str | None:
    """What the two say differently; None where they agree, or where the server speaks of something else."""
    schema = schema_of(str(tree["apiVersion"]), str(tree["kind"]))
    assert schema is not None
    ours = collections.defaultdict(list)
    for fault in schema.faults(tree):
        ours[fault.code].append(path_text(fault.path))
    if status < 300:
        return f"accepted, and we refuse {dict(ours)}" if ours else None
    if any(word in said for word in APART):
        return None
    theirs = {each.replace('\\"', '"') for each in UNKNOWN.findall(said)}
    if theirs and not all(each.startswith("status.") for each in theirs):
        if "GF816" in ours:
            return None  # one of the two mistakes is enough
        written = {each for each in theirs if not each.startswith("status.")}
        return None if written == set(ours["GF815"]) else f"unknown: {sorted(theirs)}, ours {dict(ours)}"
    if theirs:
        return None
    if ours["GF815"] and not ours["GF816"]:
        return f"unknown fields are ours alone: {dict(ours)}"
    if TYPES.search(said):
        return None if ours["GF816"] else f"a type is theirs alone, ours {dict(ours)}"
    if ours["GF816"]:
        return f"types are ours alone: {dict(ours)}"
    causes = said.replace("metadata.name: Required value", "")
    for words, code in (("Unsupported value", "GF818"), ("Required value", "GF817")):
        if words in causes and not schema.is_native and not ours[code]:
            return f"{words} is theirs alone, ours {dict(ours)}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default=NAME, help="the cluster; one that is up is used and left up")
    parser.add_argument("--ask", nargs=2, metavar=("ADDRESS", "TOKEN"), help=argparse.SUPPRESS)
    parser.add_argument("--again", action="store_true", help="judge what was kept, and ask nothing")
    options = parser.parse_args()
    if options.ask:
        return ask(*options.ask)
    trees = documents([*(ROOT / each for each in PLACES), CORPORA])
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = KEPT / f"{options.seed}.jsonl"
    done = [json.loads(each) for each in kept.read_text().splitlines()] if kept.exists() else []
    if len(done) < options.count and not options.again:
        found = Cluster.find(options.name)
        cluster = found or Cluster.up(options.name, node=False)
        try:
            _ask_server(cluster, trees, options.seed, len(done), options.count, kept)
        finally:
            if found is None:
                Cluster.down(options.name)
        done = [json.loads(each) for each in kept.read_text().splitlines()]
    return report(done)


def _ask_server(cluster: Cluster, trees: list[dict[str, Any]], seed: int, first: int, count: int, kept: Path) -> None:
    definitions: dict[str, Any] = {}
    for module in MODULES:
        for file in sorted((folder_of(module.module) / module.folder).glob("*.yaml")):
            for each in yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader):
                if each and each["kind"] == "CustomResourceDefinition":
                    each["spec"].pop("conversion", None)  # its webhook does not run
                    definitions[each["metadata"]["name"]] = each
    there = set(
        cluster.kube("get", "crd", "-o", "name").replace("customresourcedefinition.apiextensions.k8s.io/", "").split()
    )
    for name, each in definitions.items():
        if name not in there:
            cluster.kube.apply(each)
    cluster.kube.await_definitions()
    config = yaml.safe_load(Path(cluster.environment()["KUBECONFIG"]).read_text())
    address, user = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]
    words = [*cluster.enter, sys.executable, "-m", "proofs.strict_documents", "--ask", address, user["token"]]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child,
        kept.open("a") as log,
    ):
        assert child.stdin is not None and child.stdout is not None
        for number, tree in enumerate(cases(trees, seed)):
            if number >= count:
                break
            if number < first:
                continue
            child.stdin.write(json.dumps(tree) + "\n")
            child.stdin.flush()
            status, said = json.loads(child.stdout.readline())
            log.write(json.dumps([tree, status, said]) + "\n")
        child.stdin.close()


def report(done: list[Any]) -> int:
    counts, differences = collections.Counter[str](), list[str]()
    for tree, status, said in done:
        if status == 404 or tree["kind"] == "CustomResourceDefinition":
            counts["not served" if status == 404 else "schemas themselves"] += 1
            continue
        found = difference(tree, status, said)
        what = (
            "unknown"
            if UNKNOWN.search(said)
            else "type"
            if TYPES.search(said)
            else "accepted"
            if status < 300
            else "other"
        )
        counts[what] += 1
        if found:
            differences.append(f"{tree['apiVersion']} {tree['kind']}: {found}\n    server {status}: {said[:400]}")
    print("\n".join(differences))
    told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    print(f"{len(done)} documents ({told}): {len(differences)} differences")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
