"""A pod in the words of a step: the spec's own words first; what it has no word for goes into `kubernetes.merge`.

Values of a file as plain data, and text with an engine's tags as text with references.

A text is a tuple of parts: plain text, or a reference as the pipeline's document has it (`{"param": "lr"}`). The scope
says what a tag stands for; a tag that stands for text disappears into it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.catalog.catalog import FormName, models_with_product
from gpuflow.core.errors import Where
from gpuflow.formats.nodes import mapping, maps, plain_value
from gpuflow.importing.unsupported import NO_FIELD, TAG, Place, Unsupported
from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from gpuflow.kubernetes.pod_fields import fields_of
from gpuflow.pod.build import SCRIPT_RUNNER
from gpuflow.site import Site
from gpuflow.spec.kubernetes_fields import OF_MAIN, OF_POD
from gpuflow.spec.names import LABEL_PREFIX
from gpuflow.spec.template_tags import looks_like_template


def whole_number(value: Any) -> int | None:
    """A number from 0 up that Argo and Kubernetes read too, be it as text; None for anything else."""
    text = str(value)
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def scalar_text(value: Any) -> str:
    """A scalar as it is written."""
    if isinstance(value, str):
        return value
    spelled = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return getattr(value, "text", None) or spelled


Part = str | dict[str, Any]
Parts = tuple[Part, ...]
Lookup = Callable[[str], Parts | None]
"""What a tag stands for; None when nothing in a pipeline says it."""

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_VARIABLE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def merge_text(parts: Parts) -> Parts:
    """Neighbors that are plain text as one, without empty ones."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] += part
        elif part != "":
            found.append(part)
    return tuple(found)


def fill_tags(text: str, lookup: Lookup) -> tuple[Parts, list[str]]:
    """The text with its tags looked up, and the tags that stand for nothing here."""
    parts: list[Part] = []
    lost: list[str] = []
    end = 0
    for match in _TAG.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        value = lookup(match[1].strip())
        if value is None:
            lost.append(match[0])
        else:
            parts += value
    return merge_text((*parts, text[end:])), lost


def plain_text(parts: Parts) -> str | None:
    """The text, when it holds no reference."""
    if not parts:
        return ""
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else None


def document_value(parts: Parts) -> Any:
    """As the document of a pipeline has it."""
    text = plain_text(parts)
    if text is not None:
        return {"text": text} if looks_like_template(text) else text
    return parts[0] if len(parts) == 1 else {"join": [document_value((part,)) for part in parts]}


def condition_in_words(text: str, token: re.Pattern[str], word_of: Callable[[re.Match[str]], str | None]) -> str | None:
    """An engine's condition as one of a pipeline, token by token; None where a token has no word in a pipeline."""
    words: list[str] = []
    at = 0
    while at < len(text):
        match = token.match(text, at)
        word = None if match is None else word_of(match)
        if match is None or word is None:
            return None
        at = match.end()
        words.append(word)
    return " ".join(words).replace("( ", "(").replace(" )", ")")


def operand(parts: Parts | None, quoted: Callable[[str], str]) -> str | None:
    """What a tag stands for, as a condition of a pipeline names it; None where none does."""
    if parts is None or len(parts) > 1:
        return None
    part = parts[0] if parts else ""
    if isinstance(part, str):
        return quoted(part)
    ((kind, name),) = part.items() if len(part) == 1 else (("", ""),)
    return {"param": f"params.{name}", "output": f"steps.{name}", "item": f"item.{name}"}.get(kind)


def expand_variables(parts: Parts, variables: Mapping[str, Parts | None]) -> Parts | None:
    """The text as the kubelet hands it over: `$$` is `$`, `$(NAME)` a variable's value. None: it is not known."""
    found: list[Part] = []
    for part in parts:
        if not isinstance(part, str):
            found.append(part)
            continue
        end = 0
        for match in _VARIABLE.finditer(part):
            found.append(part[end : match.start()])
            end = match.end()
            if match[1] is None:
                found.append("$")
            elif match[1] not in variables:
                found.append(match[0])
            else:
                value = variables[match[1]]
                if value is None:
                    return None
                found += value
        found.append(part[end:])
    return merge_text(tuple(found))


FORMS: tuple[FormName, ...] = ("sxm", "pcie", "nvl")
_MIG = re.compile(r"nvidia\.com/mig-([0-9]+g\.[0-9]+gb)")


