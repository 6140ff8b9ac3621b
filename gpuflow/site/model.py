"""The site document: what one cluster calls the things that pipelines ask for. The platform team writes it, once.

A site is loaded from a file or by a preset's name. `extends` names what it builds on; own keys win, maps are merged.
`site_schema` is the JSON Schema of `kind: Site`, for editors. To every pipeline a site adds whom it alerts, which codes
it silences, and warnings about its own secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from gpuflow.catalog.catalog import FormName, UnknownGpu, model
from gpuflow.core import files, yaml_tree
from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.engines import AIRFLOW, ARGO, KUBEFLOW, engine_names
from gpuflow.runtime.gangs.kinds import WORDS, word_of
from gpuflow.spec.container import EnvField
from gpuflow.spec.engine_options.argo import PodGC, Ttl
from gpuflow.spec.loading import read_bytes, require_kind
from gpuflow.spec.model import Bool, Count, DurationField, Model, Natural, OneOrMore, QuantityField, Str, problem
from gpuflow.spec.names import DataKey, EnvName, LabelKey, LabelValue, MountPath, ObjectName, PodLabelKey, SiteName
from gpuflow.spec.notify import Alert
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Toleration, check_resources
from gpuflow.spec.problems import SilencedCode, Source, problems
from gpuflow.spec.rules.remarks import secrets_in_text, without_codes
from gpuflow.spec.rules.step_rules import form_problem
from gpuflow.spec.storage_paths import STORE_HINT, text_fault

Labels = dict[LabelKey, Annotated[tuple[LabelValue, ...], OneOrMore()]]


def _as_lists(labels: Any) -> Any:
    """One value of a label as a list of one."""
    if not isinstance(labels, dict):
        return labels
    return {key: [item] if isinstance(item, str) else item for key, item in labels.items()}


class ModelNodes(Model):
    """The nodes that have one GPU model."""

    labels: Labels = {}
    """Labels such nodes have; several values of one label mean any of them."""
    forms: dict[FormName, Labels] = {}
    """Labels that nodes with each form (sxm, pcie, nvl) have as well; {sxm: {}} says that all of them are sxm."""
    count: Count | None = None
    """Number of GPUs on one such node; optional."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        lists = dict(value)
        if isinstance(value.get("labels"), dict):
            lists["labels"] = _as_lists(value["labels"])
        if isinstance(value.get("forms"), dict):
            lists["forms"] = {form: _as_lists(labels) for form, labels in value["forms"].items()}
        return lists


class GpuSpelling(Model):
    """Whole GPUs."""

    resource: LabelKey = "nvidia.com/gpu"
    """The resource a pod asks for."""
    product_label: LabelKey | None = None
    """The label that GPU Feature Discovery writes; it identifies models that are not listed below."""
    models: dict[Str, ModelNodes] = {}
    """The node labels of each model. With `only_listed`, this is also the list of models."""
    only_listed: Bool = False
    """This cluster has only the listed models; asking for another is an error."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of GPU nodes that every GPU step tolerates."""


class MigSpelling(Model):
    """MIG slices."""

    strategy: Literal["none", "single", "mixed"] = "none"
    """The device plugin's strategy: mixed has one resource per profile, single has one profile per node."""
    resource: Str = "nvidia.com/mig-{profile}"
    """The resource name of a slice under mixed; {profile} is replaced, with + written as a dot."""
    profile_label: LabelKey | None = None
    """A label that names the profile of a node (GKE). Without it, single finds nodes by the product label."""


class SharingSpelling(Model):
    """GPUs that several pods share."""

    offered: tuple[Literal["time-slicing", "mps"], ...] = ()
    """What this cluster offers."""
    resource: LabelKey = "nvidia.com/gpu"
    """The resource name of a share; nvidia.com/gpu.shared if the device plugin renames it."""
    labels: dict[Literal["time-slicing", "mps"], dict[LabelKey, LabelValue]] = {}
    """Node labels for each way of sharing."""
    most: Count = 1
    """How many shares one container may ask for."""


