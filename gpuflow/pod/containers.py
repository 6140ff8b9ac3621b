"""The containers of a pod: the step's own, and the helpers beside it."""

from __future__ import annotations

from typing import Any

from gpuflow.pod.spelling import Spelling, spell_text
from gpuflow.pod.volumes import Volumes
from gpuflow.site import Site
from gpuflow.spec.container import ConfigMapKey, EnvFrom, Helper, Hook, Lifecycle, Probe, Probes, SecretKey, Security
from gpuflow.spec.resources import Amount
from gpuflow.spec.step import Step

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
    times = {
        "initialDelaySeconds": probe.delay,
        "periodSeconds": probe.period,
        "timeoutSeconds": probe.timeout,
    }
    result: dict[str, Any] = {key: value.seconds for key, value in times.items() if value is not None}
    if probe.failures is not None:
        result["failureThreshold"] = probe.failures
    if probe.command is not None:
        # The kubelet expands $(VAR) here too.
        return {"exec": {"command": [spell_text(word, spelling) for word in probe.command]}, **result}
    if probe.http is not None:
        return {"httpGet": {"path": probe.http.path, "port": probe.http.port}, **result}
    return {"tcpSocket": {"port": probe.tcp}, **result}


def lifecycle_of(lifecycle: Lifecycle | None, spelling: Spelling) -> dict[str, Any]:
    if lifecycle is None:
        return {}
    named = {"postStart": lifecycle.post_start, "preStop": lifecycle.pre_stop}
    return {name: _hook(hook, spelling) for name, hook in named.items() if hook is not None}


def _hook(hook: Hook, spelling: Spelling) -> dict[str, Any]:
    if hook.command is not None:
        return {"exec": {"command": [spell_text(word, spelling) for word in hook.command]}}
    if hook.http is not None:
        return {"httpGet": {"path": hook.http.path, "port": hook.http.port}}
    assert hook.sleep is not None  # the model takes exactly one
    return {"sleep": {"seconds": hook.sleep.seconds}}


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
