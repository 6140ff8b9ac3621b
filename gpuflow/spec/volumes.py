"""Files at a path of a container: volumes, and inputs that are there before the command starts."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema, model_validator

from gpuflow.spec.duration import Duration
from gpuflow.spec.model import Bool, DurationField, Model, QuantityField, Str, exactly_one, problem
from gpuflow.spec.names import DataKey, LabelKey, LabelValue, MountPath, ObjectName
from gpuflow.spec.params import RunClaim
from gpuflow.spec.text import OutputRef, TextField, parse_text
from gpuflow.spec.text import literal as as_written

_OCTAL = re.compile(r"0?[0-7]{3}")


def _mode(value: Any) -> str:
    if not isinstance(value, str):
        # YAML reads 0440 as 288 or as 440, depending on its version.
        raise problem("GF375", f"{value!r} is not a file mode", 'write it in quotes, like "0440"')
    if not _OCTAL.fullmatch(value):
        raise problem("GF375", f'"{value[:40]}" is not a file mode', 'use three octal digits, like "0440"')
    return value.rjust(4, "0")


Mode = Annotated[str, PlainValidator(_mode), WithJsonSchema({"type": "string", "pattern": "^0?[0-7]{3}$"})]
"""Permissions of a file as `chmod` writes them."""


def mode_number(mode: str) -> int:
    """A mode as Kubernetes' API has it: a plain number."""
    return int(mode, 8)


def _relative_path(value: Any, what: str, not_in_front: tuple[str, ...]) -> str:
    fits = isinstance(value, str) and value and not value.startswith(not_in_front) and "\0" not in value
    if not fits or ".." in value.split("/"):
        raise problem("GF133", f"{value!r:.80} is not {what}", "write it without '/' in front and without '..'")
    return str(value)


_RELATIVE = WithJsonSchema({"type": "string", "pattern": "^[^/].*$"})
FilePath = Annotated[
    str, PlainValidator(lambda value: _relative_path(value, "a path inside the volume", ("/", ".."))), _RELATIVE
]
"""A path below the place where a volume is mounted."""
SubPath = Annotated[str, PlainValidator(lambda value: _relative_path(value, "a part of the volume", ("/",))), _RELATIVE]
"""A folder or file of a volume."""


class FileItem(Model, short="path", form={"type": "string"}):
    """One key of a ConfigMap or Secret as a file."""

    path: FilePath
    """Its path below the mount."""
    mode: Mode | None = None
    """Its permissions, such as "0440"; default: default_mode."""


class HostPath(Model, short="path", form={"type": "string", "examples": ["/mnt/nvme"]}):
    """A file or folder of the node. Violates the baseline Pod Security Standard."""

    path: MountPath
    """Its path on the node."""
    type: (
        Literal["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"] | None
    ) = None
    """What must be there; default: nothing is checked."""

    @model_validator(mode="after")
    def _check_path(self) -> HostPath:
        if ".." in self.path.split("/"):
            raise problem("GF133", f'"{self.path[:80]}" holds ".."', "write the path that is meant", at=("path",))
        return self


class Nfs(Model):
    """A folder of an NFS server. Violates the restricted Pod Security Standard."""

    server: Str
    """The server's name or address."""
    path: MountPath
    """The folder that it exports."""


class Csi(Model):
    """An inline volume of a CSI driver, which lives as long as the pod."""

    driver: Str
    """The driver's name, for example secrets-store.csi.k8s.io."""
    attributes: dict[Str, Str] = {}
    """What the driver asks for (volumeAttributes)."""
    fs_type: Str | None = None
    """The file system; default: the driver's."""
    secret: ObjectName | None = None
    """The Secret that the driver gets to mount it (nodePublishSecretRef)."""


class Ephemeral(RunClaim):
    """A volume that is claimed for each pod and deleted with it."""

    labels: dict[LabelKey, LabelValue] = {}
    """Labels of the claim."""
    annotations: dict[LabelKey, Str] = {}
    """Annotations of the claim."""


