"""`gpuflow demo`: a training that is killed and goes on, then the same description for three engines and a cluster."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

from gpuflow.checker.run import check
from gpuflow.cli.output import write_files
from gpuflow.cli.terminal import paint, print_text, uses_color
from gpuflow.cluster import Cluster, read_cluster
from gpuflow.core.errors import GpuflowError
from gpuflow.core.printable import line
from gpuflow.demands import demand_of
from gpuflow.engines import DEFAULT_ENGINE, ENGINES
from gpuflow.local.attempt import MARK, kill_all, last_lines, processes_of
from gpuflow.local.record import FOLDER, RUNNING, SUCCEEDED, runs_in
from gpuflow.report.text import COLOR, bar
from gpuflow.runtime.base import container
from gpuflow.site import Site
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, compile_with

EXAMPLE = """gpuflow demo
gpuflow demo -o demo/     # also writes the pipelines, the cluster and the compiled files"""
DATA = Path(str(resources.files("gpuflow"))) / "demo"
PROGRAM = ("moons.yaml", "moons.py")
SAVED = ".gpuflow/runs/*/steps/train/files/root/checkpoints/checkpoint-00000003"
"""The third checkpoint of six, whole."""
_LEFT_OUT = re.compile(r"[\d:]+ (\x1b\[2m)?(images|buckets|logs:|go on with|\w+: /)|gpuflow-run: ")
"""What a run says of places, which are gone when the demo has ended."""
WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="write the examples and their compiled files to this folder"
    )


def run(args: argparse.Namespace) -> int:
    is_same = True
    if sys.platform.startswith("linux"):
        with _temporary_folder() as folder:
            is_same = _show_training(folder)
    else:
        print_text(f"Nothing is run: gpuflow run needs Linux, and this is {sys.platform}. The rest works here.\n\n")
    site = Site.load(str(DATA / "site.yaml"))
    pipeline = load(DATA / "nightly.yaml")
    files = _compile_everywhere([load(DATA / "moons.yaml"), pipeline], site)
    if args.output:
        paths = [*sorted(DATA.rglob("*.yaml")), DATA / "moons.py"]
        sources = {path.relative_to(DATA): path.read_text(encoding="utf-8") for path in paths}
        folder = Path(args.output)
        write_files({folder / name: text for name, text in {**sources, **files}.items()}, folder=folder)
        print_text(f"written to {line(args.output)}; there, with gpuflow in python3: gpuflow run moons.yaml\n")
    team = read_cluster(str(DATA / "cluster"))
    wider = loads(
        (DATA / "nightly.yaml").read_text(encoding="utf-8").replace("a100-80gb x 2", "a100-80gb x 7"),
        "nightly-7-gpus.yaml",
    )
    limited = (*team.objects, *read_cluster(str(DATA / "limit-range")).objects)
    copied = replace(team, source="the same with gpu-limits", objects=limited)
    print_text("\n")
    _show_check("nightly in team-a: GPU quota 10, 4 in use", pipeline, site, team)
    _show_check("the same, training on 7 GPUs", wider, site, team)
    _show_check("the same with a common LimitRange (GPU min 1, max 2 per container)", pipeline, site, copied)
    return 0 if is_same else 1


# -- a training that is killed


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder in which nothing runs and that is gone when the block has ended, also by a signal."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        with tempfile.TemporaryDirectory(prefix="gpuflow-demo-") as name:
            folder = Path(name).resolve()
            try:
                yield folder
            finally:
                kill_all(str(folder))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_training(folder: Path) -> bool:
    """Train, kill everything of it, go on; whether the result has the bits of a training that nobody killed."""
    for name in PROGRAM:
        (folder / name).write_bytes((DATA / name).read_bytes())
    print_text(f"{paint('gpuflow run moons.yaml', 'bold')}  a small training in plain Python, on this machine\n")
    first = _start(folder, "run", "moons.yaml")
    _show(first, folder, until="train started")
    while first.poll() is None and not any(folder.glob(SAVED)):
        time.sleep(0.01)
    found = processes_of(str(folder))
    for process in found.values():
        container.signal_process(process, signal.SIGKILL)
    kill_all(str(folder))  # and what began meanwhile
    _show(first, folder)
    run = next(iter(runs_in(folder / FOLDER)), None)
    if run is None or run.read().step("train").state != RUNNING:
        print_text(paint("nothing was killed: the run had ended before its third checkpoint\n\n", "bold", "red"))
        return False
    print_text(f"{paint('kill -9', 'bold')}  in the middle of the training: {container.format_processes(found)}\n")
    print_text(f"{paint('gpuflow run moons.yaml --resume', 'bold')}\n")
    whole = _start(folder, "run", "moons.yaml", "--folder", "undisturbed")
    _show(_start(folder, "run", "moons.yaml", "--resume"), folder)
    for number in range(1, run.read().step("train").attempts + 1):
        log = "; ".join(last_lines(run.attempt("train", number) / "log"))
        _show_folded(f"log of train, attempt {number}: {log}", "  ")
    said, bits, others = whole.communicate()[0], _bits(folder / FOLDER), _bits(folder / "undisturbed")
    is_same = whole.returncode == 0 and run.state == SUCCEEDED and bits == others
    differing = [name for name in sorted({*bits, *others}) if bits.get(name) != others.get(name)]
    text = f"done: all {len(bits)} outputs have the same bits as those of a run that was not killed"
    if not is_same:
        print_text(said if whole.returncode else "")
        text = f"not as in a run that was not killed: {line(', '.join(differing)) or 'a run failed'}"
    print_text(f"{paint(text, 'bold', 'green' if is_same else 'red')}\n\n")
    return is_same