def gpu_fields(
    extended: dict[str, str], selector: dict[str, str], site: Site
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """The GPU fields of a step, with the node labels and resources that they do not cover."""
    rest = dict(extended)
    label = site.gpu.product_label
    product = str(selector[label]) if label in selector else None
    models = models_with_product(product) if product else ()
    count = whole_number(rest.get(site.gpu.resource))
    if count:
        del rest[site.gpu.resource]
        if len(models) != 1 or label is None or product is None:
            return {"gpu": count}, selector, rest
        others = {key: value for key, value in selector.items() if key != label}
        model = models[0]
        forms = [form for form in FORMS if product in model.products_in(form)]
        form = {"form": forms[0]} if len(forms) == 1 and len(model.products) > 1 else {}
        return {"gpu": {"model": model.id, "count": count, **form}}, others, rest
    for name in rest:
        match = _MIG.fullmatch(name)
        slices = whole_number(rest[name])
        if match and len(models) == 1 and site.mig.strategy == "mixed" and slices is not None:
            others = {key: value for key, value in selector.items() if key != label}
            del rest[name]
            return {"mig": {"profile": match[1], "model": models[0].id, "count": slices}}, others, rest
    return {}, selector, rest


_TIMES = {"initialDelaySeconds": "delay", "periodSeconds": "period", "timeoutSeconds": "timeout"}


def probe_fields(probe: Mapping[str, Any]) -> dict[str, Any] | None:
    """The probe; None if the spec's fields do not cover it, so that the patch must carry it."""
    found: dict[str, Any] = {}
    for key, value in probe.items():
        if key in _TIMES and value:
            found[_TIMES[key]] = f"{value}s"
        elif key == "failureThreshold":
            found["failures"] = value
        elif key in ("exec", "httpGet", "tcpSocket") and not isinstance(value, Mapping):
            return None
        elif key == "exec" and set(value) == {"command"}:
            found["command"] = value["command"]
        elif key == "httpGet" and set(value) == {"path", "port"} and isinstance(value["port"], int):
            found["http"] = value
        elif key == "tcpSocket" and set(value) == {"port"} and isinstance(value["port"], int):
            found["tcp"] = value["port"]
        else:
            return None
    return found if {"command", "http", "tcp"} & set(found) else None


class PodVolumes:
    """Volumes that the spec has words for become entries of `volumes`; the others go into the patch as they are."""

    def __init__(
        self,
        volumes: Any,
        containers: Iterable[Mapping[str, Any]],
        claims: Mapping[str, str],
        listing: Unsupported,
        place: Place,
        value: Callable[..., Any],
    ) -> None:
        self.volumes = {str(each.get("name")): each for each in volumes or () if isinstance(each, Mapping)}
        self.claims, self.listing, self.place, self.value = claims, listing, place, value
        self._raw: dict[str, Any] = {}
        self._mounted = Counter(
            str(mount.get("name")) for each in containers for mount in each.get("volumeMounts") or ()
        )

    def mounts(self, container: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Entries of `volumes` by path, and mounts for the patch."""
        words: dict[str, Any] = {}
        raw: list[Any] = []
        for each in maps(container.get("volumeMounts")):
            mount = self.value(each, each)
            name, path = str(mount.get("name")), str(mount.get("mountPath"))
            source = self._source(name, each)
            if not isinstance(mount.get("mountPath"), str):
                self.listing.cannot(f"mount of {name}", "it names no path", self.place.of(each))
                continue
            if source is None:
                continue
            said = {key: value for key, value in mount.items() if value not in (None, False, "")}
            extra = set(said) - {"name", "mountPath", "readOnly", "subPath"}
            entry = _volume_fields(source) if not extra and path.startswith("/") and ":" not in path else None
            # Scratch space that containers hand to each other at different paths is one volume by its name alone.
            if entry is None or path in words or ("emptyDir" in source and self._mounted[name] > 1):
                self._raw[name] = {"name": name, **source}
                raw.append(mount)
                continue
            entry |= {"read_only": True} if said.get("readOnly") else {}
            entry |= {"sub_path": said["subPath"]} if "subPath" in said else {}
            words[path] = entry
        return words, raw

    def _source(self, name: str, mount: Any) -> dict[str, Any] | None:
        if name in self.claims:
            return {"new_claim": self.claims[name]}
        volume = self.volumes.get(name)
        if volume is None:
            where = self.place.of(mount, "name")
            self.listing.cannot(f"volume {name}", "no volume of that name is declared", where, "declare it in volumes")
            return None
        value = self.value(volume, volume)
        return {key: item for key, item in value.items() if key != "name"}

    def raw(self) -> list[Any]:
        """Volumes for the patch; also those that no container mounts, which are lost otherwise."""
        return list(self._raw.values())


def _volume_fields(source: Mapping[str, Any]) -> dict[str, Any] | None:
    """A volume's source as fields of the spec; None if they do not cover all of it."""
    if len(source) != 1:
        return None
    ((kind, value),) = source.items()
    if kind == "new_claim":
        return {"new_claim": value}
    if not isinstance(value, Mapping):
        return None
    given = {key: item for key, item in value.items() if item not in (None, False)}
    if kind == "persistentVolumeClaim" and set(given) == {"claimName"}:
        return {"claim": given["claimName"]}
    sized = kind == "emptyDir" and set(given) <= {"sizeLimit", "medium"} and "sizeLimit" in given
    if sized and given.get("medium") in (None, "", "Memory"):
        return {"memory" if given.get("medium") else "empty_dir": str(given["sizeLimit"])}
    if kind == "hostPath" and set(given) <= {"path", "type"}:
        return {"host_path": given if given.get("type") else given["path"]}
    if kind == "nfs" and set(given) == {"server", "path"}:
        return {"nfs": given}
    name = {"configMap": "name", "secret": "secretName"}.get(kind)
    if name and set(given) <= {name, "items", "optional", "defaultMode"} and name in given:
        return _files(kind, given, name)
    return None


def _files(kind: str, given: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"config_map" if kind == "configMap" else "secret": given[name]}
    if given.get("items"):
        found["items"] = {
            each["key"]: {"path": each["path"], "mode": f"0{each['mode']:o}"} if "mode" in each else each["path"]
            for each in given["items"]
        }
    if "defaultMode" in given:
        found["default_mode"] = f"0{given['defaultMode']:o}"
    if given.get("optional"):
        found["optional"] = True
    return found


BRACE = "GPUFLOW_BRACE"
"""A variable of ours that carries a brace past Argo."""
AMOUNTS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral_storage"}
COVERED_FIELDS = (
    "name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "resources", "volumeMounts",
)  # fmt: skip
"""Fields of a container that the words of a step cover."""
POD_FIELDS = (
    "containers", "initContainers", "volumes", "restartPolicy", "serviceAccountName", "serviceAccount",
    "activeDeadlineSeconds", "terminationGracePeriodSeconds", "imagePullSecrets",
)  # fmt: skip


@dataclass
class Step:
    """A step that is being written, and the pod that it must have."""

    words: dict[str, Any]
    wanted: dict[str, Any] = field(default_factory=dict)
    """Fields of the pod's spec, of `main`, and of init containers by name, as the file has them."""
    patch: dict[str, Any] = field(default_factory=dict)
    """What no word of the spec says, in Kubernetes' words."""
    where: Where = field(default_factory=Where)
    secured: bool = False
    """Whether the engine's own container template says what a program may do; then only who runs is the pod's."""
    sound: bool = True
    """Whether all of it could be said."""


class PodReader:
    """Reads the pods of one document."""

    def __init__(
        self, listing: Unsupported, place: Place, site: Site, lookup: Lookup, claims: Mapping[str, str]
    ) -> None:
        """`lookup`: what tags stand for; `claims`: volumes that are made for each run, and the claim's name."""
        self.listing, self.place, self.site, self.lookup, self.claims = listing, place, site, lookup, claims
        self.set_outside: dict[str, Parts | None] = {}
        """Variables that whoever makes the pod adds to it."""
        self.structured: Callable[[str], list[str] | None] = lambda text: None
        """The parts of a text that its engine puts together."""

    def step(
        self, spec: Mapping[str, Any], main: Mapping[str, Any], metadata: Mapping[str, Any], script: Any = None
    ) -> Step:
        """The step of a pod: its spec, and the container that the step's program runs in."""
        step = Step({}, where=self.place.of(main))
        words = step.words
        containers = (main, *maps(spec.get("initContainers")))
        volumes = PodVolumes(spec.get("volumes"), containers, self.claims, self.listing, self.place, self.value)
        self._container(main, words, step, volumes, script)
        step.wanted["main"] = self._other_fields(main, "container")
        self._probes(main, words)
        helpers: dict[str, Any] = {}
        for each in maps(spec.get("initContainers")):
            beside = each.get("restartPolicy") == "Always"
            helper: dict[str, Any] = {"name": self.plain_field(each, "name")}
            raw = Step(helper, where=self.place.of(each))
            self._container(each, helper, raw, volumes, None)
            for name in set(helper) - HELPER:
                self._refuse_field(each, name, "container")
            words.setdefault("sidecars" if beside else "init_containers", []).append(helper)
            helpers[str(helper["name"])] = self._other_fields(each, "init container", ("restartPolicy",))
            raw.patch.pop("volumes", None)
            if raw.patch:
                step.patch.setdefault("initContainers", []).append({"name": helper["name"], **raw.patch})
        step.wanted["init"] = helpers
        self._spec(spec, words, step)
        if raw_volumes := volumes.raw():
            step.patch["volumes"] = raw_volumes
        for key in ("labels", "annotations"):
            if isinstance(metadata.get(key), Mapping) and metadata[key]:
                words[key] = {str(name): str(self.value(value, metadata[key])) for name, value in metadata[key].items()}
        words["labels"] = {
            key: value for key, value in words.get("labels", {}).items() if not key.startswith(LABEL_PREFIX)
        }
        self._queue(words)
        self.listing.fields(metadata, ("labels", "annotations"), "metadata", self.place)
        return step

    def _queue(self, words: dict[str, Any]) -> None:
        labels = words.get("labels", {})
        if queue := labels.pop(QUEUE_LABEL, None):
            words["queue"] = queue
        if first := labels.pop(QUEUE_PRIORITY_LABEL, None):
            pod = {"pod": words["priority"]} if "priority" in words else {}
            words["priority"] = {**pod, "queue": first}
        if "labels" in words and not labels:
            del words["labels"]

    # ------------------------------------------------------------------ values

    def text(self, value: Any, owner: Any, key: Any = None) -> Parts:
        """Text that may hold references."""
        text = scalar_text(value)
        pieces = self.structured(text)
        if pieces is not None:
            return merge_text(tuple(part for piece in pieces for part in self.text(piece, owner, key)))
        parts, lost = fill_tags(text, self.lookup)
        for tag in lost:
            self.listing.cannot(tag, "no reference of a pipeline says it", self.place.of(owner, key), TAG_HINT, TAG)
        return parts

    def value(self, value: Any, owner: Any, key: Any = None) -> Any:
        """A value that holds no reference: tags must stand for text."""
        if isinstance(value, Mapping):
            return {str(name): self.value(item, value, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, value, index) for index, item in enumerate(value)]
        if not isinstance(value, str) or "{{" not in value:
            return plain_value(value)
        text = plain_text(self.text(value, owner, key))
        if text is None:
            why = "only text, variables and conditions take references, and this is none of them"
            self.listing.cannot(value, why, self.place.of(owner, key), "write the value itself", TAG)
            return value
        return text

    def plain_field(self, owner: Mapping[str, Any], key: str) -> Any:
        """The value of a field without references."""
        return self.value(owner[key], owner, key) if owner.get(key) is not None else None

    def _refuse_field(self, owner: Any, key: str, what: str) -> None:
        self.listing.fields({key: owner.get(key)} if isinstance(owner, Mapping) else {}, (), what, self.place)

    # -------------------------------------------------------------- containers

    def _container(
        self, main: Mapping[str, Any], words: dict[str, Any], step: Step, volumes: PodVolumes, script: Any
    ) -> None:
        where = self.place.of(main)
        words["image"] = self.plain_field(main, "image")
        for key, name in (("imagePullPolicy", "image_pull_policy"), ("workingDir", "working_dir")):
            if main.get(key):
                words[name] = self.plain_field(main, key)
        variables = self._environment(main, words, step)
        if script is not None:
            self._script(main, script, words)
        elif not main.get("command") or not isinstance(main["command"], list):
            why = "it runs what its image says, which no engine can see"
            hint = "write the image's ENTRYPOINT and CMD as command and args"
            self.listing.cannot("container without command", why, where, hint)
        else:
            for key in ("command", "args"):
                if isinstance(main.get(key), list):
                    texts = main[key]
                    words[key] = [
                        document_value(self._expand_variables(self.text(text, texts, index), variables, texts, index))
                        for index, text in enumerate(texts)
                    ]
        self._resources(main, words)
        mounts, raw = volumes.mounts(main)
        if mounts:
            words["volumes"] = mounts
        if raw:
            step.patch["volumeMounts"] = raw

    def _expand_variables(self, parts: Parts, variables: Mapping[str, Parts | None], owner: Any, key: Any) -> Parts:
        value = expand_variables(parts, variables)
        if value is None:
            hint = "let a shell read the variable: sh -c 'program \"$NAME\"'"
            self.listing.cannot(
                "$(NAME)", "its value is a Secret or a fact of the pod", self.place.of(owner, key), hint
            )
            return parts
        return value

    def _script(self, main: Mapping[str, Any], script: Any, words: dict[str, Any]) -> None:
        """Argo hands a script over as a file: nothing in it is expanded but its tags."""
        source = self.text(script, main, "source")
        interpreter = [self.value(word, main.get("command"), i) for i, word in enumerate(main.get("command") or ["sh"])]
        if main.get("args"):
            self._refuse_field(main, "args", "script")
        text = plain_text(source)
        if text is not None:
            words["script"] = {"run": text, "interpreter": interpreter} if interpreter != ["sh"] else text
        else:  # a script of a step is data, so the text with references is handed to the same small program
            words["command"] = ["sh", "-c", SCRIPT_RUNNER, document_value(source), *interpreter]

    def _environment(self, main: Mapping[str, Any], words: dict[str, Any], step: Step) -> dict[str, Parts | None]:
        env: dict[str, Any] = {}
        known = dict(self.set_outside)
        raw: list[Any] = []
        for entry in maps(main.get("env")):
            name = str(entry.get("name") or "")
            source = mapping(entry.get("valueFrom"))
            if not name:
                self.listing.cannot("variable", "it has no name", self.place.of(entry))
                continue
            self.listing.fields(entry, ("name", "value", "valueFrom"), "variable", self.place)
            self.listing.fields(source, SOURCES, "valueFrom", self.place)
            for kind in SOURCES[:2]:
                self.listing.fields(source.get(kind), ("name", "key", "optional"), kind, self.place)
            if name in known:
                self.listing.cannot(f"variable {name}", "it is set twice", self.place.of(entry), "keep the last one")
            if not source:
                value = self._expand_variables(
                    self.text(entry.get("value") or "", entry, "value"), known, entry, "value"
                )
                known[name] = value
                if name != BRACE:
                    env[name] = document_value(value)
                continue
            known[name] = None
            if (key := source.get("secretKeyRef")) and key.get("name"):
                env[name] = _key("secret", self.value(key, source))
            elif (key := source.get("configMapKeyRef")) and key.get("name"):
                env[name] = _key("config_map", self.value(key, source))
            else:
                raw.append(self.value(entry, entry))
        if env:
            words["env"] = env
        if raw:
            step.patch["env"] = raw
        sources = []
        for entry in maps(main.get("envFrom")):
            self.listing.fields(entry, ("prefix", "secretRef", "configMapRef"), "envFrom", self.place)
            for kind in ("secretRef", "configMapRef"):
                self.listing.fields(entry.get(kind), ("name", "optional"), kind, self.place)
            value = self.value(entry, entry)
            found = {"prefix": value.get("prefix")}
            for kind, word in (("secretRef", "secret"), ("configMapRef", "config_map")):
                if kind in value:
                    found |= {word: value[kind].get("name"), "optional": value[kind].get("optional") or None}
            sources.append({key: item for key, item in found.items() if item})
        if sources:
            words["env_from"] = sources
        return known

    def _resources(self, main: Mapping[str, Any], words: dict[str, Any]) -> None:
        resources = mapping(main.get("resources"))
        self.listing.fields(resources, ("requests", "limits"), "resources", self.place)
        requests = self.plain_field(resources, "requests") or {}
        limits = self.plain_field(resources, "limits") or {}
        for name, word in AMOUNTS.items():
            amount = {"request": requests.pop(name, None), "limit": limits.pop(name, None)}
            amount = {key: str(value) for key, value in amount.items() if value is not None}
            if amount:
                same = len(amount) == 2 and amount["request"] == amount["limit"]
                words[word] = amount["limit"] if same else amount
        extended = {**requests, **limits}
        for name in extended:
            if "/" not in name:
                self._refuse_field(resources.get("limits") or resources.get("requests"), name, "resource")
            elif name not in limits or requests.get(name, limits[name]) != limits[name]:
                where = self.place.of(resources.get("requests"), name)
                why = "Kubernetes takes only a limit, and a request that is equal to it"
                self.listing.cannot(f"request of {name}", why, where, f"write it below limits: {name}")
        if extended:
            words["extended"] = {name: str(value) for name, value in extended.items()}

    def _probes(self, main: Mapping[str, Any], words: dict[str, Any]) -> None:
        given = {kind: self.plain_field(main, f"{kind}Probe") for kind in ("liveness", "readiness", "startup")}
        if probes := {kind: fields for kind, probe in given.items() if probe and (fields := probe_fields(probe))}:
            words["probes"] = probes

    def _other_fields(self, main: Mapping[str, Any], what: str, also: tuple[str, ...] = ()) -> dict[str, Any]:
        """Fields of a container that no word covers: Kubernetes' own go into the patch, others are listed."""
        known = fields_of("Container")
        found = {}
        for key in main:
            if key in COVERED_FIELDS or key in also or main[key] in (None, [], {}):
                continue
            if key not in known or key in OF_MAIN:
                self.listing.cannot(f"{what} {key}", NO_FIELD, self.place.of(main, key))
            else:
                found[key] = self.plain_field(main, key)
        return found

    # --------------------------------------------------------------------- pod

    def _spec(self, spec: Mapping[str, Any], words: dict[str, Any], step: Step) -> None:
        wanted = step.wanted["spec"] = {
            key: self.plain_field(spec, key)
            for key in spec
            if key not in POD_FIELDS and key in fields_of("PodSpec") and spec[key] not in (None, [], {})
        }
        for key in spec:
            if (key not in fields_of("PodSpec") or key in OF_POD) and key not in POD_FIELDS and spec[key]:
                self.listing.cannot(f"pod {key}", NO_FIELD, self.place.of(spec, key))
        for key, word in (("serviceAccountName", "service_account"), ("priorityClassName", "priority")):
            if spec.get(key):
                words[word] = self.plain_field(spec, key)
        for key, word in (("activeDeadlineSeconds", "timeout"), ("terminationGracePeriodSeconds", "termination_grace")):
            if spec.get(key) is not None:
                words[word] = f"{self.plain_field(spec, key)}s"
        secrets = [str(each.get("name")) for each in self.plain_field(spec, "imagePullSecrets") or ()]
        if secrets:
            words["image_pull_secrets"] = secrets
        hatch: dict[str, Any] = {word: wanted[key] for key, word in KUBERNETES_FIELDS.items() if wanted.get(key)}
        if "tolerations" in hatch:
            hatch["tolerations"] = [_toleration(each) for each in hatch["tolerations"]]
        extended = words.pop("extended", {})
        step.wanted["main_resources"] = extended
        gpu, selector, rest = gpu_fields(extended, dict(hatch.pop("node_selector", {})), self.site)
        words |= gpu
        if selector:
            hatch["node_selector"] = selector
        if rest:
            hatch["resources"] = rest
        security = wanted.get("securityContext") or {}
        own = {"user": security.get("runAsUser") or None, "group": security.get("runAsGroup")}
        own |= {"fs_group": security.get("fsGroup"), "run_as_root": security.get("runAsUser") == 0 or None}
        own["privileged"] = step.wanted["main"].get("securityContext", {}).get("privileged") or None
        if said := {key: value for key, value in own.items() if value is not None}:
            words["security"] = said
        if hatch:
            words["kubernetes"] = hatch


KUBERNETES_FIELDS = {
    "nodeSelector": "node_selector",
    "tolerations": "tolerations",
    "affinity": "affinity",
    "schedulerName": "scheduler",
    "runtimeClassName": "runtime_class",
    "hostIPC": "host_ipc",
    "hostNetwork": "host_network",
    "dnsPolicy": "dns_policy",
}
SOURCES = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")
HELPER = {"name", "image", "command", "args", "env", "env_from", "volumes", "cpu", "memory"}
TAG_HINT = "references are {param: …}, {output: step.name}, {item: …} and {run: id}"


def _key(kind: str, source: Mapping[str, Any]) -> dict[str, Any]:
    optional = {"optional": True} if source.get("optional") else {}
    return {kind: source.get("name"), "key": source.get("key"), **optional}


def _toleration(each: Mapping[str, Any]) -> dict[str, Any]:
    return {{"tolerationSeconds": "toleration_seconds"}.get(key, key): value for key, value in each.items()}
