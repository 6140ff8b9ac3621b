"""A case: hostile text at one place of one document, compiled in one way or shown in one format."""

from __future__ import annotations

import copy
import io
import json
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from gpuflow.cli.main import main
from gpuflow.cli.output import shown_source
from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.site.model import _site, merge_maps
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.kubeflow.facts import KubeflowOptions
from gpuflow.targets.target import Batch, Request, compile_with
from proofs.trust import documents
from proofs.trust.documents import FILE, Place

TWINS = ("qzxtwin", "qzxtwin://qzx")
"""The harmless text that stands where the hostile one does: letters, so that every field takes it that takes text. The
second is for fields where a place says more than a word does."""
CLUSTER = Path(__file__).resolve().parents[2] / "gpuflow" / "demo" / "cluster"


@dataclass(frozen=True)
class Mode:
    """One way to compile, or one format to show."""

    name: str
    environment: str
    engine: str = ""
    options: Any = None
    command: tuple[str, ...] = ()
    """Of the command line, where nothing is compiled."""
    medium: str = ""
    """What comes out: yaml, python, kfp, json, junit, markdown, text."""


def _argo(kind: str | None, name: str, **options: Any) -> Mode:
    return Mode(f"argo {name}", "argo", "argo", ArgoOptions(kind, **options), medium="argo")


def _shown(command: str, format: str, medium: str) -> Mode:
    words = (command, "--format", format)
    if command == "check":
        words += ("--cluster", str(CLUSTER), "--namespace", "team-a")
    return Mode(f"{command} {format}", "core", command=words, medium=medium)


MODES = (
    _argo(None, "default"),
    _argo("Workflow", "Workflow"),
    _argo("CronWorkflow", "CronWorkflow"),
    _argo("ClusterWorkflowTemplate", "ClusterWorkflowTemplate"),
    _argo("WorkflowTemplate", "with semaphores", semaphores="sizes"),
    _argo(None, "GitOps", kustomization=True),
    Mode("argo container", "argo", "argo alone", medium="argo"),
    Mode("airflow", "airflow", "airflow", AirflowOptions(), medium="python"),
    Mode("airflow standalone", "airflow", "airflow", AirflowOptions(standalone=True), medium="python"),
    Mode("kubeflow", "kubeflow", "kubeflow", KubeflowOptions(), medium="kfp"),
    Mode("kubeflow crd", "kubeflow", "kubeflow", KubeflowOptions(form="crd"), medium="argo"),
    *(_shown("show", format, format) for format in ("text", "yaml", "json")),
    *(_shown("show", format, "text") for format in ("mermaid", "dot")),
    *(_shown("demand", format, format) for format in ("text", "json")),
    *(_shown("validate", format, format) for format in ("text", "json")),
    *(_shown("check", format, format) for format in ("text", "markdown", "json", "junit", "github")),
    _shown("check", "sarif", "json"),
)
ENVIRONMENTS = tuple(dict.fromkeys(mode.environment for mode in MODES))


class Unchanged(Exception):
    """There is nothing at this place that this text could be put into."""


def placed(document: Mapping[str, Any], place: Place, text: str, how: str) -> dict[str, Any]:
    """The document with the text at the place: instead of what is there, or behind it; a condition quotes it."""
    changed = copy.deepcopy(dict(document))
    around: Any = changed
    for step in place.path[:-1]:
        around = around[step]
    last = place.path[-1]
    if place.is_key:
        key = str(last) + text if how == "behind" else text
        if key in around:
            raise Unchanged  # one of two would be lost here already; in a file the reader refuses the second
        renamed = {key if name == last else name: value for name, value in around.items()}
        around.clear()
        around.update(renamed)
        return changed
    old = around[last]
    if isinstance(old, str) and last == "when" and "'text'" in old:
        quoted = text.replace("\\", "\\\\").replace("'", "\\'")
        around[last] = old.replace("'text'", f"'{quoted}'")
    elif isinstance(old, str) and (how == "behind" or old.startswith("/")):
        around[last] = old + text
    else:
        around[last] = text
    return changed


