"""Step + site = one plain pod. No other module makes pods: targets write this one, and the checker checks it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from gpuflow.core.errors import Finding, GpuflowError, fail, join_names
from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from gpuflow.plan import PlannedStep, planned_step, supervision_of
from gpuflow.pod.gang import DEFAULT_SECURITY, SHM, gang_environment, program_security, with_network
from gpuflow.pod.patch import merged_pod
from gpuflow.pod.placement import PLACEMENT_FIELDS, Devices, devices, scheduling_fields, topology_annotations
from gpuflow.pod.spelling import ReadableSpelling, Spelling, spell_text
from gpuflow.pod.supervision import (
    Engine,
    active_deadline,
    scratch_size,
    supervised_command,
    supervisor_environment,
    termination_grace,
)
from gpuflow.pod.volumes import Volumes, input_mounts, room_on_node
from gpuflow.site import Site
from gpuflow.spec.container import ConfigMapKey, EnvFrom, Helper, Hook, Lifecycle, Probe, Probes, SecretKey, Security
from gpuflow.spec.kubernetes_fields import DnsConfig
from gpuflow.spec.names import LABEL_PREFIX
from gpuflow.spec.params import Output
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Kubernetes, Spot
from gpuflow.spec.references import writer_of
from gpuflow.spec.resources import Amount
from gpuflow.spec.step import Step, leader_step
from gpuflow.spec.storage_paths import bucket_of, lost_with_pod, possible_texts, text_fault
from gpuflow.spec.text import parts_of


def refusal_at(
    pipeline: Pipeline, step: str, path: tuple[str, ...], code: str, message: str, *, hint: str
) -> GpuflowError:
    """A refusal at a part of a step. Where no line of it is known, whoever makes the pod names the step."""
    where = pipeline.where_step(step, *path)
    return fail(code, message if where.line is None else f'step "{step}": {message}', hint=hint, where=where)


Path = tuple[str, ...]


def bucket_credentials(planned: PlannedStep) -> dict[str, Any]:
    """The variables for all buckets of a step. Refused: a bucket that the site does not know, no place at all, and two
    buckets that ask for different values of one variable."""
    pipeline, name, step, site = planned.pipeline, planned.own_name, planned.step, planned.site
    if not (step.checkpoint or step.outputs or step.inputs or site.runtime.state):
        return {}  # it uses none
    known = site.runtime.buckets
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    _check_root(pipeline, name, step, site)
    for place, what, path in _used_buckets(pipeline, step, site):
        refused = partial(refusal_at, pipeline, name, path)
        if place is None:
            hint = "give it a uri, like s3://models/run, or set runtime.artifacts in the site"
            raise refused("GF327", f"{what} has no uri, and the site has no runtime.artifacts to keep it in", hint=hint)
        if not known or not place:
            continue
        if place not in known:
            raise refused(
                "GF328",
                f"{what} is in {place}, which is not a bucket of the site",
                hint=_similar_bucket(place, known)
                or f"add it under runtime.buckets of the site; it has {join_names(sorted(known))}",
            )
        for variable, value in known[place].env.items():
            if variable in found and found[variable] != value and variable not in step.env:
                text = f"{place} and {origin[variable]} ask for different values of {variable}"
                hint = "set the variable in the step, or copy between the buckets in a step of its own"
                raise refused("GF329", text, hint=hint)
            found.setdefault(variable, value)
            origin.setdefault(variable, place)
    return {variable: value for variable, value in sorted(found.items()) if variable not in step.env}


def _check_root(pipeline: Pipeline, step_name: str, step: Step, site: Site) -> None:
    """A root that is a path lies on a volume that outlives the pod, in the steps that write there or read from it."""
    root = site.runtime.artifacts
    where, refused = f"runtime.artifacts of the site, {root}", partial(refusal_at, pipeline, step_name)
    for name, output in step.outputs.items():
        if output.is_artifact and output.uri is None and lost_with_pod(pipeline, step, root) is not None:
            message = f"the output {name} would be kept at {where}, and be lost with the pod"
            hint = f"mount a claim at {root}, or name a bucket there, like s3://models"
            raise refused(("outputs", name), "GF350", message, hint=hint)
    for mount, given in step.inputs.items():
        declared = None if given.output is None else pipeline.declared_output(given.output)
        if declared is not None and declared[0].uri is None and lost_with_pod(pipeline, step, root, reads=True):
            message = f"the input {mount} is kept at {where}, and the step has no volume there"
            raise refused(("inputs", mount), "GF350", message, hint="mount the volume that it is written to")


def _used_buckets(pipeline: Pipeline, step: Step, site: Site) -> Iterator[tuple[str | None, str, Path]]:
    """Each bucket that the supervisor uses, for what, and where the step says so. Empty text: only the run knows it, or
    it is a path. None: there is no place."""
    runtime, checkpoint = site.runtime, step.checkpoint
    store = None if checkpoint is None else checkpoint.store
    if store is not None:
        yield from _buckets(pipeline, step, store, "checkpoint.store", ("checkpoint", "store"))
    elif runtime.state is not None and supervision_of(step, site).counts_budgets:  # whatever the engine
        yield from _buckets(pipeline, step, runtime.state, "runtime.state of the site", ())
    for name, output in step.outputs.items():
        if output.is_artifact:
            kept, what, path = _kept_at(step, output, site), f"the output {name}", ("outputs", name)
            yield from [(None, what, path)] if kept is None else _buckets(pipeline, step, kept, what, path)
    for mount, given in step.inputs.items():
        what, path = f"the input {mount}", ("inputs", mount)
        if given.uri is not None:
            yield from _buckets(pipeline, step, given.uri, what, path)
            if any(not isinstance(parts_of(text)[0], str) for text in possible_texts(pipeline, step, given.uri)):
                # What only the run knows is most likely what an earlier step has kept where the site says.
                yield from _buckets(pipeline, step, runtime.artifacts, what, path)
        if given.output is not None:
            # A step on its own does not know who gives it the output.
            writer = writer_of(pipeline, given.output) or (pipeline, step)
            declared = pipeline.declared_output(given.output)
            kept = runtime.artifacts if declared is None else _kept_at(writer[1], declared[0], site)
            yield from _buckets(*writer, kept, what, path)


def _kept_at(step: Step, output: Output, site: Site) -> Any:
    """An artifact is at its uri, where the site says, or beside the checkpoints of its step."""
    store = None if step.checkpoint is None else step.checkpoint.store
    return next((place for place in (output.uri, site.runtime.artifacts, store) if place is not None), None)


def _buckets(pipeline: Pipeline, step: Step, uri: Any, what: str, path: Path) -> Iterator[tuple[str | None, str, Path]]:
    for place in dict.fromkeys(
        bucket_of(text) or "" for text in possible_texts(pipeline, step, uri) if text_fault(text) is None
    ):
        yield place, what, path


def _similar_bucket(place: str, known: Collection[str]) -> str | None:
    """Buckets with similar names. What precedes the name is the same in nearly all of them."""
    names = {each.partition("://")[2]: each for each in sorted(known)}
    close = difflib.get_close_matches(place.partition("://")[2], names, n=3, cutoff=0.6)
    return "did you mean " + " or ".join(f'"{names[name]}"' for name in close) + "?" if close else None


SCRIPT_RUNNER = 'f=$(mktemp) && printf %s "$0" >"$f" && exec "$@" "$f"'
"""Runs any interpreter on a script that is handed over as text; needs a shell in the image, nothing else."""


def rewritten(image: str, site: Site) -> str:
    """The image's name on this site: the longest matching prefix is replaced."""
    for prefix in sorted(site.images.rewrites, key=len, reverse=True):
        for name in (image, _full_name(image)):
            if name.startswith(prefix):
                return site.images.rewrites[prefix] + name[len(prefix) :]
    return image