class SpotSpelling(Model):
    """Spot nodes, which can be reclaimed."""

    labels: dict[LabelKey, LabelValue] = {}
    """Labels of spot nodes; empty means there are none."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of spot nodes."""
    notice: DurationField | None = None
    """Time between the warning and the end of a pod."""
    mean_time_between: DurationField | None = None
    """Average lifetime of a spot node."""


class TopologySpelling(Model):
    """Labels that give a node's location."""

    node: LabelKey = "kubernetes.io/hostname"
    """One machine."""
    zone: LabelKey = "topology.kubernetes.io/zone"
    """One data center."""
    rack: LabelKey | None = None
    """One rack."""
    block: LabelKey | None = None
    """One block of racks, such as an NVLink or fabric domain."""
    queues: tuple[LabelValue, ...] = ()
    """LocalQueues whose flavors carry a Kueue Topology with these labels: there a gang with `topology.same` asks Kueue
    for its place; in all others it asks the scheduler, by affinity."""


GangWord = Literal["jobset", "trainjob", "pytorchjob", "mpijob", "volcano"]
SchedulerWord = Literal["volcano"]


def _kind(word: Any) -> Any:
    """A kind that gangs can be. Others are refused by name."""
    if not isinstance(word, str) or word in get_args(GangWord):
        return word
    hint = f"write one of {', '.join(get_args(GangWord))}"
    raise problem("GF408", f"a gang cannot be a {word[:60]!r}: gpuflow does not know it", hint)


def _scheduler(word: Any) -> Any:
    """A scheduler that knows gangs. Others are refused by name."""
    if not isinstance(word, str) or word in get_args(SchedulerWord):
        return word
    raise problem("GF416", *scheduler_problem("jobset", word))


def scheduler_problem(kind: str, scheduler: str) -> tuple[str, str]:
    """Why gangs of a kind cannot have a scheduler, and the way out."""
    if scheduler not in get_args(SchedulerWord):
        text = f"how {scheduler[:60]!r} schedules a gang, gpuflow does not know"
        return text, f"write {' or '.join(get_args(SchedulerWord))}, or name it in the step: kubernetes.scheduler"
    if kind == scheduler:
        text = f"{scheduler} schedules its own Jobs anyway: nothing is left for gangs.scheduler to say"
        return text, "remove gangs.scheduler, or write kind: jobset to have JobSets whose pods Volcano places"
    text = f"{scheduler} is for gangs that are a jobset; of a {kind} gpuflow makes no PodGroup"
    return text, "write kind: jobset, or remove gangs.scheduler"


class GangNetwork(Model):
    """What pods with GPUs get for the fast network between them, when they are ranks of a gang."""

    resources: dict[LabelKey, QuantityField] = {}
    """Devices of the network, for each pod: {rdma/hca: 8}, {vpc.amazonaws.com/efa: 32}. A step's own
    kubernetes.resources win."""
    capabilities: tuple[Str, ...] = ()
    """What the program may do beyond the restricted standard: [IPC_LOCK], to pin memory for RDMA."""
    env: dict[EnvName, EnvField] = {}
    """Variables such as NCCL_IB_HCA. The step's own win."""
    annotations: dict[LabelKey, Str] = {}
    """Annotations of the pod, such as k8s.v1.cni.cncf.io/networks. The step's own win."""
    shm: QuantityField | None = None
    """Size of /dev/shm where the step says none."""

    @model_validator(mode="after")
    def _check_resources(self) -> GangNetwork:
        check_resources(self.resources)
        return self


