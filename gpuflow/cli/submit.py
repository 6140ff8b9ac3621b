"""`gpuflow submit FILE --engine argo|airflow|kubeflow`."""

from __future__ import annotations

import argparse
from dataclasses import replace

from gpuflow.cli.engine_runs import add_engine_run, add_watch, connection_of, watch, words_for, writer
from gpuflow.cli.inputs import load_pipeline, read_site, with_params
from gpuflow.cli.terminal import progress, show_findings, show_json
from gpuflow.runs import client_of
from gpuflow.runs.start import Order, start

EXAMPLE = """gpuflow submit pipeline.yaml --engine argo --namespace team-a --param lr=0.1 --watch
gpuflow submit pipeline.yaml --engine argo --namespace team-a --name nightly-2026-11-19   # twice: one run
gpuflow submit pipeline.yaml --engine argo --namespace team-a --format json > run.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", help="pipeline: .yaml, .json or .py")
    add_engine_run(parser)
    add("--param", action="append", default=[], metavar="K=V", help="value of a parameter; may be repeated")
    add(
        "--name", help="name of the run; the same name twice starts one run. Default: the pipeline's, with some letters"
    )
    add_watch(parser)
    add("--no-check", action="store_true", help="start it without asking whether the cluster admits it")
    add("--apply", action="store_true", help="create what the run needs and the engine lacks")
    add("--allow-lossy", action="store_true", help="start it without what the engine cannot express, and list it")
    help = "run a pipeline that is a Python file, as is the default; --no-allow-python refuses it"
    add("--allow-python", action=argparse.BooleanOptionalAction, help=help)


def run(args: argparse.Namespace) -> int:
    pipeline, site, connection = load_pipeline(args.file, args, None), read_site(args), connection_of(args)
    given = {name: param.default for name, param in with_params(pipeline, args.param).params.items() if param.is_given}
    client = client_of(args.engine, connection)
    order = Order(given, args.name, not args.no_check, args.apply, args.allow_lossy)
    with progress(f"submitting {pipeline.name}"):
        plan, started, findings = start(client, connection, pipeline, site, order)
    said = (*findings, *started.findings)
    show_findings(said)
    write = writer(args)
    write(f"run {started.run}{f': {started.url}' if started.url else ''}")
    if args.watch:
        return watch(args, client, started.run, plan, said)
    if args.format == "json":
        show_json(replace(client.state(started.run, plan), findings=said).document())
    else:
        write(f"follow it: gpuflow status {words_for(args, started.run)} --watch")
    return 0