class ServiceAccountToken(Model):
    """A token of the pod's ServiceAccount, renewed by the kubelet."""

    path: FilePath
    """The file that holds it, below the mount."""
    audience: Str | None = None
    """Who the token is for, for example sts.amazonaws.com; default: the API server."""
    expires: DurationField | None = None
    """How long one token is valid; default: 1h, the least is 10m."""

    @model_validator(mode="after")
    def _lasts(self) -> ServiceAccountToken:
        if self.expires is not None and self.expires < Duration("10m"):
            raise problem("GF127", f"{self.expires} is too short: the least is 10m", None, at=("expires",))
        return self


class Projection(Model):
    """One source of a projected volume."""

    token: ServiceAccountToken | None = None
    """A token of the pod's ServiceAccount."""
    secret: ObjectName | None = None
    """A Secret's keys as files."""
    config_map: ObjectName | None = None
    """A ConfigMap's keys as files."""
    downward_api: dict[FilePath, Str] | None = None
    """What the pod knows of itself, by file: {labels: metadata.labels, cpu: limits.cpu}."""
    items: dict[DataKey, FileItem] = {}
    """Only these keys of the Secret or ConfigMap, each with its path below the mount."""
    optional: Bool = False
    """Start even if the Secret or ConfigMap is missing."""

    _one_of_them = exactly_one("token", "secret", "config_map", "downward_api", what="a source of projected")

    @model_validator(mode="after")
    def _check_consistency(self) -> Projection:
        if (self.items or self.optional) and self.secret is None and self.config_map is None:
            name = "items" if self.items else "optional"
            raise problem("GF128", f"{name} belongs to a secret or config_map", "drop it", at=(name,))
        for path, source in (self.downward_api or {}).items():
            if not _DOWNWARD.fullmatch(source):
                text = f'"{source[:60]}" is nothing that a file can say about the pod'
                hint = "use metadata.name, metadata.labels, metadata.annotations, or limits.cpu, requests.memory, …"
                raise problem("GF128", text, hint, at=("downward_api", path))
        return self


_DOWNWARD = re.compile(
    r"metadata\.(name|namespace|uid|labels|annotations)|metadata\.(labels|annotations)\['[^']+'\]"
    r"|(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-\w+)"
)
VOLUME_SOURCES = (
    "claim", "new_claim", "config_map", "secret", "empty_dir", "memory", "host_path", "nfs", "csi", "ephemeral",
    "projected",
)  # fmt: skip
PERSISTENT_SOURCES = ("claim", "new_claim", "host_path", "nfs", "csi")
"""Sources whose files other pods may see, and later ones too."""


class Volume(Model):
    """Files at a path of the container, from exactly one source."""

    claim: ObjectName | None = None
    """An existing PersistentVolumeClaim."""
    new_claim: Str | None = None
    """A claim from the pipeline's `claims`, created for each run."""
    config_map: ObjectName | None = None
    """A ConfigMap's keys as files."""
    secret: ObjectName | None = None
    """A Secret's keys as files."""
    empty_dir: QuantityField | None = None
    """Scratch space on the node's disk, at most this big."""
    memory: QuantityField | None = None
    """Scratch space in memory, at most this big; counts against the memory limit."""
    host_path: HostPath | None = None
    """A file or folder of the node: its path, or {path, type}. Violates the baseline Pod Security Standard."""
    nfs: Nfs | None = None
    """A folder of an NFS server: {server, path}."""
    csi: Csi | None = None
    """An inline volume of a CSI driver: {driver, attributes}."""
    ephemeral: Ephemeral | None = None
    """A volume that is claimed for each pod and deleted with it: {size, storage_class}."""
    projected: tuple[Projection, ...] | None = None
    """Several sources in one folder: tokens of the ServiceAccount, Secrets, ConfigMaps, facts about the pod."""
    items: dict[DataKey, FileItem] = {}
    """Of a config_map or secret only these keys, each with its path below the mount: {key: path}."""
    default_mode: Mode | None = None
    """Permissions of the files of a config_map, secret or projected volume, in quotes; default: "0644"."""
    optional: Bool = False
    """Start even if the ConfigMap or Secret is missing."""
    read_only: Bool = False
    """Mount it read-only."""
    sub_path: SubPath | None = None
    """Only this part of the volume."""

    _one_of_them = exactly_one(*VOLUME_SOURCES, what="a volume")

    @model_validator(mode="after")
    def _check_consistency(self) -> Volume:
        if self.projected is not None and not self.projected:
            raise problem("GF128", "projected names no source", "list at least one", at=("projected",))
        keys = self.config_map is not None or self.secret is not None
        owned = {"items": keys, "optional": keys, "default_mode": keys or self.projected is not None}
        for name, fits in owned.items():
            if getattr(self, name) and not fits:
                raise problem("GF128", f"{name} belongs to a config_map or secret", "drop it", at=(name,))
        return self

    @property
    def lasts(self) -> bool:
        """Whether its files outlive the pod."""
        return any(getattr(self, source) is not None for source in PERSISTENT_SOURCES)