class Gangs(Model):
    """What gangs are in this cluster, and the small pods that look after them."""

    image: Str | None = None
    """An image with Python, and with gpuflow-run unless that is mounted; default: the image of the step."""
    service_account: ObjectName | None = None
    """The account that may create JobSets and read their pods; gpuflow site gang prints its Role."""
    kind: Annotated[GangWord, BeforeValidator(_kind)] = "jobset"
    """The kind of object that each attempt of a gang is: a JobSet, a TrainJob of Kubeflow Trainer, a PyTorchJob of
    Kubeflow's training operator, an MPIJob of its MPI operator, or a Job of Volcano."""
    scheduler: Annotated[SchedulerWord | None, BeforeValidator(_scheduler)] = None
    """Who places the pods of a JobSet, all of them or none, in queues of its own: volcano. Each attempt then has a
    PodGroup of Volcano's. Default: the cluster's scheduler, and queues of Kueue."""
    network: GangNetwork | None = None
    """The fast network between the ranks of a gang, said once for all of them."""

    @property
    def made_as(self) -> str:
        """The word for the kind with its scheduler, by which `gang_kinds` knows it."""
        return word_of(self.kind, self.scheduler)

    @model_validator(mode="after")
    def _check_scheduler(self) -> Gangs:
        if self.scheduler is not None and self.made_as not in WORDS:
            raise problem("GF416", *scheduler_problem(self.kind, self.scheduler), at=("scheduler",))
        return self


class Identity(Model):
    """The default user and group of containers."""

    user: Natural = 1000
    """User id."""
    group: Natural = 1000
    """Group id."""
    fs_group: Natural = 1000
    """Group that owns mounted volumes."""

    @model_validator(mode="after")
    def _not_root(self) -> Identity:
        if self.user == 0:
            raise problem(
                "GF211", "the site's user id cannot be 0: the default pod runs without root", "use 1000 or so"
            )
        return self


class Images(Model):
    """Registries and pull secrets of images."""

    rewrites: dict[Str, Str] = {}
    """Image prefixes to replace, longest first: {docker.io/: mirror.example.com/}."""
    pull_secrets: tuple[ObjectName, ...] = ()
    """Image pull secrets of every pod."""
    alerts: Str | None = None
    """An image with Python 3.9 or newer that sends alerts, for engines that send none by themselves (Kubeflow)."""


class SigningKey(Model):
    """The Secret whose keys sign what the supervisor keeps."""

    secret: ObjectName
    """The Secret, in the namespace of the pods."""
    key: DataKey = "key"
    """The key in its data: keys, one per line. The first one signs, all of them verify."""


class Bucket(Model):
    """How the supervisor gets at a bucket, in every step that reads or writes there."""

    env: dict[EnvName, EnvField] = {}
    """Variables for it: {AWS_ACCESS_KEY_ID: {secret: s3, key: id}, AWS_ENDPOINT_URL: "http://minio.storage:9000"}. A
    variable of the step itself goes first. Leave it empty where the pod's ServiceAccount is enough."""


def _bucket(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]+://[^/]+/?", text):
        raise problem("GF328", f"{text[:60]!r} is not a bucket", "write it like s3://models, without a path")
    return text.rstrip("/")


def _root(text: str) -> str:
    if (wrong := text_fault(text)) is not None:
        raise problem("GF350", f"{text[:60]!r}, {wrong}, cannot be a root for artifacts", STORE_HINT)
    return text