def pipeline_of(document: Mapping[str, Any], file: str) -> Pipeline:
    """The pipeline of a document, read as its file would be."""
    return loads(json.dumps(document), file)


def site_of(document: Mapping[str, Any]) -> Site:
    """The site of a document, on top of a preset where it says so."""
    tree = yaml_tree.parse(json.dumps({key: value for key, value in document.items() if key != "extends"}), "s.yaml")
    if "extends" in document:
        tree = merge_maps(_base_tree(), tree)
    return _site(tree, "s.yaml")


@cache
def _base_tree() -> Any:
    from gpuflow.site.model import _PRESETS, _tree

    return _tree(_PRESETS / "nvidia.yaml", ())


@cache
def base_site() -> Site:
    """The site that all pipelines are compiled for."""
    return site_of(documents.base_site())


@dataclass(frozen=True)
class Case:
    """What is tried."""

    mode: Mode
    place: Place
    how: str
    """`instead` or `behind`."""
    text: str

    def twin(self, word: str = TWINS[0]) -> Case:
        """The same with harmless text."""
        return Case(self.mode, self.place, self.how, word)

    def made(self) -> str:
        """The artifact, or what the command prints. Raises `GpuflowError` when it is refused."""
        document, site, file = self._inputs()
        if self.mode.name == "argo CronWorkflow":
            document = {"schedule": {"cron": "0 3 * * *"}, **document}
        if self.mode.command:
            return _printed(self.mode.command, document, site, file)
        pipeline = pipeline_of(document, file)
        where = base_site() if site is None else site_of(site)
        if self.mode.engine == "argo alone":
            return _alone(pipeline, where)
        target = load_target(self.mode.engine)
        shown = shown_source(pipeline.source.file, None)
        request = Request(pipeline, where, where.namespace, shown, (), self.mode.options)
        artifacts = compile_with(target, request, allow_lossy=True).artifacts
        batch = Batch(artifacts, self.mode.options, where.namespace, PurePath("compiled"), dict)
        return "---\n".join(each.text for each in (*artifacts, *target.batch_files(batch)))

    def _inputs(self) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
        place = self.place
        if place.document == FILE:
            return dict(documents.pipelines()["whole"]), None, f"pipelines/{self.text}.yaml"
        if place.document in documents.sites():
            pipeline = documents.for_sites("small" if self.mode.engine == "kubeflow" else "pipeline")
            return pipeline, placed(documents.sites()[place.document], place, self.text, self.how), "p.yaml"
        return placed(documents.pipelines()[place.document], place, self.text, self.how), None, "p.yaml"


def _alone(pipeline: Pipeline, site: Site) -> str:
    """Every step as a template for somebody's own workflow."""
    from gpuflow.core.emit import emit
    from gpuflow.targets.argo.single_step import standalone_template

    made = [standalone_template(pipeline.effective(name), site, "alone") for name in pipeline.steps]
    return emit({"spec": {"templates": made}})


def _printed(command: tuple[str, ...], document: dict[str, Any], site: dict[str, Any] | None, file: str) -> str:
    """What the command line prints about the files."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        try:
            path = Path(folder) / Path(file).name
            path.write_text(json.dumps(document), encoding="utf-8")
        except (OSError, ValueError):
            raise Unchanged from None  # no file can have this name
        where = Path(folder) / "site.yaml"
        where.write_text(json.dumps(documents.base_site() if site is None else site), encoding="utf-8")
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([command[0], str(path), "--site", str(where), *command[1:]])
        printed = out.getvalue() + "\n\0" + err.getvalue()
        if "GF999" in printed:
            raise AssertionError(printed)
        if code == 2:
            raise Refused(printed.replace(folder, "FOLDER"))
        return printed.replace(folder, "FOLDER")


class Refused(GpuflowError):
    """The command line said no; its words are kept, since they hold the text too."""

    def __init__(self, printed: str) -> None:
        super().__init__(())
        self.printed = printed