def _full_name(image: str) -> str:
    """`python:3.12` is short for `docker.io/library/python:3.12`."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def command_of(step: Step, spelling: Spelling) -> list[str]:
    """What the step runs, as an argument list."""
    if step.script is not None:
        runner = [spell_text(SCRIPT_RUNNER, spelling)]
        text = spell_text(step.script.run, spelling)
        return ["sh", "-c", *runner, text, *(spell_text(word, spelling) for word in step.script.interpreter)]
    return [spell_text(word, spelling) for word in (*step.command, *step.args)]


def environment(env: dict[str, Any], spelling: Spelling) -> list[dict[str, Any]]:
    """`env` of a container, in the order of the document."""
    return [{"name": name, **_env_value(value, spelling)} for name, value in env.items()]


def _env_value(value: Any, spelling: Spelling) -> dict[str, Any]:
    if not isinstance(value, str) and isinstance(value, SecretKey | ConfigMapKey):
        kind, name = (
            ("secretKeyRef", value.secret) if isinstance(value, SecretKey) else ("configMapKeyRef", value.config_map)
        )
        optional = {"optional": True} if value.optional else {}
        return {"valueFrom": {kind: {"name": name, "key": value.key, **optional}}}
    return {"value": spell_text(value, spelling)}


def environment_from(sources: tuple[EnvFrom, ...]) -> list[dict[str, Any]]:
    result = []
    for source in sources:
        kind, name = ("secretRef", source.secret) if source.secret else ("configMapRef", source.config_map)
        entry: dict[str, Any] = {"prefix": source.prefix} if source.prefix else {}
        entry[kind] = {"name": name, **({"optional": True} if source.optional else {})}
        result.append(entry)
    return result


def resources(amounts: dict[str, Amount | None], devices: dict[str, int], extended: dict[str, str]) -> dict[str, Any]:
    """Requests and limits. Extended resources stand in both, equal, because Kubernetes allows nothing else."""
    requests = {name: str(amount.request) for name, amount in amounts.items() if amount and amount.request is not None}
    limits = {name: str(amount.limit) for name, amount in amounts.items() if amount and amount.limit is not None}
    for name, count in {**{key: str(value) for key, value in devices.items()}, **extended}.items():
        requests[name] = limits[name] = count
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def container_security(security: Security) -> dict[str, Any]:
    """What Kubernetes' restricted standard asks of a container, less what the step gives up by name."""
    if security.privileged:
        return {"privileged": True}
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    if security.add_capabilities:
        capabilities["add"] = list(security.add_capabilities)
    result: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": capabilities}
    if security.read_only_root:
        result["readOnlyRootFilesystem"] = True
    return result