_REFERENCES = frozenset({"param", "item", "run", "join", "text", "format", "timezone"})
"""The maps that are text, so that a URI may be written without its key."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def _output(value: Any) -> OutputRef:
    if isinstance(value, OutputRef):
        return value
    found = parse_text(value if isinstance(value, dict) else {"output": value})
    if not isinstance(found, OutputRef):
        raise problem("GF142", "an output of an earlier step is expected here", "write {output: step.name}")
    return found


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value.lower()):
        raise problem("GF185", f"{value!r:.80} is not a digest", "write sha256: and 64 hex digits")
    return value.lower()


OutputField = Annotated[
    OutputRef, PlainValidator(_output), WithJsonSchema({"type": "string", "examples": ["train.model"]})
]
DigestField = Annotated[
    str, PlainValidator(_digest), WithJsonSchema({"type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$"})
]


class Input(Model, form={"type": "string", "examples": ["s3://datasets/imagenet/"]}):
    """A file or directory at a path of the container: an earlier step's output, data at a URI, or a claim's folder."""

    output: OutputField | None = None
    """The file or directory output of an earlier step, like train.model. Of a fan-out: a directory with one entry for
    each item, named by its number in the list, from 0."""
    uri: TextField = None
    """Data from outside, like s3://datasets/imagenet/, or a URI that another step or a parameter gives."""
    type: Literal["file", "directory"] | None = None
    """What is at the uri; default: directory. An output knows it itself."""
    digest: DigestField | None = None
    """What the data must be, sha256: and 64 hex digits: of a file the hash of its bytes, of a directory the hash that
    `gpuflow-run digest` prints."""
    size: QuantityField | None = None
    """How much room it takes on the node's disk; default: the size of the output, for each item of a fan-out whose list
    stands in the document, and once where only the run knows it."""
    claim: ObjectName | None = None
    """A PersistentVolumeClaim that has the data already: mounted read-only, nothing is copied."""
    path: SubPath | None = None
    """The folder or file of the claim; default: all of it."""

    @classmethod
    def shorthand(cls, value: Any) -> Any:
        if value is None:
            hint = "write a uri, {output: step.name} or {claim: name}, or remove the line"
            raise problem("GF185", "an input needs a source, and this one has none", hint)
        if isinstance(value, OutputRef):
            return {"output": value}
        return value if isinstance(value, dict) and not (value and value.keys() <= _REFERENCES) else {"uri": value}

    _one_of_them = exactly_one("output", "uri", "claim", what="an input")

    @model_validator(mode="after")
    def _check_consistency(self) -> Input:
        of_others = {"type": self.uri, "digest": self.claim is None or None, "size": self.claim is None or None}
        for name, needed in {**of_others, "path": self.claim}.items():
            if getattr(self, name) is not None and needed is None:
                owner = "a claim" if name == "path" else "a uri" if name == "type" else "what is fetched"
                raise problem("GF185", f"{name} belongs to {owner}", f"remove {name}", at=(name,))
        return self

    @property
    def is_fetched(self) -> bool:
        """Whether the supervisor brings it; what lies on a claim is mounted."""
        return self.claim is None

    def canonical(self) -> Any:
        """As the document writes it: a URI that says everything stands alone."""
        said = {name: value for name, value in self.__dict__.items() if value is not None}
        if self.output is not None:
            said["output"] = f"{self.output.step}.{self.output.name}"
        if self.uri is not None:
            said["uri"] = as_written(self.uri) if isinstance(self.uri, str) else self.uri.canonical()
        if self.size is not None:
            said["size"] = str(self.size)
        return said["uri"] if set(said) == {"uri"} and not isinstance(self.uri, OutputRef) else said
