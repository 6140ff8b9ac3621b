"""`gpuflow run FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuflow import local
from gpuflow.cli.inputs import load_pipeline, with_params
from gpuflow.cli.terminal import line_writer, paint, show_json
from gpuflow.core.errors import Where, fail
from gpuflow.local import Console
from gpuflow.local.record import FOLDER, find
from gpuflow.local.resume import LATEST
from gpuflow.site import presets
from gpuflow.spec.pipeline import Pipeline

COMMAND = Where("gpuflow run")
EXAMPLE = """gpuflow run pipeline.yaml --param lr=0.1
gpuflow run pipeline.yaml --resume                 # go on with the latest run that is not finished
gpuflow run pipeline.yaml --until train            # only train, and what it needs
gpuflow run pipeline.yaml --again evaluate         # in the latest run: evaluate, and what follows from it, anew
gpuflow run pipeline.yaml --format json > run.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", nargs="?", metavar="FILE", help="pipeline: .yaml, .json or .py; with --resume ID: that of the run")
    add("--param", action="append", default=[], metavar="K=V", help="value of a parameter; may be repeated")
    help = "go on with a run: finished steps are kept, others continue from their checkpoints; default: the latest run "
    help += "of the pipeline that is not finished"
    add("--resume", nargs="?", const=LATEST, metavar="ID", help=help)
    add(
        "--edited", action="store_true", help="with --resume: go on although steps that have not succeeded were changed"
    )
    help = "run a step, and what follows from it, anew in the run that is resumed; may be repeated"
    add("--again", action="append", default=[], metavar="STEP", help=help)
    add("--until", metavar="STEP", help="run a step and what it needs, and nothing else")
    help = "run one step; what it needs is taken from the last run that is finished, or from --resume ID"
    add("--only", metavar="STEP", help=help)
    add("--jobs", type=_jobs, metavar="N", help="at most N programs at the same time; default: as CPU and memory allow")
    help = "run although this machine lacks the GPUs, CPU or memory that steps ask for"
    add("--pretend-gpus", action="store_true", help=help)
    help = "put the folder of a Python first in PATH of a step: train=.venv/bin/python; may be repeated"
    add("--env-for", action="append", default=[], metavar="STEP=PYTHON", help=help)
    add("--container", action="store_true", help="run each step in its image, through podman or docker")
    add("--approve", action="append", default=[], metavar="STEP", help="a step that asks is approved; may be repeated")
    help = "what a step that asks does: ask at the terminal, and fail where there is none; fail; or wait for an answer"
    add("--approvals", choices=("ask", "fail", "wait"), default="ask", help=f"{help}. Default: ask")
    add("--notify", action="store_true", help="tell those whom notify: names; default: say that they were not told")
    add("--allow-lossy", action="store_true", help="run steps without what only a cluster has: sidecars and hooks")
    help = f"where runs are kept; default: {FOLDER}"
    add("--folder", default=FOLDER, metavar="DIR", help=help)
    help = f"site document or preset ({', '.join(presets())}), for its defaults; default: nvidia"
    add("--site", default="nvidia", metavar="FILE|PRESET", help=help)
    help = "run a pipeline that is a Python file, as is the default; --no-allow-python refuses it"
    add("--allow-python", action=argparse.BooleanOptionalAction, help=help)
    add("--format", choices=("text", "json"), default="text", help="default: text; json alone goes to standard output")


def _jobs(word: str) -> int:
    if not (word.isascii() and word.isdigit() and 1 <= int(word) <= 10_000):
        raise argparse.ArgumentTypeError(f'"{word}" is not a number of programs from 1 to 10000')
    return int(word)


def run(args: argparse.Namespace) -> int:
    pipeline = _pipeline(args)
    given = with_params(pipeline, args.param)
    out = sys.stderr if args.format == "json" else sys.stdout
    result = local.run(
        pipeline,
        params={name: param.default for name, param in given.params.items() if param.is_given},
        console=Console(line_writer(out), lambda text, style: paint(text, style, stream=out)),
        folder=args.folder,
        site=args.site,
        resume=args.resume,
        until=args.until,
        only=args.only,
        again=args.again,
        edited=args.edited,
        jobs=args.jobs,
        pretend_gpus=args.pretend_gpus,
        approve=args.approve,
        approvals=args.approvals,
        env_for=_pythons(args.env_for),
        notify=args.notify,
        allow_lossy=args.allow_lossy,
        container=args.container,
    )
    if args.format == "json":
        show_json(result.document())
    return result.exit_code


def _pipeline(args: argparse.Namespace) -> Pipeline:
    """The pipeline that is named, or that of the run that is."""
    if args.file is None and args.resume and Path(args.resume).is_file():
        args.file, args.resume = args.resume, LATEST  # `--resume FILE`: the word belongs to FILE
    if args.file is None:
        if not args.resume:
            raise fail("GF903", "no pipeline is named", where=COMMAND, hint="gpuflow run FILE")
        source = find(Path(args.folder), args.resume).facts().source
        if source is None:
            text = f"run {args.resume} came from no file"
            raise fail("GF903", text, where=COMMAND, hint="go on with it in Python: gpuflow.local.run(…, resume=…)")
        args.file = source
    return load_pipeline(args.file, args, None)


def _pythons(words: list[str]) -> dict[str, str]:
    found = {}
    for word in words:
        step, equals, python = word.partition("=")
        if not (step and equals and python):
            raise fail("GF903", f'--env-for "{word}" is not STEP=PYTHON', where=COMMAND)
        found[step] = python
    return found
