"""`python -m proofs readers`: foreign workflows on the real Argo controller, against what the reader says of them.

Needs the private cluster: it uses the one of that name, or starts one and ends it. No node runs pods.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import http.client
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import local

from proofs.readers import corpus, generated
from proofs.readers.case import Case
from proofs.readers.proving import Result, Results, line, prove, table
from proofs.readers.watching import Watch
from tests.cluster import nodes
from tests.cluster.borrowing import borrowed
from tests.cluster.cluster import Cluster
from tests.differential.live.api import Api

TRIES = 3
CLONE_NEWNET = 0x40000000
NODE = "readers"
ROOM = {"cpu": "100k", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "10k", "nvidia.com/gpu": "100k"}
STORE = """\
s3:
  bucket: nowhere
  endpoint: 127.0.0.1:9
  insecure: true
"""
"""Without a place for artifacts the controller refuses steps that have some. No program runs, so none is asked for."""


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proofs readers", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="how many generated workflows (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="where they come from (%(default)s)")
    parser.add_argument("--smoke", type=int, metavar="N", help="only N workflows of the corpus, and --count generated")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only workflows whose name has this in it")
    parser.add_argument("--again", action="store_true", help="play also what has been played")
    parser.add_argument("--sum", action="store_true", help="play nothing; print what there is")
    parser.add_argument("--name", default="readers", help="the name of the private cluster (%(default)s)")
    parser.add_argument("--threads", type=int, default=8, help="how many side by side (%(default)s)")
    return parser.parse_args(given)


def chosen(options: argparse.Namespace) -> tuple[list[Case], list[tuple[str, str]]]:
    """The cases to play, and those left out with the reason."""
    cases: list[Case] = []
    left_out: list[tuple[str, str]] = []
    for each in corpus.cases():
        if isinstance(each, Case):
            cases.append(each)
        else:
            left_out.append(each)
    if options.smoke is not None:
        cases = cases[:: max(1, len(cases) // max(1, options.smoke))][: options.smoke] if options.smoke else []
    cases += [generated.case(options.seed, number) for number in range(options.count)]
    return [case for case in cases if re.search(options.only, case.name)], left_out


@contextlib.contextmanager
def furnished(cluster: Cluster) -> Iterator[None]:
    """One simulated node with room for everything, and a place for artifacts."""
    kube = cluster.kube
    kube.apply(nodes.simulated(NODE, ROOM))
    nodes.await_ready(kube, NODE)
    config = kube.within("argo").get("configmap", "workflow-controller-configmap")
    assert config is not None
    if "artifactRepository" not in config["data"]:
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workflow-controller-configmap"}}
        kube.within("argo").apply({**head, "data": {**config["data"], "artifactRepository": STORE}})
        cluster.restart("workflow-controller")
    try:
        yield
    finally:
        kube("delete", "node", NODE, "--ignore-not-found", "--wait=false")


def play(cluster: Cluster, cases: list[Case], seed: int, threads: int, keep: Callable[[Result], None]) -> None:
    """Side by side, in the cluster's network: threads that one starts are in the network that it is in."""
    kubeconfig, own = cluster.layout.kubeconfig, local()

    def one(watch: Watch, case: Case) -> Result:
        if not hasattr(own, "api"):
            own.api = Api(kubeconfig)
        for attempt in range(TRIES):
            try:
                return prove(own.api, watch, case, seed)
            except (OSError, RuntimeError, http.client.HTTPException):
                # A machine that is too busy: the API server did not answer in time.
                if attempt == TRIES - 1:
                    raise
                own.api = Api(kubeconfig)
        raise AssertionError("unreachable")

    def inside() -> None:
        _enter(cluster.sandbox.pid)
        watch = Watch(kubeconfig)
        with ThreadPoolExecutor(threads) as pool:
            broken: list[BaseException] = []
            for done in as_completed([pool.submit(one, watch, case) for case in cases]):
                error = done.exception()
                if error is None:
                    keep(done.result())
                else:
                    broken.append(error)
        watch.over = True
        if broken:
            raise broken[0]  # all others are kept, and the next call plays what is missing

    with ThreadPoolExecutor(1) as outer:
        outer.submit(inside).result()


def _enter(pid: int) -> None:
    """Put this thread, and nothing else, into the network of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{pid}/ns/net").open() as network:
        if libc.setns(network.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def main(given: Sequence[str] | None = None) -> int:
    options = _arguments(given)
    wanted, left_out = chosen(options)
    kept = Results(options.seed)
    cases = [case for case in wanted if options.again or case.name not in kept.all]
    begun = time.monotonic()
    print(
        f"seed {options.seed}: {len(wanted)} workflows, {len(wanted) - len(cases)} played before; {kept.path}",
        flush=True,
    )

    def keep(result: Result) -> None:
        kept.keep(result)
        print(line(result), flush=True)

    if cases and not options.sum:
        with borrowed(options.name, "argo", node=False) as cluster, furnished(cluster):
            play(cluster, cases, options.seed, options.threads, keep)
    found = [kept.all[case.name] for case in wanted if case.name in kept.all]
    print("\n".join(table(found)))
    for name, reason in left_out:
        print(f"left out: {name}: {reason}")
    print(f"{time.monotonic() - begun:.0f} s; seed {options.seed}")
    failed = any(each["exceeded"] for each in found) or len(found) < len(wanted)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
