"""Words of Kubernetes where the spec has its own: what to write instead, by the place they were written at."""

from __future__ import annotations

from gpuflow.kubernetes.pod_fields import fields_of
from gpuflow.spec.merge import camel_case

_STEP = {
    "activeDeadlineSeconds": "timeout: 2h",
    "affinity": "kubernetes: {affinity: {…}}",
    "containers": "command, image and the other fields in the step itself, or sidecars: for more containers",
    "dnsConfig": "kubernetes: {dns_config: {…}}",
    "dnsPolicy": "kubernetes: {dns_policy: …}",
    "emptyDir": "volumes: {/scratch: {empty_dir: 10Gi}}",
    "envFrom": "env_from: [{secret: …}]",
    "environment": "env: {NAME: value}",
    "hostAliases": "kubernetes: {host_aliases: {10.0.0.7: [name]}}",
    "hostIPC": "kubernetes: {host_ipc: true}",
    "hostNetwork": "kubernetes: {host_network: true}",
    "hostPath": "volumes: {/data: {host_path: …}}",
    "imagePullPolicy": "image_pull_policy: …",
    "imagePullSecrets": "image_pull_secrets: [name]",
    "initContainers": "init_containers: […]",
    "limits": "cpu: {request: 2, limit: 4} and memory: {request: 8Gi, limit: 16Gi}",
    "livenessProbe": "probes: {liveness: {…}}",
    "nodeSelector": "kubernetes: {node_selector: {…}}",
    "priorityClassName": "priority: …",
    "readinessProbe": "probes: {readiness: {…}}",
    "requests": "cpu: {request: 2, limit: 4} and memory: {request: 8Gi, limit: 16Gi}",
    "resources": "cpu: 4, memory: 16Gi and gpu: …; other extended resources: kubernetes: {resources: {…}}",
    "restartPolicy": "retry: 3",
    "runAsUser": "security: {user: …}",
    "runtimeClassName": "kubernetes: {runtime_class: …}",
    "schedulerName": "kubernetes: {scheduler: …}",
    "securityContext": "security: {user: …, read_only_root: true, …}",
    "serviceAccount": "service_account: …",
    "serviceAccountName": "service_account: …",
    "startupProbe": "probes: {startup: {…}}",
    "terminationGracePeriodSeconds": "termination_grace: 90s",
    "tolerations": "kubernetes: {tolerations: [{…}]}",
    "topologySpreadConstraints": "topology: {spread: zone}, or kubernetes: {topology_spread: [{…}]}",
    "volumeMounts": "volumes: {/data: {claim: …}}, by the path of the mount",
    "workingDir": "working_dir: /work",
}
_VOLUME = {
    "claimName": "claim: …",
    "configMap": "config_map: …",
    "defaultMode": 'default_mode: "0440"',
    "emptyDir": "empty_dir: 10Gi",
    "hostPath": "host_path: /path/on/the/node",
    "medium": "memory: 10Gi, instead of empty_dir",
    "mountPath": "volumes: {/path: {…}}: the path is the key",
    "name": "volumes: {/path: {…}}: volumes have no names here, the path is the key",
    "persistentVolumeClaim": "claim: …",
    "pvc": "claim: …",
    "readOnly": "read_only: true",
    "secretName": "secret: …",
    "serviceAccountToken": "projected: [{token: {path: …, audience: …}}]",
    "sizeLimit": "empty_dir: 10Gi, or memory: 10Gi",
    "subPath": "sub_path: …",
    "volumeClaimTemplate": "ephemeral: {size: 10Gi}",
}
_KUBERNETES = {
    "hostIPC": "host_ipc: true",
    "runtimeClassName": "runtime_class: …",
    "schedulerName": "scheduler: …",
    "topologySpreadConstraints": "topology_spread: [{…}]",
    "patch": "merge: {…}",
    "podSpecPatch": "merge: {spec: {…}}",
}
_OF_STEP = ("Step", "Settings")
_PLAIN = ("name", "volumes", "env", "command", "args", "image", "spec", "metadata", "lifecycle")
"""Words that Kubernetes shares with the spec, or that say too little by themselves."""


def instead_of(word: str, model: str, known: set[str]) -> str | None:
    """What to write in a model of the spec instead of a word of Kubernetes; None when it is none of these."""
    camel = camel_case(word)
    if model == "Pipeline" and (camel in _STEP or camel in fields_of("PodSpec")):
        inner = instead_of(word, "Settings", known)
        return None if inner is None else f"in a step or in defaults, {inner}"
    if model in _OF_STEP or model == "Helper":
        found = _STEP.get(camel)
        if model == "Helper" and (found is None or found.startswith("kubernetes:") or camel == "securityContext"):
            return None
        if found is not None:
            return f"write {found}"
        if camel in fields_of("PodSpec") and camel not in _PLAIN:
            return f"write kubernetes: {{merge: {{spec: {{{camel}: …}}}}}}"
        if camel in fields_of("Container") and camel not in _PLAIN:
            return f"write kubernetes: {{merge: {{spec: {{containers: [{{name: main, {camel}: …}}]}}}}}}"
    if model == "Volume":
        found = _VOLUME.get(camel)
        if found is None and camel in fields_of("Volume"):
            return "write kubernetes: {merge: {spec: {volumes: […], containers: [{name: main, volumeMounts: […]}]}}}"
        return None if found is None else f"write {found}"
    if model == "Kubernetes":
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)
        if snake in known:
            return f"write {snake}: …"
        if camel in _KUBERNETES:
            return f"write {_KUBERNETES[camel]}"
        if camel in fields_of("PodSpec"):
            return f"write merge: {{spec: {{{camel}: …}}}}"
    return None
