"""The documents of files that gpuflow did not write, and the table of their kinds: which reader reads which.

Documents are told apart by their content, never by the name of the file. The table names the readers' modules and
imports none of them. The Workflows that stand in a Sensor's triggers are documents of their own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml

from gpuflow.cluster.manifests import documents_in, read_bytes
from gpuflow.cluster.model import with_entry
from gpuflow.core import yaml_tree
from gpuflow.core.errors import Where, fail
from gpuflow.engines import AIRFLOW, ARGO, KUBEFLOW, NO_ENGINE
from gpuflow.formats.nodes import as_list, mapping, maps, text_of
from gpuflow.kubernetes.yaml_scalars import parse_manifests

if TYPE_CHECKING:
    from gpuflow.formats.airflow import Dag, Task

STDIN = "-"
KFP = "kfp"
"""The group under which the documents of Kubeflow Pipelines stand here; they name neither kind nor group."""
DAG = ("DAG", AIRFLOW)
"""Kind and group of what was read from a DAG file."""
PLATFORM = "PlatformSpec"
"""The kind of the document in which a pipeline of Kubeflow says what only Kubernetes knows."""
OWN_GROUP = "gpuflow"
CLUSTER_WIDE = ("ClusterWorkflowTemplate", "ClusterTrainingRuntime")
"""Kinds that are in no namespace: the API server takes out of them what they say of one."""
SENSOR: Final = ("Sensor", "argoproj.io")
_WORKFLOW: Final = "Workflow"
_CREATES: Final = {"argoWorkflow": ("submit", None), "k8s": ("create", None)}
"""The kinds of triggers that create an object, and the operations with which they do; None: none is written."""
_ARGUMENT: Final = re.compile(r"spec\.arguments\.parameters\.(\d{1,6})\.value")
_NAMES: Final = ("metadata.name", "metadata.generateName")
_SILENCE = re.compile(r"(?m)(?:^|[ \t])#[ \t]*gpuflow:[ \t]*silence\b[ \t:]*([^#\r\n]*)")


class SilenceComment(NamedTuple):
    """A code that a comment of a file silences: `# gpuflow: silence GF761`."""

    code: str
    line: int


@dataclass(frozen=True, slots=True)
class Trigger:
    """Of a Workflow in a Sensor: what starts it."""

    title: str
    """As sentences call it."""
    where: Where
    writes: tuple[str, ...]
    """The fields that each event may write, but for names and the values of arguments."""


@dataclass(frozen=True)
class Document:
    """One object of a file."""

    tree: Mapping[str, Any]
    file: str
    kind: str
    group: str
    index: int
    """Which document of the file it is, from 0."""
    silenced: tuple[SilenceComment, ...] = ()
    """What the comments of its file silence."""
    dag: Dag | None = None
    """What was read from a DAG file: the tree, by its type."""
    trigger: Trigger | None = None
    """What starts it, where it stands inside a Sensor."""

    @property
    def name(self) -> str:
        """Its name; of a document without one, what Kubernetes makes a name of, or the file's."""
        if self.group == KFP:
            spec = mapping(self.tree.get("pipelineSpec"))
            named = (mapping(self.tree.get("pipelineInfo")) or mapping(spec.get("pipelineInfo"))).get("name")
        else:
            metadata = mapping(self.tree.get("metadata"))
            named = metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-")
        return str(named) if named else Path(self.file).stem

    @property
    def namespace(self) -> str | None:
        """The namespace that it names; None for kinds that are in none, and for a DAG whose tasks do not agree."""
        if self.kind in CLUSTER_WIDE:
            return None
        if self.dag is not None:
            spaces = {each.namespace for each in self.dag.tasks if each.namespace}
            (only,) = spaces if len(spaces) == 1 else ("{{",)
            return None if "{{" in only else only
        named = mapping(self.tree.get("metadata")).get("namespace")
        return named if isinstance(named, str) and named else None

    @property
    def namespace_where(self) -> Where:
        if self.dag is not None:
            return self.where_of_task(next((each for each in self.dag.tasks if each.namespace), None))
        return self.where("metadata", "namespace")

    def where_of_task(self, task: Task | None = None) -> Where:
        """Where a task of a DAG is written; without one, the DAG itself."""
        assert self.dag is not None
        return Where(self.file, *(self.dag.line if task is None or task.line is None else task.line))

    def where(self, *path: str | int, key: bool = False) -> Where:
        """Where the value at `path` stands, or its key; the nearest place above it when there is none."""
        found = yaml_tree.where_of(self.tree, path, key=key)
        return Where(self.file, found.line, found.column)