class Runtime(Model):
    """How gpuflow's supervisor reaches a container."""

    delivery: Literal["image", "config-map"] = "image"
    """image: gpuflow-run is installed in the images. config-map: it is mounted from a ConfigMap, and the images need sh
    and Python 3.8 or newer; a distroless one without a shell needs image."""
    config_map: ObjectName = "gpuflow-runtime"
    """What the ConfigMap's name begins with; a hash of its content follows."""
    mount: MountPath = "/gpuflow/bin"
    """Where it is mounted."""
    python: Str = "python3"
    """The interpreter in the images, 3.8 or newer: a step ends at once with 79 under an older one."""
    state: Str | None = None
    """Where retry budgets of steps without a checkpoint are counted: s3://…, gs://…, az://… or a mounted path."""
    key: SigningKey | None = None
    """With it the supervisor signs attempts, checkpoints, artifacts and success, and believes nothing else."""
    artifacts: Annotated[Str, AfterValidator(_root)] | None = None
    """Where files and directories of steps are kept that name no uri: s3://…, gs://…, az://… or a mounted path."""
    buckets: dict[Annotated[Str, AfterValidator(_bucket)], Bucket] = {}
    """The buckets of this site, like s3://models, and how the supervisor gets at each. Where any is named, a step that
    uses another one is refused."""

    @classmethod
    def unknown(cls, key: str) -> tuple[str, str, str | None] | None:
        hint = "gpuflow keeps no cache on nodes; use a claim that is filled once, Fluid, Alluxio or an image volume"
        return ("GF113", f'unknown key "{key}"', hint) if key == "cache" else None

    @model_validator(mode="after")
    def _room_for_the_hash(self) -> Runtime:
        if len(self.config_map) > 253 - len("-12345678"):
            raise problem("GF138", "runtime.config_map is too long for a hash to follow", "use at most 244 letters")
        return self


class Injected(Model):
    """A container or a pod that an engine adds, with its resources."""

    requests: dict[Str, QuantityField] = {}
    """Its requests."""
    limits: dict[Str, QuantityField] = {}
    """Its limits."""
    restricted: Bool = False
    """Whether it has the security context that the restricted Pod Security Standard requires."""


class Executor(Model):
    """The account of Argo's own containers, which lets the programs of steps do without a token."""

    service_account: ObjectName
    """The ServiceAccount that may create and patch workflowtaskresults."""
    token_secret: ObjectName
    """The Secret with its token; Argo looks for NAME.service-account-token unless the account says otherwise."""


