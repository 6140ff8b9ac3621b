"""`gpuflow import FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuflow.cli.inputs import read_site
from gpuflow.cli.output import write_output
from gpuflow.cli.terminal import print_text, show_findings
from gpuflow.core.errors import Where, fail, join_names
from gpuflow.core.files import read_at_most
from gpuflow.core.printable import line
from gpuflow.importing.pipelines import IMPORT_HEADER, ImportResult, import_document
from gpuflow.readers import Document, Library, foreign_in, read_documents
from gpuflow.site import presets

COMMAND = Where("gpuflow import")
EXAMPLE = """gpuflow import workflow.yaml -o pipeline.yaml
gpuflow import workflow.yaml templates.yaml --name nightly   # templates that it refers to, from other files
gpuflow import job.yaml --site site.yaml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help = "an Argo, Kubeflow or Kubernetes file, and those it refers to; - for standard input"
    parser.add_argument("files", nargs="+", metavar="FILE", help=help)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write; default: standard output (-)")
    parser.add_argument("--name", metavar="NAME", help="which object of the files, when there are several")
    help = f"what the cluster calls its GPUs: site document or preset ({', '.join(presets())}); default: nvidia"
    parser.add_argument("--site", default="nvidia", metavar="FILE|PRESET", help=help)


def run(args: argparse.Namespace) -> int:
    if args.output == "":
        raise fail("GF903", "-o needs a path", where=COMMAND, hint="name a file: -o FILE")
    site = read_site(args)
    for file in args.files:
        _refuse_python(file)
    if args.output not in (None, "-"):
        _refuse_another(Path(args.output))
    found = [each for file in args.files for each in read_documents(file) if each.trigger is None]
    result = import_document(_choose_document(found, args.name), Library(tuple(found)), site)
    if result.pipeline is None:
        show_findings(result.findings)
        print_text(_count(result), sys.stderr)
        return 1
    show_findings(result.notes)
    return write_output(result.text(), args.output)


def _refuse_python(file: str) -> None:
    """A DAG or a Hera file is a program; what it makes is not in its text."""
    if not file.endswith(".py"):
        return
    text = f"{file} is a Python program; import reads documents"
    hint = "compile it and import the YAML (Hera: workflow.to_yaml(), kfp: compiler.Compiler); gpuflow check reads DAGs"
    raise fail("GF796", text, where=Where(file), hint=hint)


def _refuse_another(path: Path) -> None:
    """An earlier import is replaced; any other file may be the only copy of somebody's work."""
    if not path.is_file() or not path.stat().st_size:
        return
    if not read_at_most(path, len(IMPORT_HEADER), named=True).startswith(IMPORT_HEADER.encode()):
        text = f"-o would overwrite {path}, which gpuflow import did not write"
        raise fail("GF797", text, where=Where(str(path)), hint="name another file, or remove this one")


def _choose_document(found: list[Document], name: str | None) -> Document:
    active, passive = foreign_in(found)
    documents = [each.document for each in active] or [each.document for each in passive]
    if not documents:
        raise fail("GF702", "the files hold no document that gpuflow reads", where=COMMAND)
    named = [each for each in documents if name is None or each.name == name]
    if not named:
        names = ", ".join(sorted({each.name for each in documents}))
        raise fail("GF903", f'no object is named "{name}"', where=COMMAND, hint=f"there are {names}")
    others = [f"{each.kind} {each.name}" for each in documents if each is not named[0]]
    if others and name is None:
        chosen = line(f"{named[0].kind} {named[0].name}")
        print_text(
            f"imports {chosen}, the first; not imported: {line(join_names(others))} (--name says which)\n", sys.stderr
        )
    return named[0]


def _count(result: ImportResult) -> str:
    number = len(result.findings)
    return (
        f"{line(result.document.name)} is no pipeline: {number} {'thing' if number == 1 else 'things'} cannot be said\n"
    )