def pod_security(security: Security, site: Site) -> dict[str, Any]:
    """Identity of the pod: the site's user unless the step says otherwise."""
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    if security.run_as_root:
        return {"runAsUser": 0, **profile}
    user = security.user if security.user is not None else site.identity.user
    group = security.group if security.group is not None else site.identity.group
    fs_group = security.fs_group if security.fs_group is not None else site.identity.fs_group
    return {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": group, "fsGroup": fs_group, **profile}


def probes_of(probes: Probes | None, spelling: Spelling) -> dict[str, Any]:
    if probes is None:
        return {}
    named = {"livenessProbe": probes.liveness, "readinessProbe": probes.readiness, "startupProbe": probes.startup}
    return {name: _probe(probe, spelling) for name, probe in named.items() if probe is not None}


def _probe(probe: Probe, spelling: Spelling) -> dict[str, Any]:
    times = {"initialDelaySeconds": probe.delay, "periodSeconds": probe.period, "timeoutSeconds": probe.timeout}
    result: dict[str, Any] = {key: value.seconds for key, value in times.items() if value is not None}
    if probe.failures is not None:
        result["failureThreshold"] = probe.failures
    return {**(_action(probe, spelling) or {"tcpSocket": {"port": probe.tcp}}), **result}


def _action(of: Probe | Hook, spelling: Spelling) -> dict[str, Any] | None:
    """The command that a probe or a hook runs, or what it gets; None where it is neither."""
    if of.command is not None:
        # The kubelet expands $(VAR) here too.
        return {"exec": {"command": [spell_text(word, spelling) for word in of.command]}}
    return None if of.http is None else {"httpGet": {"path": of.http.path, "port": of.http.port}}


def lifecycle_of(lifecycle: Lifecycle | None, spelling: Spelling) -> dict[str, Any]:
    if lifecycle is None:
        return {}
    named = {"postStart": lifecycle.post_start, "preStop": lifecycle.pre_stop}
    return {name: _hook(hook, spelling) for name, hook in named.items() if hook is not None}


def _hook(hook: Hook, spelling: Spelling) -> dict[str, Any]:
    if hook.sleep is not None:
        return {"sleep": {"seconds": hook.sleep.seconds}}
    return _action(hook, spelling) or {}


def helper_container(
    helper: Helper, site: Site, spelling: Spelling, volumes: Volumes, security: Security
) -> dict[str, Any]:
    """An init container, or a sidecar without its restart policy."""
    container: dict[str, Any] = {
        "name": helper.name,
        "image": rewritten(helper.image, site),
        "command": [spell_text(word, spelling) for word in (*helper.command, *helper.args)],
        "env": environment(helper.env, spelling),
        "envFrom": environment_from(helper.env_from),
        "ports": [{"containerPort": port} for port in helper.ports],
        "volumeMounts": [volumes.mount(path, volume) for path, volume in helper.volumes.items()],
        "resources": resources({"cpu": helper.cpu, "memory": helper.memory}, {}, {}),
        **probes_of(helper.probes, spelling),
        "lifecycle": lifecycle_of(helper.lifecycle, spelling),
        "securityContext": container_security(security),
    }
    return {key: value for key, value in container.items() if value}


def network(hatch: Kubernetes) -> dict[str, Any]:
    """Fields of the pod's spec; None or empty where nothing is said."""
    return {
        "hostAliases": [{"ip": ip, "hostnames": list(names)} for ip, names in hatch.host_aliases.items()],
        "dnsPolicy": hatch.dns_policy,
        "dnsConfig": _dns(hatch.dns_config) if hatch.dns_config else None,
    }


def _dns(config: DnsConfig) -> dict[str, Any]:
    options = [
        {"name": name} if value is None else {"name": name, "value": value} for name, value in config.options.items()
    ]
    fields = {"nameservers": list(config.nameservers), "searches": list(config.searches), "options": options}
    return {key: value for key, value in fields.items() if value}


LABEL = LABEL_PREFIX
TMP = "/tmp"
EMPTY_VALUES: tuple[Any, ...] = (None, [], {})
"""What is not written; 0 and False are."""


PLAIN = Engine()


@dataclass(frozen=True, eq=False)
class MadePod:
    """A pod as gpuflow makes it. What the user's patch makes of it, and where it runs off spot nodes, is told without
    making it again."""

    planned: PlannedStep
    """Of a leader's pod, with the fields of the leader."""
    plain: dict[str, Any]
    """Without the patch of `kubernetes.merge`."""
    spelling: Spelling

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """With the patch."""
        return self._with_patch(self.plain)

    def off_spot(self) -> dict[str, Any]:
        """The same pod kept off spot nodes: only its scheduling fields may be others."""
        planned = self.planned.with_fields(spot=Spot(mode="never"))
        with _at_step(planned):
            fields = _placement_fields(planned, devices(planned.step, planned.site))
        rest = {key: value for key, value in self.plain["spec"].items() if key not in PLACEMENT_FIELDS}
        return self._with_patch({**self.plain, "spec": {**rest, **fields}})

    def _with_patch(self, pod: dict[str, Any]) -> dict[str, Any]:
        hatch = self.planned.step.kubernetes
        if hatch is None or hatch.merge is None:
            return pod
        with _at_step(self.planned):
            return merged_pod(pod, hatch.merge, self.spelling, self.planned.site.runtime.mount)


def made_pod(planned: PlannedStep, spelling: Spelling | None = None, engine: Engine = PLAIN) -> MadePod:
    """The pod of a step. Without a spelling, references are shown readably, and the pod is made once."""
    kept: dict[Engine, MadePod] = {} if spelling is not None else planned.__dict__.setdefault("_pods", {})
    if engine not in kept:
        with _at_step(planned):
            step = with_network(leader_step(planned.step) if engine.leads else planned.step, planned.site)
            own = planned if step is planned.step else replace(planned, step=step)
            spelled = spelling or ReadableSpelling()
            kept[engine] = MadePod(own, _pod(own, spelled, engine), spelled)
    return kept[engine]


def pod_of(planned: PlannedStep, spelling: Spelling | None = None, engine: Engine = PLAIN) -> dict[str, Any]:
    """The pod of a step as a manifest (`metadata` and `spec`)."""
    return made_pod(planned, spelling, engine).manifest


def pod_for(
    pipeline: Pipeline, name: str, site: Site, spelling: Spelling | None = None, engine: Engine = PLAIN
) -> dict[str, Any]:
    """The pod of one step of a pipeline."""
    return pod_of(planned_step(pipeline, name, site), spelling, engine)


def leader_pod(planned: PlannedStep, spelling: Spelling | None = None, engine: Engine = PLAIN) -> MadePod | None:
    """The pod of the leader of a gang, rank 0; None where its ranks are all alike."""
    gang = planned.step.gang
    return None if gang is None or gang.leader is None else made_pod(planned, spelling, replace(engine, leads=True))


@contextmanager
def _at_step(planned: PlannedStep) -> Iterator[None]:
    """Refusals without a line get that of the step, and its name."""
    try:
        yield
    except GpuflowError as refusal:
        raise GpuflowError(_with_place(each, planned.pipeline, planned.own_name) for each in refusal.findings) from None


def _with_place(finding: Finding, pipeline: Pipeline, name: str) -> Finding:
    if finding.where.line is not None:
        return finding
    return replace(finding, where=pipeline.where_step(name), message=f'step "{name}": {finding.message}')


def _pod(planned: PlannedStep, spelling: Spelling, engine: Engine) -> dict[str, Any]:
    step, site = planned.step, planned.site
    volumes, security = Volumes(), step.security or DEFAULT_SECURITY
    wanted = devices(step, site)
    main = _main(planned, spelling, engine, volumes, wanted.resources)
    init = [helper_container(helper, site, spelling, volumes, security) for helper in step.init_containers]
    # Sidecars are init containers that keep running: they start before the command and end with it.
    sidecars = [
        {**helper_container(helper, site, spelling, volumes, security), "restartPolicy": "Always"}
        for helper in step.sidecars
    ]
    hatch = step.kubernetes
    secrets = (*site.images.pull_secrets, *step.image_pull_secrets)
    priority = step.priority
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": step.service_account,
        "priorityClassName": priority.pod if priority else None,
        "schedulerName": hatch.scheduler if hatch else None,
        "runtimeClassName": hatch.runtime_class if hatch else None,
        "hostIPC": True if hatch and hatch.host_ipc else None,
        "hostNetwork": True if hatch and hatch.host_network else None,
        **(network(hatch) if hatch else {}),
        "terminationGracePeriodSeconds": termination_grace(step),
        "activeDeadlineSeconds": active_deadline(planned),
        "imagePullSecrets": [{"name": secret} for secret in dict.fromkeys(secrets)],
        "securityContext": pod_security(security, site),
        **_placement_fields(planned, wanted),
        "resourceClaims": _claims(step),
        "initContainers": [*init, *sidecars],
        "containers": [main],
        "volumes": volumes.manifests(),
    }
    annotations = {**topology_annotations(step, site), **step.annotations}
    metadata = {"labels": _labels(planned), "annotations": annotations}
    return {
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {key: value for key, value in spec.items() if value or value not in EMPTY_VALUES},
    }


