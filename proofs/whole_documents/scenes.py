"""Random whole documents, mostly sensible, and the namespaces that they come into: one scene for a seed and number."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proofs.whole_documents.faults import (
    CRON_FAULTS,
    CRON_WORKFLOW_FAULTS,
    DEPLOYMENT_FAULTS,
    JOB_FAULTS,
    JOBSET_FAULTS,
    MPI_FAULTS,
    OBJECT_FAULTS,
    POD_FAULTS,
    PYTORCH_FAULTS,
    QUOTA_KEYS,
    RELEVANT,
    RULED,
    SELECTING_FAULTS,
    STORAGE_RANGE,
    VOLCANO_FAULTS,
    WORKFLOW_FAULTS,
    split,
)

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"
RESTRICTING = (
    "ResourceQuota", "LimitRange", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
)  # fmt: skip
KUEUE = "kueue.x-k8s.io/v1beta2"
ADMISSION = "admissionregistration.k8s.io/v1"


@dataclass
class Scene:
    """What is there before, and what the file says; `features` are the words that a difference is sorted by."""

    namespace: str
    before: list[Object] = field(default_factory=list)
    documents: list[Object] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """Of the objects that start pods, by the names below."""


class Maker:
    """One scene in the making."""

    def __init__(self, seed: int, number: int) -> None:
        self.chance = random.Random(f"{seed}/{number}")
        self.scene = Scene(f"d{seed}-{number}")
        self.companions: list[Object] = []
        self.queued = False
        self.main = ""

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def one(self, *given: Any) -> Any:
        return self.chance.choice(given)

    def fault(self, word: str, share: float) -> bool:
        """Whether this fault is made; its word goes with the scene."""
        if made := self.often(share):
            self.scene.features.append(word)
        return made

    def named(self, kind: str, version: str, name: str, spec: Object | None = None, **more: Any) -> Object:
        meta: Object = {"name": name}
        if self.often(0.3):
            meta["namespace"] = self.scene.namespace
        found: Object = {"apiVersion": version, "kind": kind, "metadata": meta, **more}
        return found if spec is None else {**found, "spec": spec}

    # Pods

    def resources(self) -> Object:
        asked: Object = {"cpu": self.one("100m", "250m", "500m", "1", "2"), "memory": self.one("64Mi", "256Mi", "1Gi")}
        limits: Object = {}
        if self.often(0.4):
            limits.update(cpu="2", memory="2Gi")
        if self.often(0.35):
            limits[GPU] = self.one(1, 1, 2, 4)
        how = self.chance.random()
        if how < 0.1:
            return {"limits": limits} if limits else {}
        if how < 0.15:
            return {}
        return {"requests": asked, **({"limits": limits} if limits else {})}

    def template(self, policy: str | None, labels: Object | None = None) -> Object:
        containers = [
            {"name": "main", "image": "registry.test/train:1", "command": ["train"], "resources": self.resources()}
        ]
        if self.often(0.1):
            containers.append({"name": "side", "image": "registry.test/side:1", "resources": self.resources()})
        spec: Object = {"containers": containers}
        if policy:
            spec["restartPolicy"] = policy
        if self.often(0.05):
            spec["initContainers"] = [
                {"name": "first", "image": "registry.test/first:1", "resources": self.resources()}
            ]
        if self.often(0.12):
            spec["serviceAccountName"] = "runner"
            self.accompany(
                "serviceaccount", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner"}}
            )
        if self.often(0.08):
            name = f"{self.scene.namespace}-urgent"
            spec["priorityClassName"] = name
            body = {"metadata": {"name": name}, "value": 1000}
            self.accompany("priorityclass", {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **body})
        if self.often(0.08):
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
            self.accompany("claim", claim("data", self.one("1Gi", "10Gi")))
        if self.fault("hostNetwork", 0.03):
            spec["hostNetwork"] = True
        if self.fault("nodeSelector", 0.03):
            spec["nodeSelector"] = {"gpuflow.test/pool": self.one("none", "gpu")}
        if self.often(0.05):
            spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
            for each in containers:
                each["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        self.fault_in("pod", spec, POD_FAULTS)
        return {**({"metadata": {"labels": dict(labels)}} if labels else {}), "spec": spec}

    def accompany(self, word: str, item: Object) -> None:
        """What a pod refers to: there before, in the file before or after, or nowhere."""
        how = self.chance.choices(("there", "file", "after", "missing"), (40, 40, 10, 10))[0]
        if any(each["kind"] == item["kind"] for each in (*self.companions, *self.scene.before)):
            return
        self.scene.features.append(f"{word} {how}")
        if how == "there":
            self.scene.before.append(item)
        elif how != "missing":
            self.companions.append({**item, "late": how == "after"})

    def fault_in(self, kind: str, target: Object, faults: Object, share: float = 0.06) -> None:
        """At most one of these faults: a word, and what it does."""
        if faults and self.often(share):
            word = self.chance.choice(sorted(faults))
            self.scene.features.append(f"{kind}: {word}")
            faults[word](target)

    def labels(self) -> Object:
        """Labels of an object that Kueue may manage."""
        if not self.queued:
            return {}
        if self.fault("no such queue", 0.08):
            return {"labels": {QUEUE: "nowhere"}}
        return {"labels": {QUEUE: "gpus"}} if self.often(0.85) else {}

    # Kinds

    def job_spec(self) -> Object:
        spec: Object = {"template": self.template(self.one("Never", "Never", "OnFailure"))}
        if self.often(0.5):
            spec["completions"] = self.one(1, 2, 3, 4)
            spec["parallelism"] = self.one(1, 2, 3, 4)
        elif self.often(0.3):
            spec["parallelism"] = self.one(1, 2, 3)
        if self.often(0.3):
            spec["backoffLimit"] = self.one(0, 2, 4)
        if "completions" in spec and self.often(0.3):
            spec["completionMode"] = "Indexed"
        self.fault_in("Job", spec, JOB_FAULTS, 0.2)
        return spec

    def Job(self, name: str) -> Object:
        made = self.named("Job", "batch/v1", name, self.job_spec())
        made["metadata"].update(self.labels())
        return made

    def CronJob(self, name: str) -> Object:
        spec: Object = {"schedule": "* * * * *", "jobTemplate": {"spec": self.job_spec()}}
        if self.often(0.3):
            spec["concurrencyPolicy"] = self.one("Forbid", "Replace", "Allow")
        if self.often(0.2):
            spec["timeZone"] = self.one("Etc/UTC", "Europe/Berlin")
        self.fault_in("CronJob", spec, CRON_FAULTS, 0.3)
        return self.named("CronJob", "batch/v1", name, spec)

    def replicated(self, name: str, kind: str, faults: Object) -> Object:
        labels = {"app": name}
        spec: Object = {"selector": {"matchLabels": dict(labels)}, "template": self.template(None, labels)}
        if kind != "DaemonSet":
            spec["replicas"] = self.chance.choices((0, 1, 2, 3), (3, 40, 40, 17))[0]
        self.fault_in(kind, spec, {**SELECTING_FAULTS, **faults}, 0.2)
        return self.named(kind, "apps/v1", name, spec)

    def Deployment(self, name: str) -> Object:
        made = self.replicated(name, "Deployment", DEPLOYMENT_FAULTS)
        if self.often(0.2):
            made["spec"].setdefault("strategy", {"type": "Recreate"})
        return made

    def ReplicaSet(self, name: str) -> Object:
        return self.replicated(name, "ReplicaSet", {})

    def DaemonSet(self, name: str) -> Object:
        return self.replicated(name, "DaemonSet", {})

    def StatefulSet(self, name: str) -> Object:
        made = self.replicated(name, "StatefulSet", {})
        made["spec"]["serviceName"] = name
        if self.often(0.3):
            made["spec"]["podManagementPolicy"] = "Parallel"
        if self.fault("claims of a StatefulSet", 0.15):
            made["spec"]["volumeClaimTemplates"] = [claim("scratch", "1Gi")]
        return made

    def Pod(self, name: str) -> Object:
        template = self.template(self.one("Never", "OnFailure", None))
        made = self.named("Pod", "v1", name, template["spec"])
        made["metadata"].update(self.labels())
        if self.queued and self.fault("pod group", 0.3):
            total = self.one(1, 2, None)
            made["metadata"].setdefault("labels", {})["kueue.x-k8s.io/pod-group-name"] = "group"
            if total:
                made["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
        return made

    def JobSet(self, name: str) -> Object:
        rows = [
            {"name": row, "replicas": self.one(1, 1, 2), "template": {"spec": self.job_spec()}}
            for row in ("workers", "leader")[: self.one(1, 1, 2)]
        ]
        spec: Object = {"replicatedJobs": rows}
        self.fault_in("JobSet", spec, JOBSET_FAULTS, 0.15)
        made = self.named("JobSet", "jobset.x-k8s.io/v1alpha2", name, spec)
        made["metadata"].update(self.labels())
        return made

    def MPIJob(self, name: str) -> Object:
        rows = {
            "Launcher": {"replicas": 1, "template": self.template(None)},
            "Worker": {"replicas": self.one(1, 2, 3), "template": self.template(None)},
        }
        spec: Object = {"slotsPerWorker": 1, "mpiReplicaSpecs": rows}
        self.fault_in("MPIJob", spec, MPI_FAULTS, 0.15)
        return self.named("MPIJob", "kubeflow.org/v2beta1", name, spec)

    def PyTorchJob(self, name: str) -> Object:
        rows: Object = {}
        for role in ("Master", "Worker")[: self.one(1, 2)]:
            template = self.template(None)
            template["spec"]["containers"][0]["name"] = "pytorch"
            rows[role] = {"replicas": 1 if role == "Master" else self.one(1, 2, 3), "template": template}
            if self.often(0.5):
                rows[role]["restartPolicy"] = self.one("OnFailure", "Never")
        spec: Object = {"pytorchReplicaSpecs": rows}
        self.fault_in("PyTorchJob", spec, PYTORCH_FAULTS, 0.15)
        return self.named("PyTorchJob", "kubeflow.org/v1", name, spec)

    def TrainJob(self, name: str) -> Object:
        runtime: Object = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainingRuntime",
            "metadata": {"name": "plain", "labels": {"trainer.kubeflow.org/framework": "torch"}},
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {"spec": {"replicatedJobs": [{
                    "name": "node",
                    "template": {
                        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                        "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "t:1"}]}}},
                    },
                }]}},
            },
        }  # fmt: skip
        self.accompany("runtime", runtime)
        trainer = {"numNodes": self.one(1, 2, 3), "resourcesPerNode": self.resources()}
        spec = {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, "trainer": trainer}
        made = self.named("TrainJob", "trainer.kubeflow.org/v1alpha1", name, spec)
        made["metadata"].update(self.labels())
        return made

    def VolcanoJob(self, name: str) -> Object:
        tasks = [
            {"name": row, "replicas": self.one(1, 2), "template": self.template(self.one("Never", "OnFailure"))}
            for row in ("work", "lead")[: self.one(1, 2)]
        ]
        spec: Object = {
            "schedulerName": "volcano",
            "minAvailable": sum(row["replicas"] for row in tasks),
            "tasks": tasks,
        }
        self.fault_in("VolcanoJob", spec, VOLCANO_FAULTS, 0.15)
        return self.named("Job", "batch.volcano.sh/v1alpha1", name, spec)

    def workflow_spec(self) -> Object:
        step = {"container": self.template(None)["spec"]["containers"][0]}
        step["container"].pop("name")
        calls: list[Object] = [{"name": f"s{number}", "template": "work"} for number in range(self.one(1, 2, 3))]
        shape = {"steps": [calls]} if self.often(0.5) else {"dag": {"tasks": calls}}
        if self.often(0.3):
            calls[0]["withItems"] = list(range(self.one(2, 3)))
        spec: Object = {"entrypoint": "main", "templates": [{"name": "main", **shape}, {"name": "work", **step}]}
        if self.often(0.3):
            spec["parallelism"] = self.one(1, 2)
        if self.fault("mutex", 0.08):
            spec["synchronization"] = {"mutexes": [{"name": "one"}]}
            if self.fault("mutex twice", 0.4):
                spec["templates"][1]["synchronization"] = {"mutexes": [{"name": "one"}]}
        self.fault_in("Workflow", spec, WORKFLOW_FAULTS, 0.15)
        return spec

    def Workflow(self, name: str) -> Object:
        return self.named("Workflow", "argoproj.io/v1alpha1", name, self.workflow_spec())

    def CronWorkflow(self, name: str) -> Object:
        spec = {"schedules": ["* * * * *"], "workflowSpec": self.workflow_spec()}
        self.fault_in("CronWorkflow", spec, CRON_WORKFLOW_FAULTS, 0.15)
        return self.named("CronWorkflow", "argoproj.io/v1alpha1", name, spec)

    # What is around

    def quota(self) -> Object:
        own = [*RELEVANT.get(self.main, ("", []))[1], "pods", "requests.cpu", "requests.nvidia.com/gpu"]
        keys = sorted(QUOTA_KEYS) if self.often(0.4) else sorted(set(own))
        hard = {key: self.one(*QUOTA_KEYS[key]) for key in self.chance.sample(keys, self.one(1, 1, 1, 2, 3))}
        self.scene.features += [f"quota {key}" for key in hard]
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cap"}, "spec": {"hard": hard}}

    def limit_range(self) -> Object:
        row: Object = {"type": "Container"}
        for key in self.chance.sample(("default", "defaultRequest", "max", "min", "ratio"), self.one(1, 2)):
            if key == "ratio":
                row["maxLimitRequestRatio"] = {"cpu": self.one("2", "4")}
            else:
                row[key] = {"cpu": {"min": "200m", "max": "1"}.get(key, "500m")}
        rows = [self.one(row, row, {"type": "Pod", "max": {"cpu": "1"}}, STORAGE_RANGE)]
        self.scene.features.append(f"LimitRange {rows[0]['type']} {' '.join(sorted(rows[0].keys() - {'type'}))}")
        return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": {"limits": rows}}

    def rules(self) -> tuple[Object, str]:
        own = RELEVANT.get(self.main, ("", []))[0]
        group, version, plural = (
            self.one(*RULED) if self.often(0.5) or not own else ("", "*", own) if "." not in own else split(own)
        )
        operations = self.one(["CREATE"], ["CREATE", "UPDATE"], ["UPDATE"], ["*"], ["DELETE"])
        rule = {"apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": operations}
        rule["scope"] = "Namespaced"  # a namespaceSelector does not hold for what is in no namespace
        return rule, f"{plural} {','.join(operations)}"

    def policy(self) -> list[Object]:
        rule, words = self.rules()
        name = f"{self.scene.namespace}-policy"
        expression = self.one(
            "false", "false", "true", "has(object.metadata.labels) && 'team' in object.metadata.labels"
        )
        actions = self.one(["Deny"], ["Deny"], ["Warn"], ["Audit"])
        self.scene.features.append(f"policy {words} {actions[0]}")
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.scene.namespace}}}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule], **here},
            "validations": [{"expression": expression, "message": "not here"}],
        }
        binding = {"policyName": name, "validationActions": actions}
        return [
            {"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": ADMISSION,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": name},
                "spec": binding,
            },
        ]

    def webhook(self) -> Object:
        rule, words = self.rules()
        name = f"{self.scene.namespace}-hook"
        failing = self.one("Fail", "Fail", "Ignore")
        self.scene.features.append(f"webhook {words} {failing}")
        hook: Object = {
            "name": "hook.gpuflow.test",
            "clientConfig": {"url": "https://127.0.0.1:1/nowhere"},
            "rules": [rule],
            "failurePolicy": failing,
            "sideEffects": "None",
            "timeoutSeconds": 2,
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.scene.namespace}},
        }
        if self.often(0.2):
            hook["objectSelector"] = {"matchLabels": {"app": self.one("a", "other")}}
        kind = self.one(
            "ValidatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
        )
        return {"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}

    def queue(self) -> list[Object]:
        name = self.scene.namespace
        covered = ["cpu", "memory", *([GPU] if self.often(0.8) else [])]
        sizes = {"cpu": ("2", "4", "16", "32"), "memory": ("16Gi",), GPU: ("1", "4", "8")}
        rows = [{"name": key, "nominalQuota": self.one(*sizes[key])} for key in covered]
        group = {"coveredResources": covered, "flavors": [{"name": name, "resources": rows}]}
        spec = {"namespaceSelector": {}, "resourceGroups": [group]}
        self.scene.features.append("Kueue")
        return [
            {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}},
            {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
            {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "gpus"}, "spec": {"clusterQueue": name}},
        ]

    def make(self) -> Scene:
        scene = self.scene
        main = self.chance.choices(KINDS, [WEIGHTS.get(kind, 4) for kind in KINDS])[0]
        self.main = main
        self.queued = main in QUEUED and self.often(0.25)
        level = self.one("baseline", "restricted") if self.often(0.06) else ""
        space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scene.namespace}}
        if level:
            scene.features.append(f"pod security {level}")
            space["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": level}
        scene.before.append(space)
        if self.queued:
            scene.before += self.queue()
        if self.often(0.45):
            scene.before.append(self.quota())
        if self.often(0.15):
            scene.before.append(self.limit_range())
        if self.often(0.12):
            scene.before += self.policy()
        if self.often(0.12):
            scene.before.append(self.webhook())
        scene.kinds = [main, *([main if self.often(0.5) else self.one(*KINDS)] if self.often(0.15) else [])]
        scene.features += scene.kinds
        mains = [getattr(self, kind)(name) for kind, name in zip(scene.kinds, "ab", strict=False)]
        for made in mains:
            self.fault_in("object", made, OBJECT_FAULTS)
        if self.often(0.08):
            extra = self.one(self.quota, self.limit_range)()
            extra["metadata"]["name"] = "own"
            scene.features.append(f"{extra['kind']} in the file")
            self.companions.append({**extra, "late": self.often(0.3)})
        if self.often(0.1):
            self.companions.append(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {}}
            )
        if self.often(0.1):
            ports = {"clusterIP": "None", "selector": {"app": "a"}, "ports": [{"port": 80}]}
            self.companions.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": ports})
        # What restricts comes last: what is there was there before.
        scene.before.sort(key=lambda item: item["kind"] in RESTRICTING)
        late = [each for each in self.companions if each.pop("late", False)]
        scene.documents = [*(each for each in self.companions if each not in late), *mains, *late]
        return scene


def claim(name: str, size: str) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


WEIGHTS = {
    "Job": 16,
    "Deployment": 10,
    "CronJob": 6,
    "StatefulSet": 8,
    "Pod": 6,
    "ReplicaSet": 3,
    "DaemonSet": 3,
    "Workflow": 8,
}
ADDED = {
    "JobSet": "jobset", "MPIJob": "mpi-operator", "PyTorchJob": "training-operator", "TrainJob": "trainer",
    "VolcanoJob": "volcano", "Workflow": "argo", "CronWorkflow": "argo",
}  # fmt: skip
"""Kinds whose controller is an addon of the private cluster."""
KINDS = ("Job", "CronJob", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Pod", *ADDED)
QUEUED = ("Job", "Pod", "JobSet", "TrainJob")


def scene_of(seed: int, number: int) -> Scene:
    return Maker(seed, number).make()


def numbers_of(seed: int, count: int, kinds: Sequence[str]) -> list[int]:
    """The first so many scenes of these kinds alone."""
    found = (number for number in itertools.count() if {*scene_of(seed, number).kinds} <= {*kinds})
    return list(itertools.islice(found, count))