@dataclass(frozen=True)
class Library:
    """All documents that were given: what one of them refers to is looked up here, and nowhere else."""

    documents: tuple[Document, ...] = ()
    default: str | None = None
    """The namespace of documents that name none; None: not known."""
    namespace: str | None = None
    """The namespace of the document that looks something up; None: not known."""

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], list[Document]]:
        found: dict[tuple[str, str], list[Document]] = {}
        for each in self.documents:
            found.setdefault((each.kind, each.name), []).append(each)
        return found

    def find(self, kind: str, name: str) -> Document | None:
        """The object of that kind and name in the namespace of the document that asks; the first that was given.

        Where it is not known in which namespace one of them is, a namesake counts only when there is no other.
        """
        found = self._by_name.get((kind, name), [])
        homes = [None if kind in CLUSTER_WIDE else each.namespace or self.default for each in found]
        if self.namespace is None and None not in homes:
            return found[0] if len(set(homes)) == 1 else None  # of two teams' nobody knows which is meant
        order = (self.namespace, None)
        return next((each for home in order for each, its in zip(found, homes, strict=True) if its == home), None)

    def seen_from(self, document: Document) -> Library:
        """The same documents, as one of them finds the others."""
        namespace = document.namespace or self.namespace or self.default
        if namespace == self.namespace:
            return self
        _ = self._by_name  # the copy has it too
        other = copy(self)
        object.__setattr__(other, "namespace", namespace)
        return other

    def in_same_file(self, document: Document, kind: str) -> Document | None:
        """An object of that kind in the same file: the platform document of a Kubeflow pipeline."""
        return next((each for each in self.documents if each.file == document.file and each.kind == kind), None)


def read_documents(file: str) -> list[Document]:
    """Every object of a file, `-` for standard input; the items of a list are objects of their own."""
    shown = "<stdin>" if file == STDIN else file
    if file == STDIN:
        text = _stdin()
        return documents_of(parse_manifests(text, shown), shown, silenced_in(text))
    raw = read_bytes(Path(file), piped=True)
    silenced = silenced_in(raw.decode("utf-8-sig", "replace")) if b"gpuflow:" in raw else ()
    return documents_of(documents_in(raw, Path(file), parse_manifests), shown, silenced)


def silenced_in(text: str) -> tuple[SilenceComment, ...]:
    """The codes that comments silence, each with its line. They count for the whole file."""
    found = list(_SILENCE.finditer(text))
    if not found:
        return ()
    texts = list(_texts_in(text))
    return tuple(
        SilenceComment(word, text.count("\n", 0, each.start(1)) + 1)
        for each in found
        if not any(first <= each.start(1) < last for first, last in texts)
        for word in re.split(r"[\s,]+", each[1].strip())
        if word
    )


def _texts_in(text: str) -> Iterator[tuple[int, int]]:
    """Where the texts of a file begin and end that may hold a `#`: a script has comments of its own."""
    try:
        for event in yaml.parse(text, Loader=yaml_tree.Loader):
            if isinstance(event, yaml.ScalarEvent) and event.style and event.start_mark and event.end_mark:
                first = event.start_mark.index
                if event.style in "|>":  # what stands behind the sign is a comment of the file
                    first = text.find("\n", first)
                yield first, event.end_mark.index
    except yaml.YAMLError:
        return  # whoever reads the file says what is wrong with it


def read_text(file: str) -> tuple[str, str]:
    """The text of a file, `-` for standard input, and how messages call it."""
    if file == STDIN:
        return _stdin(), "<stdin>"
    return yaml_tree.decode(read_bytes(Path(file), piped=True), file), file


