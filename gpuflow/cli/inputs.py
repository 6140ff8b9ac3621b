"""What several commands take: pipelines, a site, a namespace, parameter values."""

from __future__ import annotations

import argparse
import gc
import json
import re
from collections.abc import Iterable

from pydantic_core import PydanticCustomError

from gpuflow.cli.folders import pipeline_files
from gpuflow.cli.terminal import progress, show_findings
from gpuflow.cluster import Cluster, read_cluster
from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.core.gc_pause import gc_paused
from gpuflow.demands import Demand
from gpuflow.engines import NO_ENGINE, engine_names
from gpuflow.formats.contents import contents_of
from gpuflow.site.model import Site, exposed_in_site, presets, without_site_silenced
from gpuflow.spec.loading import load, loads
from gpuflow.spec.params import Param, a
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.pipeline_rules import broken_rules
from gpuflow.spec.rules.remarks import remarks_on, without_silenced
from gpuflow.targets.target import findings_beside_broken_rules

NO_PIPELINE = ("GF108", "GF114", "GF116", "GF120")
"""What is said of a document that does not begin as a pipeline does, or that is not alone in its file."""
OWN_FILES = "pipeline: .yaml, .json or .py; or a folder: every YAML or JSON file in it that is a pipeline"
ANY_FILES = (
    "pipeline, or a document of Argo, Kubeflow or Kubernetes; - for standard input; or a folder or a quoted pattern: "
    "every YAML or JSON file in it that is one of these"
)


def add_live(parser: argparse.ArgumentParser) -> None:
    """How to reach a live cluster."""
    from gpuflow.cluster.kinds import TIMEOUT

    parser.add_argument("--context", help="context of the kubeconfig; default: the current one")
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig; default: $KUBECONFIG or ~/.kube/config")
    help = f"seconds to wait for each answer from the cluster; default: {TIMEOUT}"
    parser.add_argument("--timeout", type=float, default=TIMEOUT, metavar="S", help=help)


def cluster_at(args: argparse.Namespace, namespace: str) -> Cluster:
    """What --cluster names: manifests, or the live cluster as a namespace of it shows itself."""
    if args.cluster == "live":
        from gpuflow.cluster.live import read_live

        return read_live(namespace, args.context, kubeconfig=args.kubeconfig, timeout=args.timeout)
    with progress(f"reading {args.cluster}"), gc_paused():
        found = read_cluster(args.cluster)
        if len(found.objects) > 1_000:
            gc.freeze()  # it is kept to the end: to look for garbage in it takes a tenth of a small check
        return found


def add_common(parser: argparse.ArgumentParser, formats: tuple[str, ...], *, foreign: bool = False) -> None:
    """FILE…, --site, --namespace, --param and --format. `foreign`: documents of other tools are read too."""
    parser.add_argument("files", nargs="+", metavar="FILE|DIR", help=ANY_FILES if foreign else OWN_FILES)
    help = f"site document or preset ({', '.join(presets())}); default: nvidia"
    parser.add_argument("--site", default="nvidia", metavar="FILE|PRESET", help=help)
    add_namespace(parser)
    parser.add_argument(
        "--param", action="append", default=[], metavar="K=V", help="value of a parameter; may be repeated"
    )
    parser.add_argument(
        "--allow-python",
        action=argparse.BooleanOptionalAction,
        help="run files that are Python: pipelines, as is the default, and with this flag Airflow DAGs and Hera "
        "workflows too; --no-allow-python refuses all"
        if foreign
        else "run pipelines that are Python files, as is the default; --no-allow-python refuses them",
    )
    if foreign:
        help = "the Python with Airflow that DAG files are read by; default: the one gpuflow runs in"
        parser.add_argument("--airflow-python", metavar="EXE", help=help)
        parser.add_argument("--hera-python", metavar="EXE", help="the same for Hera; default: the one gpuflow runs in")
    parser.add_argument("--format", choices=formats, default=formats[0], help=f"default: {formats[0]}")


def add_namespace(parser: argparse.ArgumentParser) -> None:
    help = "namespace of documents that name none; default: the site's"
    parser.add_argument("--namespace", metavar="NS", type=namespace_text, help=help)


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=(NO_ENGINE, *engine_names()),
        help="also count this engine's own containers and pods; none: only the steps' own. Default: the document's own "
        "engine (argo for a Workflow, kubeflow for a PipelineSpec, airflow for a DAG), none for pipelines of gpuflow",
    )


def namespace_text(word: str) -> str:
    """A namespace as it stands in a command."""
    if len(word) > 63 or not re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", word):
        raise argparse.ArgumentTypeError(
            f"\"{word}\" is not a namespace: use lower-case letters, digits and '-', at most 63 characters"
        )
    return word