def _placement_fields(planned: PlannedStep, wanted: Devices) -> dict[str, Any]:
    selector = {f"{LABEL}pipeline": planned.pipeline.name, f"{LABEL}step": planned.own_name}
    return scheduling_fields(planned.step, planned.site, wanted, selector)


def _main(
    planned: PlannedStep, spelling: Spelling, engine: Engine, volumes: Volumes, device_resources: dict[str, int]
) -> dict[str, Any]:
    step, site = planned.step, planned.site
    assert step.image is not None  # the rules refuse a step without one
    mounts = [volumes.mount(path, volume) for path, volume in step.volumes.items()]
    if step.shm is not None:
        mounts.append(volumes.scratch(SHM, memory=True, size=step.shm))
    if _writes_tmp(step) and (step.security or DEFAULT_SECURITY).read_only_root and TMP not in step.volumes:
        mounts.append(volumes.scratch(TMP))
    if step.inputs:
        mounts += input_mounts(planned.pipeline, step, volumes)
    command = command_of(step, spelling)
    variables = environment({**bucket_credentials(planned), **step.env}, spelling)
    if planned.supervision.is_supervised:
        command, more = supervised_command(planned, spelling, engine, volumes, command, sum(device_resources.values()))
        mounts += more
        variables += supervisor_environment(engine)
    variables += gang_environment(step, sum(device_resources.values()), site.gangs.made_as)
    amounts = {
        "cpu": step.cpu,
        "memory": step.memory,
        "ephemeral-storage": _disk(planned) if engine.requests_disk else step.ephemeral_storage,
    }
    extended = {key: str(value) for key, value in (step.kubernetes.resources if step.kubernetes else {}).items()}
    for key in device_resources.keys() & extended.keys():
        text = f"the site maps the step's GPUs to {key}, and kubernetes.resources requests {key} again"
        raise fail("GF165", text, hint=f"drop {key} from kubernetes.resources")
    asked = resources(amounts, device_resources, extended)
    if step.device_claim is not None:
        request = {"request": step.device_claim.request} if step.device_claim.request else {}
        asked["claims"] = [{"name": "gpu", **request}]
    container: dict[str, Any] = {
        "name": "main",
        "image": rewritten(step.image, site),
        "imagePullPolicy": step.image_pull_policy,
        "command": command,
        "workingDir": step.working_dir,
        "env": variables,
        "envFrom": environment_from(step.env_from),
        "resources": asked,
        "volumeMounts": mounts,
        **probes_of(step.probes, spelling),
        "lifecycle": lifecycle_of(step.lifecycle, spelling),
        "securityContext": container_security(program_security(step, site)),
    }
    return {key: value for key, value in container.items() if value or value not in EMPTY_VALUES}