def documents_of(trees: Iterable[Any], file: str, silenced: tuple[SilenceComment, ...] = ()) -> list[Document]:
    """The same, of documents that somebody has parsed. Workflows in a Sensor follow it."""
    found: list[Document] = []
    for tree in trees:
        for part in _parts(tree):
            if part is not None:
                kind, group = kind_of(part)
                tree = part if isinstance(part, Mapping) else {}
                found.append(Document(tree, file, kind, group, len(found), silenced))
                for inner, trigger in workflows_in(tree, file) if (kind, group) == SENSOR else ():
                    found.append(Document(inner, file, *kind_of(inner), len(found), silenced, trigger=trigger))
    return found


def kind_of(tree: object) -> tuple[str, str]:
    """Kind and group of an object; two empty words when it names none and is no document of Kubeflow's."""
    if not isinstance(tree, Mapping):
        return "", ""
    version, kind = tree.get("apiVersion"), tree.get("kind")
    if isinstance(version, str) and isinstance(kind, str):
        return kind, version.rpartition("/")[0]
    if "pipelineInfo" in tree and ("root" in tree or "components" in tree or "deploymentSpec" in tree):
        return "PipelineSpec", KFP
    if isinstance(tree.get("pipelineSpec"), Mapping) and "pipelineInfo" in tree["pipelineSpec"]:
        return "PipelineJob", KFP
    if isinstance(tree.get("platforms"), Mapping):
        return PLATFORM, KFP
    return "", ""


def _stdin() -> str:
    raw = sys.stdin.buffer.read(yaml_tree.MAX_BYTES + 1)
    if not raw.strip():
        raise fail("GF702", "standard input is empty", where=Where("<stdin>"), hint="pipe a document into the command")
    return yaml_tree.decode(raw, "<stdin>")


def _parts(tree: Any) -> Iterator[Any]:
    """The document itself, or the items of a list; items of a typed list (PodList) do not repeat their kind."""
    kind = tree.get("kind") if isinstance(tree, Mapping) else None
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(tree.get("items"), list)):
        yield tree
        return
    for item in tree["items"]:
        if isinstance(item, dict) and kind != "List":
            for key, value in (("kind", kind.removesuffix("List")), ("apiVersion", tree.get("apiVersion"))):
                item = item if key in item else with_entry(item, key, value)
        yield from _parts(item)


class Reader(NamedTuple):
    module: str
    engine: str


ARGO_READER = Reader("gpuflow.readers.argo", ARGO)
KUBEFLOW_READER = Reader("gpuflow.readers.kfp", KUBEFLOW)
KUBERNETES_READER = Reader("gpuflow.readers.kubernetes", NO_ENGINE)
AIRFLOW_READER = Reader("gpuflow.readers.python.dags", AIRFLOW)

READERS: dict[tuple[str, str], Reader] = {
    **{
        (kind, "argoproj.io"): ARGO_READER
        for kind in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow")
    },
    ("PipelineSpec", KFP): KUBEFLOW_READER,
    ("PipelineJob", KFP): KUBEFLOW_READER,
    ("PipelineVersion", "pipelines.kubeflow.org"): KUBEFLOW_READER,
    DAG: AIRFLOW_READER,
    **{(kind, ""): KUBERNETES_READER for kind in ("Pod", "ReplicationController", "PodTemplate")},
    **{(kind, "batch"): KUBERNETES_READER for kind in ("Job", "CronJob")},
    **{(kind, "apps"): KUBERNETES_READER for kind in ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")},
    ("JobSet", "jobset.x-k8s.io"): KUBERNETES_READER,
    ("LeaderWorkerSet", "leaderworkerset.x-k8s.io"): KUBERNETES_READER,
    **{
        (kind, "kubeflow.org"): KUBERNETES_READER
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "Experiment")
    },
    ("TrainJob", "trainer.kubeflow.org"): KUBERNETES_READER,
    ("Job", "batch.volcano.sh"): KUBERNETES_READER,
    **{(kind, "ray.io"): KUBERNETES_READER for kind in ("RayJob", "RayCluster", "RayService")},
}
"""By kind and group; any version of the group is read."""