def read_pipelines(args: argparse.Namespace, site: Site, engine: str = NO_ENGINE) -> list[Pipeline]:
    """Every file as a pipeline with the given parameters; all errors of all files in one go. Of a file that breaks
    rules, also what the site and the engine refuse. `args.files` then has the pipelines of each folder in its place."""
    args.files = pipeline_files(args.files)
    pipelines, findings = [], []
    for file in args.files:
        try:
            pipelines.append(own_pipeline(file, args))
        except GpuflowError as refusal:
            further = findings_beside_broken_rules(refusal, site, engine)
            findings += [finding.in_file(file) for finding in (*refusal.findings, *further)]
    if findings:
        raise GpuflowError(findings)
    return pipelines


def own_pipeline(file: str, args: argparse.Namespace, raw: bytes | None = None) -> Pipeline:
    """The pipeline of one file with the given parameters; of another tool's document, what to do with it."""
    try:
        return with_params(load_pipeline(file, args, raw), args.param)
    except GpuflowError as refusal:
        if refusal.findings[0].code in NO_PIPELINE and (documents := contents_of(file).documents):
            kinds = ", ".join(dict.fromkeys(each.kind for each in documents if each.kind))
            hint = "gpuflow check, demand and show read it as it is; gpuflow import writes it as a pipeline"
            where = documents[0].where()
            raise fail("GF706", f"{file} is no pipeline of gpuflow: {kinds}", where=where, hint=hint) from None
        raise


def load_pipeline(file: str, args: argparse.Namespace, raw: bytes | None) -> Pipeline:
    """`raw`: what was read of a stream, which can be read only once."""
    return load(file, allow_python=python_is_allowed(args)) if raw is None else loads(raw, file)


def show_remarks(pipelines: list[Pipeline], site: Site) -> None:
    """Secrets in plain text and text like a template, for commands whose output has no place for findings."""
    own = [finding for each in pipelines for finding in without_silenced(each, remarks_on(each))]
    show_findings(without_site_silenced(site, [*own, *exposed_in_site(site)]))


def with_params(pipeline: Pipeline, given: list[str]) -> Pipeline:
    """The pipeline with other defaults for its parameters, checked again: a fan-out may run over one of them."""
    if not given:
        return pipeline
    params = dict(pipeline.params)
    file = pipeline.source.file
    for name, text in params_given(given, file).items():
        if name not in params:
            text = f'--param {name}: pipeline "{pipeline.name}" has no such parameter'
            raise fail("GF178", text, where=Where(file), hint=did_you_mean(name, params))
        params[name] = _with_default(params[name], name, text, file)
    changed = pipeline.model_copy(update={"params": params})
    refusals = [finding for finding in broken_rules(changed) if finding.severity == "error"]
    if refusals:
        raise GpuflowError(refusals)
    return changed


def params_given(words: Iterable[str], file: str | None = None) -> dict[str, str]:
    """What `--param NAME=VALUE` says, by name."""
    given: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise fail("GF903", f'--param "{word}" is not name=value', where=Where(file))
        given[name] = text
    return given


def _with_default(param: Param, name: str, text: str, file: str | None) -> Param:
    try:
        value = text if param.type == "string" else json.loads(text)
        return param.with_value(value)
    except json.JSONDecodeError:
        raise fail(
            "GF903", f'--param {name}: "{text}" is not {a(param.type)}', where=Where(file), hint="write it as JSON"
        ) from None
    except PydanticCustomError as refusal:
        context = refusal.context or {}
        raise GpuflowError(
            Finding(refusal.type, f"--param {name}: {context.get('message')}", Where(file), context.get("hint"))
        ) from None


def python_is_allowed(args: argparse.Namespace) -> bool:
    """Whether a pipeline that is a Python file may be run: a file that somebody names is, unless told otherwise."""
    return args.allow_python is not False


def read_site(args: argparse.Namespace) -> Site:
    return Site.load(args.site)


def namespace_of(args: argparse.Namespace, site: Site, demand: Demand | None = None) -> str:
    """The namespace, which must be said somewhere: by the document of a demand, by --namespace, or by the site."""
    name: str | None = (demand and demand.namespace) or args.namespace or site.namespace
    if name is None:
        text, where = "no namespace is given", Where(site.source.file)
        if demand is not None and demand.pipeline is None:
            text, where = f"{text}, and {demand.kind} {demand.name} names none", Where(demand.file)
        raise fail("GF904", text, where=where, hint="use --namespace NS, or set namespace in the site")
    return name


def available_amounts(words: list[str], command: str) -> dict[str, int]:
    """What `--available RESOURCE=N` says, by resource."""
    available: dict[str, int] = {}
    for word in words:
        resource, _, number = word.rpartition("=")
        if not resource or re.fullmatch("[0-9]{1,18}", number) is None:
            raise fail("GF903", f'--available "{word}" is not resource=number', where=Where(command))
        available[resource] = int(number)
    return available