def _start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`gpuflow …` in this folder, with this Python first in PATH, and with a mark by which it is found again."""
    environ = {
        **os.environ,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(DATA.parents[1]), os.environ.get("PYTHONPATH")))),
        MARK: str(folder),
        "FORCE_COLOR" if uses_color(sys.stdout) else "NO_COLOR": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "gpuflow", *words],
        cwd=folder,
        env=environ,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the demo, which then ends everything here
    )


def _show(process: subprocess.Popen[str], folder: Path, until: str | None = None) -> None:
    """What it says, as it says it, without what is said of places; to its end, or to a line with these words."""
    assert process.stdout is not None
    for text in process.stdout:
        if not _LEFT_OUT.match(text):
            print_text(f"  {text.replace(f'{folder}/', '')}")
            sys.stdout.flush()
        if until is not None and until in text:
            return
    process.wait()


def _bits(folder: Path) -> dict[str, bytes]:
    """Every output of a run as the step wrote it."""
    found = sorted(folder.glob("runs/*/steps/*/files*/outputs/*"))
    own = (path for path in found if not path.name.endswith((".uri", ".artifact.json")))  # have the run's name in them
    return {f"{path.parents[2].name}.{path.name}": path.read_bytes() for path in own}


# -- the same for three engines and a cluster


def _compile_everywhere(pipelines: list[Pipeline], site: Site) -> dict[Path, str]:
    files: dict[Path, str] = {}
    for name in sorted(ENGINES):
        sizes, losses = [], []
        try:
            for pipeline in pipelines:
                request = Request(pipeline, site, site.namespace, f"{pipeline.name}.yaml")
                compiled = compile_with(load_target(name), request, allow_lossy=True)
                files |= {Path(name) / each.name: each.text for each in compiled.artifacts}
                sizes.append(f"{compiled.artifact.name} {len(compiled.artifact.text.splitlines())} lines")
                losses += [loss.construct or loss.message for loss in compiled.losses]
        except GpuflowError as refusal:
            print_text(f"compile {name:9} {paint('not here', 'yellow')}  {line(refusal.findings[0].message)}\n")
            continue
        lost = f"without {', '.join(losses)}" if losses else "nothing lost"
        print_text(f"compile {name:9} {paint('ok', 'green')}  {', '.join([*sizes, lost])}\n")
    return files


def _show_check(title: str, pipeline: Pipeline, site: Site, cluster: Cluster) -> None:
    assert site.namespace is not None
    report = check(demand_of(pipeline, site, DEFAULT_ENGINE), cluster, site.namespace)
    verdict = paint(report.verdict.replace("-", " ").upper(), "bold", COLOR[report.verdict])
    print_text(f"{paint('check', 'bold')} {title}: {verdict}\n")
    for scope in report.scopes:
        if "nvidia" in scope.resource:
            numbers = f"used {scope.used!s:3} peak {scope.peak!s:3} hard {scope.hard!s:3}"
            print_text(f"  {scope.resource:33} {numbers} {bar(scope)}\n")
    for finding in report.findings[:2]:
        _show_folded(f"{finding.code} {finding.message}", "  ")
        if finding.kubernetes:
            _show_folded(f"Kubernetes: {finding.kubernetes}", "        ")
    print_text("\n")


def _show_folded(text: str, indent: str) -> None:
    words = textwrap.TextWrapper(WIDTH, break_long_words=False, break_on_hyphens=False)
    words.initial_indent, words.subsequent_indent = indent, f"{indent}      "
    print_text("\n".join(words.wrap(line(text))) + "\n")