_OF_KUBERNETES = ("", "apps", "autoscaling", "batch", "policy")
_STARTS_PODS = ("sparkoperator.k8s.io",)
_SERVES_OTHERS = ("ClusterTrainingRuntime", "TrainingRuntime", "PodGroup")


def starts_nothing(kind: str, group: str) -> bool:
    """Whether a kind without a reader certainly starts no pods: it is Kubernetes' own, or serves one that is read."""
    own = group in _OF_KUBERNETES or (group.endswith("k8s.io") and group not in _STARTS_PODS)
    return own or kind in _SERVES_OTHERS


def workflows_in(sensor: Mapping[str, Any], file: str) -> Iterator[tuple[Mapping[str, Any], Trigger]]:
    """The Workflows that a Sensor of Argo Events starts, as Workflows of their own, each with what starts it.

    An event may write fields of a Workflow before it is created (`parameters` of a trigger). A value of an argument is
    then one that only the run knows; any other field is named in `Trigger.writes`, for whoever reads the Workflow.
    """
    metadata = mapping(sensor.get("metadata"))
    for trigger in _triggers(sensor):
        tree = _workflow_of(trigger)
        if tree is None:
            continue
        if metadata.get("namespace") and not mapping(tree.get("metadata")).get("namespace"):
            home = with_entry(mapping(tree.get("metadata")), "namespace", metadata["namespace"])
            tree = with_entry(tree, "metadata", home)
        template = mapping(trigger.get("template"))
        writes = [f"{each} of its template" for each in _destinations(trigger)]
        for kind in _CREATES:
            started = mapping(template.get(kind))
            writes += ["what its args say"] if started.get("args") else []
            for field in _destinations(started):
                opened = _with_open_argument(tree, field)
                tree, writes = (tree, [*writes, field]) if opened is None else (opened, writes)
        at = yaml_tree.where_of(trigger, ("template",), key=True)
        title = f"trigger {_name_of(trigger)} of Sensor {metadata.get('name')}"
        yield tree, Trigger(title, Where(file, at.line, at.column), tuple(writes))


def other_triggers(sensor: Mapping[str, Any]) -> list[str]:
    """The names of the triggers that start something else, or what stands in no file."""
    return [_name_of(each) for each in _triggers(sensor) if _workflow_of(each) is None]


def _name_of(trigger: Mapping[str, Any]) -> str:
    return text_of(mapping(trigger.get("template")).get("name")) or "without a name"


def _triggers(sensor: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The triggers, each before the one that is for events that it could not deliver."""
    for each in maps(mapping(sensor.get("spec")).get("triggers")):
        yield each
        if mapping(each.get("dlqTrigger")):
            yield each["dlqTrigger"]


def _workflow_of(trigger: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The Workflow that a trigger creates, as it stands in it."""
    template = mapping(trigger.get("template"))
    for kind, operations in _CREATES.items():
        started = mapping(template.get(kind))
        tree = mapping(mapping(started.get("source")).get("resource"))
        group = (text_of(tree.get("apiVersion")) or "").rpartition("/")[0]
        if (tree.get("kind"), group) == (_WORKFLOW, SENSOR[1]) and started.get("operation") in operations:
            return tree
    return None


def _destinations(owner: Mapping[str, Any]) -> list[str]:
    """The fields that `parameters` of a trigger write."""
    return [text_of(each.get("dest")) or "a field" for each in maps(owner.get("parameters"))]


def _with_open_argument(tree: Mapping[str, Any], field: str) -> Mapping[str, Any] | None:
    """The Workflow with an argument whose value only the run knows; None where the field is none."""
    if field in _NAMES:
        return tree
    spec = mapping(tree.get("spec"))
    arguments = mapping(spec.get("arguments"))
    listed, found = as_list(arguments.get("parameters")), _ARGUMENT.fullmatch(field)
    if found is None or int(found[1]) >= len(listed):
        return None
    index = int(found[1])
    opened: dict[str, Any] = {"name": mapping(listed[index]).get("name"), "valueFrom": {"supplied": {}}}
    parameters = [*listed[:index], opened, *listed[index + 1 :]]
    return with_entry(tree, "spec", with_entry(spec, "arguments", with_entry(arguments, "parameters", parameters)))
