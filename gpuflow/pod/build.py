"""Step + site = one plain pod. No other module makes pods: targets write this one, and the checker checks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuflow.core.errors import Finding, GpuflowError, fail
from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from gpuflow.pod.buckets import bucket_credentials, refusal_at
from gpuflow.pod.containers import (
    command_of,
    container_security,
    environment,
    environment_from,
    helper_container,
    lifecycle_of,
    pod_security,
    probes_of,
    resources,
    rewritten,
)
from gpuflow.pod.gang import SHM, gang_environment, program_security, with_network
from gpuflow.pod.patch import merged_pod
from gpuflow.pod.placement import devices, scheduling_fields, topology_annotations
from gpuflow.pod.spelling import ReadableSpelling, Spelling
from gpuflow.pod.supervision import (
    Engine,
    active_deadline,
    is_supervised,
    scratch_size,
    supervised_command,
    supervisor_environment,
    termination_grace,
)
from gpuflow.pod.volumes import Volumes, input_mounts, room_on_node
from gpuflow.site import Site
from gpuflow.spec.container import Security
from gpuflow.spec.kubernetes_fields import DnsConfig
from gpuflow.spec.names import LABEL_PREFIX
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Kubernetes
from gpuflow.spec.resources import Amount
from gpuflow.spec.step import Step, leader_step


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
DEFAULT_SECURITY = Security()
"""What a step that says nothing about security has: one value for all of them."""


def pod_for(
    pipeline: Pipeline, name: str, site: Site, spelling: Spelling | None = None, engine: Engine | None = None
) -> dict[str, Any]:
    """The pod of one step as a manifest (`metadata` and `spec`). Without a spelling, references are shown readably."""
    step, spelling, engine = pipeline.effective(name), spelling or ReadableSpelling(), engine or Engine()
    try:
        step = with_network(leader_step(step) if engine.leads else step, site)
        pod = _pod(pipeline, name, step, site, spelling, engine)
        patch = step.kubernetes.merge if step.kubernetes is not None else None
        return pod if patch is None else merged_pod(pod, patch, spelling, site.runtime.mount)
    except GpuflowError as refusal:
        raise GpuflowError(_with_place(finding, pipeline, name) for finding in refusal.findings) from None


def leader_pod(
    pipeline: Pipeline, name: str, site: Site, spelling: Spelling | None = None, engine: Engine | None = None
) -> dict[str, Any] | None:
    """The pod of the leader of a gang, rank 0; None where its ranks are all alike."""
    gang = pipeline.effective(name).gang
    if gang is None or gang.leader is None:
        return None
    return pod_for(pipeline, name, site, spelling, replace(engine or Engine(), leads=True))


def _with_place(finding: Finding, pipeline: Pipeline, name: str) -> Finding:
    if finding.where.line is not None:
        return finding
    return replace(finding, where=pipeline.where_step(name), message=f'step "{name}": {finding.message}')


def _pod(pipeline: Pipeline, name: str, step: Step, site: Site, spelling: Spelling, engine: Engine) -> dict[str, Any]:
    volumes, security = Volumes(), step.security or DEFAULT_SECURITY
    wanted = devices(step, site)
    main = _main(pipeline, name, step, site, spelling, engine, volumes, wanted.resources)
    init = [helper_container(helper, site, spelling, volumes, security) for helper in step.init_containers]
    # Sidecars are init containers that keep running: they start before the command and end with it.
    sidecars = [
        {**helper_container(helper, site, spelling, volumes, security), "restartPolicy": "Always"}
        for helper in step.sidecars
    ]
    hatch = step.kubernetes
    selector = {f"{LABEL}pipeline": pipeline.name, f"{LABEL}step": name}
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
        "activeDeadlineSeconds": active_deadline(step, site, engine.restarts),
        "imagePullSecrets": [{"name": secret} for secret in dict.fromkeys(secrets)],
        "securityContext": pod_security(security, site),
        **scheduling_fields(step, site, wanted, selector),
        "resourceClaims": _claims(step),
        "initContainers": [*init, *sidecars],
        "containers": [main],
        "volumes": volumes.manifests(),
    }
    annotations = {**topology_annotations(step, site), **step.annotations}
    metadata = {"labels": _labels(pipeline, name, step, site), "annotations": annotations}
    return {
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {key: value for key, value in spec.items() if value or value not in EMPTY_VALUES},
    }


def _main(
    pipeline: Pipeline,
    name: str,
    step: Step,
    site: Site,
    spelling: Spelling,
    engine: Engine,
    volumes: Volumes,
    device_resources: dict[str, int],
) -> dict[str, Any]:
    assert step.image is not None  # the rules refuse a step without one
    mounts = [volumes.mount(path, volume) for path, volume in step.volumes.items()]
    if step.shm is not None:
        mounts.append(volumes.scratch(SHM, memory=True, size=step.shm))
    if _writes_tmp(step) and (step.security or DEFAULT_SECURITY).read_only_root and TMP not in step.volumes:
        mounts.append(volumes.scratch(TMP))
    if step.inputs:
        mounts += input_mounts(pipeline, step, volumes)
    command = command_of(step, spelling)
    variables = environment({**bucket_credentials(pipeline, name, step, site), **step.env}, spelling)
    if is_supervised(step, site, engine.restarts):
        gpus = sum(device_resources.values())
        command, more = supervised_command(pipeline, name, step, site, spelling, engine, volumes, command, gpus)
        mounts += more
        variables += supervisor_environment(engine)
    variables += gang_environment(step, sum(device_resources.values()), site.gangs.made_as)
    amounts = {
        "cpu": step.cpu,
        "memory": step.memory,
        "ephemeral-storage": _disk(pipeline, name, step) if engine.requests_disk else step.ephemeral_storage,
    }
    extended = {key: str(value) for key, value in (step.kubernetes.resources if step.kubernetes else {}).items()}
    for key in device_resources.keys() & extended.keys():
        raise fail(
            "GF165",
            f"the site maps the step's GPUs to {key}, and kubernetes.resources requests {key} again",
            hint=f"drop {key} from kubernetes.resources",
        )
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


def _disk(pipeline: Pipeline, name: str, step: Step) -> Amount | None:
    """The node's disk: what the step asks for, and at least what checkpoints, inputs and outputs are said to take."""
    own, scratch, files = step.ephemeral_storage, scratch_size(step), room_on_node(pipeline, step)
    if scratch is None and files is None:
        return own
    needed = scratch if files is None else files if scratch is None else scratch + files
    assert needed is not None
    if own is None:
        return Amount(request=needed)
    if own.limit is not None and own.limit < needed:
        taken = "checkpoint.scratch is" if files is None else "checkpoint.scratch, inputs and outputs take"
        raise refusal_at(
            pipeline,
            name,
            ("ephemeral_storage",),
            "GF323",
            f"{taken} {needed}, and ephemeral_storage has a limit of {own.limit}",
            hint=f"raise the limit of ephemeral_storage to {needed} or more",
        )
    return Amount(request=max(own.request or needed, needed), limit=own.limit)


def _claims(step: Step) -> list[dict[str, str]]:
    claim = step.device_claim
    if claim is None:
        return []
    source = {"resourceClaimName": claim.claim} if claim.claim else {"resourceClaimTemplateName": claim.template}
    return [{"name": "gpu", **{key: value for key, value in source.items() if value}}]


def _labels(pipeline: Pipeline, name: str, step: Step, site: Site) -> dict[str, str]:
    labels = {**site.labels, **pipeline.labels, **step.labels}
    ours = {f"{LABEL}pipeline": pipeline.name, f"{LABEL}step": name}
    if "team" in labels:
        ours[f"{LABEL}team"] = labels["team"]
    queue = step.queue or site.queue
    if queue is not None:
        ours[QUEUE_LABEL] = queue
        if step.priority is not None and step.priority.queue is not None:
            ours[QUEUE_PRIORITY_LABEL] = step.priority.queue
    return {**labels, **ours}