def _web_address(text: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9._~:/?#&=%-]+", text):
        raise problem("GF382", f"{text[:60]!r} is not an address", "write it like https://argo.example.com")
    return text


ARTIFACT_LINK_VALUES = ("output", "uri", "bucket", "key")
"""What a link to an artifact may name in braces besides."""
LINK_VALUES = (
    "namespace", "pod", "queue", "dag_id", "task_id", "run_id", "map_index", "try_number", "start",
    *ARTIFACT_LINK_VALUES,
)  # fmt: skip
"""What a link may name in braces."""
SOURCE_LINK = "Pipeline source"
"""The link that every task has; no other has its name."""


def _link_name(text: str) -> str:
    if not text.strip() or len(text) > 60 or not text.isprintable() or text == SOURCE_LINK:
        raise problem("GF347", f"{text[:60]!r} cannot be the name of a link", 'write a few words, like "Grafana"')
    return text


def _link(text: str) -> str:
    """An address with {names} in it that a task fills in."""
    for name in re.findall(r"\{(\w*)\}", text):
        if name not in LINK_VALUES:
            hint = did_you_mean(name, LINK_VALUES) or f"known here: {', '.join(sorted(LINK_VALUES))}"
            raise problem("GF347", f'a link cannot name "{{{name}}}"', hint)
    plain = re.sub(r"\{\w+\}", "x", text)
    if "{" in plain or "}" in plain:
        raise problem("GF347", f"{text[:60]!r} has a brace that belongs to no name", "write %7B for { and %7D for }")
    if not re.fullmatch(r"https?://[A-Za-z0-9._~:/?#&=%+!$*,;@()\[\]-]+", plain) or "@" in plain.partition("?")[0]:
        hint = "write it like https://grafana.example.com/d/pods?var-pod={pod}, without a user or a password"
        raise problem("GF347", f"{text[:60]!r} is not an address", hint)
    return text


LinkName = Annotated[Str, AfterValidator(_link_name)]
Link = Annotated[Str, AfterValidator(_link)]


_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


class Engine(Model):
    """One engine on this cluster."""

    version: Str | None = None
    """The installed version, for example 4.0."""

    @property
    def release(self) -> tuple[int, int] | None:
        """The version as numbers; None where it says none that can be read."""
        found = _VERSION.fullmatch(self.version or "")
        return (int(found[1]), int(found[2])) if found is not None else None

    url: Annotated[Str, AfterValidator(_web_address)] | None = None
    """The address of its user interface, for links in alerts (Argo, Kubeflow)."""
    service_account: ObjectName | None = None
    """The ServiceAccount its step pods need."""
    init: dict[Str, Injected] = {}
    """Init containers it adds to every step's pod."""
    containers: dict[Str, Injected] = {}
    """Containers it adds to every pod that it makes: of steps, and of its own."""
    output_containers: dict[Str, Injected] = {}
    """Containers it adds to the pod of a step with outputs."""
    driver: Injected | None = None
    """A pod that it runs before every step's own pod; `init` and `containers` are added to it, but no kfp-launcher."""
    pod_gc: PodGC | None = None
    """Argo only: when finished pods are deleted; null: with their run."""
    ttl: Ttl | None = None
    """Argo only: how long finished runs are kept; null: until somebody deletes them."""
    starting_deadline: DurationField | None = None
    """Argo only: how late a scheduled run may start, after the controller was down; null: a missed run is dropped."""
    executor: Executor | None = None
    """Argo only: the account of Argo's own containers. With it, no token is mounted into the containers of steps."""
    links: dict[LinkName, Link] | None = None
    """Airflow only: buttons on the page of a task, by name: addresses with {namespace}, {pod}, {queue}, {dag_id},
    {task_id}, {run_id}, {map_index}, {try_number} or {start} (of the task, in milliseconds since 1970) in them. One
    with {output}, {uri}, {bucket} or {key} leads to an artifact, and is there for each that the task keeps."""
    artifact_repository: Bool | None = None
    """Argo only: true says that the controller has an artifact repository which the pods of steps may write to. A
    small file about each artifact is then an artifact of Argo's, for its user interface. Null: there is none."""
    retry: Literal["always"] | None = None
    """Kubeflow only: `always` says that the installation retries failed and deleted pods alike, from the step's own
    number; `gpuflow site kubeflow` prints the setting. Null: as the installation ships it."""
    fs_group: Natural | None = None
    """Kubeflow only: the group that the installation gives the volumes of every pod to; `gpuflow site kubeflow` prints
    the setting. Null: to none, and a new volume belongs to root."""


def _known_engine(name: str) -> str:
    if name not in engine_names():
        raise problem("GF113", f'unknown key "{name}"', did_you_mean(name, engine_names()) or "remove it")
    return name


def _engine_keys(schema: dict[str, Any]) -> None:
    """For editors: the names there are."""
    schema["propertyNames"] = {"enum": list(engine_names())}


EngineName = Annotated[Str, AfterValidator(_known_engine)]
ONLY = {
    AIRFLOW: ("links",),
    ARGO: ("pod_gc", "ttl", "starting_deadline", "executor", "artifact_repository"),
    KUBEFLOW: ("fs_group", "retry"),
}
"""What a site says about one engine and about no other."""


_NO_ENGINE_WORDS = Engine()
"""What a site says of an engine that it does not name; one value, since it is asked for every step."""


class Site(Model):
    """What one cluster calls its GPUs, nodes and queues."""

    apiVersion: Literal["gpuflow/v1"] = "gpuflow/v1"
    """The format's version."""
    kind: Literal["Site"] = "Site"
    """What the document is."""
    name: SiteName
    """The site's name: lower-case letters, digits and '-', starting with a letter."""
    description: Str | None = None
    """What cluster this is."""
    namespace: ObjectName | None = None
    """The namespace pipelines run in."""
    gpu: GpuSpelling = GpuSpelling()
    """Whole GPUs."""
    mig: MigSpelling = MigSpelling()
    """MIG slices."""
    sharing: SharingSpelling = SharingSpelling()
    """Shared GPUs."""
    spot: SpotSpelling = SpotSpelling()
    """Spot nodes, which can be reclaimed."""
    topology: TopologySpelling = TopologySpelling()
    """Labels that give a node's location."""
    queue: LabelValue | None = None
    """The queue for steps that name none."""
    identity: Identity = Identity()
    """The default user and group of containers."""
    images: Images = Images()
    """Registries and pull secrets of images."""
    runtime: Runtime = Runtime()
    """How the supervisor reaches a container."""
    gangs: Gangs = Gangs()
    """Who looks after the gangs of pipelines."""
    engines: dict[EngineName, Engine] = Field({}, json_schema_extra=_engine_keys)
    """The engines that run pipelines, by name, and what each adds to pods."""
    labels: dict[PodLabelKey, LabelValue] = {}
    """Labels on every pod."""
    notify: tuple[Alert, ...] = ()
    """Who is told how runs ended, of every pipeline that does not say `notify: []`."""

    silence: Annotated[tuple[SilencedCode, ...], OneOrMore()] = ()
    """Codes of notes and warnings that are not printed, only counted, for everything on this site: [GF769]. A file
    silences for itself. Errors cannot be silenced."""

    _source: Source = PrivateAttr(default_factory=Source)

    @model_validator(mode="after")
    def _of_one_engine(self) -> Site:
        for name, engine in self.engines.items():
            for owner, fields in ONLY.items():
                for field in fields:
                    if name != owner and getattr(engine, field) is not None:
                        hint = f"only {owner.capitalize()} has it: remove it"
                        raise problem("GF113", f'unknown key "{field}"', hint, at=("engines", name, field))
        return self

    @property
    def source(self) -> Source:
        """Where the site was written."""
        return self._source

    def engine(self, name: str) -> Engine:
        """What the site says about an engine; nothing when it does not name it."""
        return self.engines.get(name) or _NO_ENGINE_WORDS

    @classmethod
    def load(cls, name: str = "nvidia") -> Site:
        """A site from a file, or a preset by its name."""
        if name in presets():
            return _preset(name)
        if not Path(name).exists() and "/" not in name and not name.endswith((".yaml", ".yml", ".json")):
            hint = did_you_mean(name, presets())
            raise fail("GF212", f'"{name}" is neither a preset nor a file', where=Where(name), hint=hint)
        return _site(_tree(Path(name), ()), name)


_PRESETS = Path(__file__).parent / "presets"


def presets() -> tuple[str, ...]:
    """The names of the sites that come with gpuflow."""
    return tuple(sorted(path.stem for path in _PRESETS.glob("*.yaml")))


@cache
def _preset(name: str) -> Site:
    file = _PRESETS / f"{name}.yaml"
    return _site(_tree(file, ()), f"preset {name}")


def _tree(file: Path, opened: tuple[str, ...]) -> yaml_tree.Map:
    own = Path(os.path.realpath(file)).parent if file.parent == _PRESETS else None  # an installer may have linked it
    raw = read_bytes(file, named=not opened, root=own)
    tree = yaml_tree.parse(raw, str(file))
    require_kind(tree, "Site", str(file))
    if (base := tree.pop("extends", None)) is None:
        return tree  # type: ignore[no-any-return]  # require_kind has seen that it is a mapping
    where = Where(str(file), tree.value_at["extends"].line, tree.value_at["extends"].column)
    if not isinstance(base, str):
        raise fail("GF212", "extends takes the name of a preset or of a file", where=where)
    yaml_tree.require_plain_name(base, where)
    path = _PRESETS / f"{base}.yaml" if base in presets() else file.parent / base
    if base not in presets():
        _refuse_outside(path, file, where)
    if base not in presets() and not path.exists():
        text = f'"{base}" is neither a preset nor a file next to this one'
        raise fail("GF212", text, where=where, hint=did_you_mean(base, presets()))
    opened = (*opened, str(file))
    if path.resolve() in [Path(name).resolve() for name in opened]:
        raise fail("GF212", f"sites extend each other: {' -> '.join((*opened, str(path)))}", where=where)
    return merge_maps(_tree(path, opened), tree)


def _refuse_outside(path: Path, file: Path, where: Where) -> None:
    """Refuse a base outside the bounds of the site that names it, be it by an absolute path, `..` or a link."""
    try:
        files.resolve_within(path, files.bounds_of_references(file))
    except OSError as refusal:
        files.refuse_outside(refusal, path, where)


def merge_maps(base: yaml_tree.Map, top: yaml_tree.Map, base_file: str = "", top_file: str = "") -> yaml_tree.Map:
    """`top` over `base`, mapping by mapping, each key keeping its file and place; null removes what was inherited."""
    result = yaml_tree.Map(top.spot)
    result.file = top.file
    for key in (*base, *(key for key in top if key not in base)):
        own = key in top
        if own and top[key] is None and key in base:
            continue
        source = top if own else base
        files = [part.file_at.get(key) or part.file or file for part, file in ((base, base_file), (top, top_file))]
        value: Any = source[key]
        if own and isinstance(value, yaml_tree.Map) and isinstance(base.get(key), yaml_tree.Map):
            value = merge_maps(base[key], value, *files)
        result[key] = value
        result.key_at[key], result.value_at[key] = source.key_at[key], source.value_at[key]
        result.file_at[key] = files[own]
    return result


def _site(tree: yaml_tree.Map, shown: str) -> Site:
    try:
        site = Site.model_validate(tree)
    except ValidationError as error:
        raise GpuflowError(
            Finding(code, message, yaml_tree.where_of(tree, path, key=key), hint)
            for code, message, hint, path, key in problems(error, Site)
        ) from None
    findings = []
    for name, nodes in site.gpu.models.items():
        place: tuple[str, ...] = ("gpu", "models", name)
        try:
            owner = model(name)
        except UnknownGpu as refusal:
            findings.append(Finding("GF201", str(refusal), yaml_tree.where_of(tree, place, key=True)))
            continue
        for form in nodes.forms:
            if (refused := form_problem(owner, form)) is not None:
                where = yaml_tree.where_of(tree, (*place, "forms", form), key=True)
                findings.append(Finding("GF204", refused[0], where, refused[1]))
    if findings:
        raise GpuflowError(findings)
    site._source = Source(shown, lambda path, key: yaml_tree.where_of(tree, path, key=key))
    return site


def site_schema() -> dict[str, Any]:
    """The schema of a site as it is written: it may extend a preset or a file, and then leave everything else out."""
    from gpuflow.spec.schema import schema_of

    schema = schema_of(Site, "gpuflow Site")
    extends = {
        "type": "string",
        "description": f"What this site extends: a preset ({', '.join(presets())}) or a file next to this one.",
        "examples": list(presets()),
    }
    properties = schema["properties"]
    schema["properties"] = {**dict(list(properties.items())[:2]), "extends": extends, **properties}
    schema["required"] = ["apiVersion", "kind"]
    return schema


def alerts_of(pipeline: Pipeline, site: Site) -> tuple[Alert, ...]:
    """The pipeline's own first. An empty list in the pipeline un-says the site's; one said twice is sent once."""
    if pipeline.notify == ():
        return ()
    found: list[Alert] = []
    for alert in (*(pipeline.notify or ()), *site.notify):
        if alert not in found:
            found.append(alert)
    return tuple(found)


def exposed_in_site(site: Site) -> list[Finding]:
    """A warning when a place where things are kept holds a password: it stands in every artifact."""
    where, runtime = Where(site.source.file), site.runtime
    return [
        *secrets_in_text("runtime.state of the site", runtime.state, where),
        *secrets_in_text("runtime.artifacts of the site", runtime.artifacts, where),
    ]


def without_site_silenced(site: Site, findings: Iterable[Finding]) -> list[Finding]:
    """The findings without those that the site silences, and one line that counts them."""
    return without_codes(site.silence, findings, site.source.locate(("silence",), False))
