"""`gpuflow show FILE`."""

from __future__ import annotations

import argparse

from gpuflow.cli.inputs import add_common, python_is_allowed, read_site, show_remarks, with_params
from gpuflow.cli.terminal import paint, put, say, show_json
from gpuflow.report.drawing import dot, mermaid, terminal
from gpuflow.spec.canonical import to_document, to_yaml
from gpuflow.spec.loading import load

EXAMPLE = """gpuflow show pipeline.yaml
gpuflow show pipeline.py --format yaml > pipeline.yaml
gpuflow show pipeline.yaml --format mermaid"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "yaml", "mermaid", "dot", "json"), files=False)


def run(args: argparse.Namespace) -> int:
    site = read_site(args)  # nothing of it is shown, but a misspelled one is not passed over
    pipeline = with_params(load(args.file, allow_python=python_is_allowed(args)), args.param)
    show_remarks([pipeline], site)
    if args.format == "json":
        show_json(to_document(pipeline))
    elif args.format == "yaml":
        put(to_yaml(pipeline))
    else:
        draw = {"mermaid": mermaid, "dot": dot}.get(args.format)
        say(draw(pipeline) if draw else terminal(pipeline, paint))
    return 0