def _writes_tmp(step: Step) -> bool:
    """A script is written there before it runs; so are the agent of mpirun, and the sessions of its daemons."""
    return step.script is not None or (step.gang is not None and step.gang.rendezvous.framework == "mpi")


def _disk(planned: PlannedStep) -> Amount | None:
    """The node's disk: what the step asks for, and at least what checkpoints, inputs and outputs are said to take."""
    step, pipeline = planned.step, planned.pipeline
    own, scratch, files = step.ephemeral_storage, scratch_size(step), room_on_node(pipeline, step)
    if scratch is None and files is None:
        return own
    needed = scratch if files is None else files if scratch is None else scratch + files
    assert needed is not None
    if own is None:
        return Amount(request=needed)
    if own.limit is not None and own.limit < needed:
        taken = "checkpoint.scratch is" if files is None else "checkpoint.scratch, inputs and outputs take"
        text = f"{taken} {needed}, and ephemeral_storage has a limit of {own.limit}"
        hint = f"raise the limit of ephemeral_storage to {needed} or more"
        raise refusal_at(pipeline, planned.own_name, ("ephemeral_storage",), "GF323", text, hint=hint)
    return Amount(request=max(own.request or needed, needed), limit=own.limit)


def _claims(step: Step) -> list[dict[str, str]]:
    claim = step.device_claim
    if claim is None:
        return []
    source = {"resourceClaimName": claim.claim} if claim.claim else {"resourceClaimTemplateName": claim.template}
    return [{"name": "gpu", **{key: value for key, value in source.items() if value}}]


def _labels(planned: PlannedStep) -> dict[str, str]:
    step, site = planned.step, planned.site
    labels = {**site.labels, **planned.pipeline.labels, **step.labels}
    ours = {f"{LABEL}pipeline": planned.pipeline.name, f"{LABEL}step": planned.own_name}
    if "team" in labels:
        ours[f"{LABEL}team"] = labels["team"]
    queue = step.queue or site.queue
    if queue is not None:
        ours[QUEUE_LABEL] = queue
        if step.priority is not None and step.priority.queue is not None:
            ours[QUEUE_PRIORITY_LABEL] = step.priority.queue
    return {**labels, **ours}
