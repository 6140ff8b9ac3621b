"""Every kind asks for as many pods and GPUs as its controller makes.

Tests gpuflow/readers/kubernetes/demand.py, gpuflow/readers/kubernetes/pods.py, gpuflow/readers/kubernetes/jobs.py,
gpuflow/readers/kubernetes/kinds.py and gpuflow/readers/kubernetes/operators.py.
"""

from __future__ import annotations

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand
from gpuflow.formats.documents import KUBERNETES_READER, READERS
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.quantity import Quantity
from gpuflow.readers import PassiveObject
from gpuflow.readers.kubernetes.kinds import KINDS
from gpuflow.runtime.gangs.kinds import GROUP
from tests.readers.kubernetes.reading import demand, read
from tests.readers.kubernetes.samples import SAMPLES, Sample, pod

GPUS = "requests.nvidia.com/gpu"
SPREAD = (
    "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, "
    "labelSelector: {matchLabels: {app: 25%}}}]"
)


def test_every_kind_of_the_table_has_a_function() -> None:
    assert KINDS.keys() == {key for key, reader in READERS.items() if reader is KUBERNETES_READER}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_pods_and_gpus_are_those_that_one_counts_by_hand(sample: Sample) -> None:
    found = demand(sample.text)
    pods = found.peak["pods"]
    assert (pods.bound, None if pods.value is None else pods.value.value) == (sample.bound, sample.pods)
    if sample.bound == "unknown":
        assert pods.because
    elif sample.gpus is not None:
        assert found.peak[GPUS].value == Quantity(str(sample.gpus))
    assert len(found.gangs) == sample.gangs
    assert all(step.where.line for step in found.steps)


def test_a_stateful_set_claims_storage_for_each_replica() -> None:
    peak = demand(SAMPLES["stateful set"].text).peak
    assert (str(peak["requests.storage"].value), str(peak["persistentvolumeclaims"].value)) == ("30Gi", "3")


def test_the_queue_of_the_object_is_that_of_its_pods_and_wins_over_theirs() -> None:
    text = SAMPLES["job set"].text.replace(
        "metadata: {name: js}", f"metadata: {{name: js, labels: {{{QUEUE_LABEL}: a}}}}"
    )
    text = text.replace(
        "        template:\n          spec:",
        f"        template:\n          metadata: {{labels: {{{QUEUE_LABEL}: b}}}}\n          spec:",
    )
    assert text.count(f"{QUEUE_LABEL}: b") == 2
    for pod_set in demand(text).steps[0].pod_sets:
        assert pod_set.pod["metadata"]["labels"][QUEUE_LABEL] == "a"


def test_a_job_set_in_a_queue_counts_whole_though_a_part_waits_for_another() -> None:
    text = SAMPLES["job set one after the other"].text
    queued = demand(text.replace("metadata: {name: js}", f"metadata: {{name: js, labels: {{{QUEUE_LABEL}: a}}}}"))
    assert (queued.peak["pods"].bound, str(queued.peak["pods"].value)) == ("at-most", "5")
    assert "Kueue reserves quota" in str(queued.peak["pods"].because)


def test_a_job_that_kueue_may_shrink_is_at_most() -> None:
    text = SAMPLES["indexed job in a queue"].text.replace(
        "labels:", 'annotations: {kueue.x-k8s.io/job-min-parallelism: "2"}, labels:'
    )
    found = demand(text)
    assert (found.peak["pods"].bound, str(found.peak["pods"].value)) == ("at-most", "4")
    assert not found.gangs


def test_members_that_find_each_other_by_name_live_together() -> None:
    text = SAMPLES["indexed job in a queue"].text.replace(", labels: {kueue.x-k8s.io/queue-name: gpus}", "")
    assert not demand(text).gangs
    assert demand(text.replace("restartPolicy: Never", "restartPolicy: Never\n      subdomain: ring")).gangs


def test_a_job_of_volcano_is_in_a_queue_that_only_volcano_knows() -> None:
    for text in (
        SAMPLES["volcano job"].text,
        SAMPLES["volcano job"].text.replace("  tasks:", "  queue: research\n  tasks:", 1),
    ):
        (unseen,) = demand(text).unseen
        name = "research" if "queue: research" in text else "default"
        assert unseen.is_placement and f"Volcano's queue {name} has room" in unseen.because


POD_GROUP = """
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: js}
spec: {minMember: 7, queue: research}
"""


def test_a_job_set_of_a_podgroup_is_in_a_queue_that_only_volcano_knows() -> None:
    plain = SAMPLES["job set"].text
    text = plain.replace(
        "template:\n          ", f"template:\n          metadata: {{annotations: {{{GROUP}: js}}}}\n          "
    )
    assert text.count(GROUP) == 2
    (unseen,) = demand(text + POD_GROUP).unseen
    assert unseen.is_placement and "Volcano's queue research has room" in unseen.because
    assert unseen.where.line == (text + POD_GROUP)[: (text + POD_GROUP).index("queue: research")].count("\n") + 1
    assert not demand(text).unseen, "it was not given"
    assert not demand(plain + POD_GROUP).unseen, "of another gang"
    other = POD_GROUP.replace("scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1")
    assert not demand(text + other).unseen, "of another scheduler"


def test_a_cron_job_overlaps_itself_unless_it_is_told_not_to() -> None:
    text = SAMPLES["cron job"].text
    overlap = demand(text).overlap
    assert overlap is not None and "concurrencyPolicy: Allow, the default" in overlap.because
    for policy in ("Forbid", "Replace"):
        assert demand(text.replace("  jobTemplate:", f"  concurrencyPolicy: {policy}\n  jobTemplate:")).overlap is None
    suspended = demand(text.replace("  jobTemplate:", "  suspend: true\n  jobTemplate:"))
    assert suspended.overlap is None and suspended.peak["pods"].bound == "at-most"


def test_the_autoscaler_of_ray_counts_in_the_head_and_no_maximum_is_not_known() -> None:
    text = SAMPLES["ray cluster that scales"].text
    assert str(demand(text).peak["requests.cpu"].value) == str(Quantity("2500m") + Quantity("4") * 5)
    open_end = demand(text.replace("    maxReplicas: 5\n", ""))
    assert open_end.peak["pods"].bound == "unknown" and "maxReplicas is not set" in str(open_end.peak["pods"].because)


@pytest.mark.parametrize(("mode", "pods"), [("K8sJobMode", "3"), ("HTTPMode", "2"), ("SidecarMode", "2")])
def test_a_ray_job_is_submitted_by_a_pod_or_a_container_or_nothing(mode: str, pods: str) -> None:
    found = demand(SAMPLES["ray job"].text.replace("entrypoint: python train.py", f"submissionMode: {mode}"))
    assert str(found.peak["pods"].value) == pods


def test_a_train_job_patches_the_pods_of_its_runtime() -> None:
    patch = """
  runtimePatches:
  - manager: me
    trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
      nodeSelector: {pool: a}, tolerations: [{key: gpu, operator: Exists}]}}}}}]}}}
---"""
    pods = demand(SAMPLES["train job"].text.replace("\n---", patch, 1)).steps[0].pod
    assert pods["spec"]["nodeSelector"] == {"pool": "a"}
    assert pods["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_the_reason_names_the_runtime_that_was_not_given() -> None:
    (unseen,) = demand(SAMPLES["train job without its runtime"].text).unseen
    assert "ClusterTrainingRuntime torch, which was not given" in unseen.because
    assert unseen.where.line == 5


PARAMETERS = """
  parameters:
  - {name: g, parameterType: int, feasibleSpace: {min: "4", max: "4"}}
  - {name: m, parameterType: int, feasibleSpace: {min: "1", max: "9"}}
  trialTemplate:
    trialParameters: [{name: gpus, reference: g}, {name: gib, reference: m}]"""


def test_values_that_every_trial_shares_count_and_others_are_not_known() -> None:
    text = SAMPLES["experiment"].text.replace("\n  trialTemplate:", PARAMETERS)
    text = text.replace("nvidia.com/gpu: 2", 'nvidia.com/gpu: "${trialParameters.gpus}"')
    text = text.replace("memory: 8Gi", 'memory: "${trialParameters.gib}Gi"')
    peak = demand(text).peak
    assert (peak[GPUS].bound, str(peak[GPUS].value)) == ("exact", "24")
    assert peak["requests.memory"].bound == "unknown" and "each trial gets anew" in str(peak["requests.memory"].because)


def test_a_number_of_pods_that_each_trial_gets_anew_is_not_known() -> None:
    text = SAMPLES["experiment"].text.replace("\n  trialTemplate:", PARAMETERS)
    found = demand(text.replace("parallelism: 2", 'parallelism: "${trialParameters.gib}"'))
    assert found.peak["pods"].bound == "unknown" and "gib" in str(found.peak["pods"].because)


@pytest.mark.parametrize(
    ("name", "old", "new", "because"),
    [
        ("deployment", "replicas: 4", "replicas: 0", "it has replicas: 0"),
        ("job with more completions than parallelism", "parallelism: 3", "parallelism: 0", "it asks for no pods"),
    ],
)
def test_objects_without_pods_start_nothing(name: str, old: str, new: str, because: str) -> None:
    (found,) = read(SAMPLES[name].text.replace(old, new))
    assert isinstance(found, PassiveObject) and found.because == because


def test_a_pod_template_serves_others() -> None:
    (found,) = read(f"apiVersion: v1\nkind: PodTemplate\nmetadata: {{name: t}}\ntemplate:\n{pod(2)}\n")
    assert isinstance(found, PassiveObject)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("deployment", "replicas: 4", 'replicas: "x"', "5:13: GF736 Deployment serve: spec.replicas must be a"),
        ("deployment", "replicas: 4", "replicas: -1", "between 0 and 2147483647, not -1"),
        ("deployment", "replicas: 4", "replicas: 99999999999", "between 0 and 2147483647"),
        ("deployment", "  template:", "  pods:", "GF737 Deployment serve has no spec.template"),
        ("deployment", "  template:", "  strategy: {rollingUpdate: {maxSurge: a}}\n  template:", "whole number or a p"),
        ("job", "restartPolicy: Never", "restartPolicy: 1", "spec.template.spec.restartPolicy must be text, not 1"),
        ("job", "memory: 8Gi", "memory: 8Gib", "8Gib"),
        ("job", "memory: 8Gi", "memory: -8Gi", "an amount cannot be negative"),
        ("job", "restartPolicy: Never", SPREAD, "labelSelector selects nothing that there can be"),
        ("job", "name: main, ", "", "spec.template.spec.containers[0] has no name"),
        ("cron job", 'schedule: "0 3 * * *"', "schedule: ''", "GF736 CronJob nightly: spec.schedule is empty"),
        ("cron job", "  jobTemplate:", "  concurrencyPolicy: Never\n  jobTemplate:", "one of Allow, Forbid, Replace"),
        ("job set", "replicatedJobs:", "jobs:", "GF737 JobSet js has no spec.replicatedJobs"),
        ("job set", "name: workers", "name: driver", 'is the second one called "driver"'),
        ("job set one after the other", "name: prepare, status", "name: later, status", "no replicatedJob before it"),
        ("mpi job", "Launcher:", "Leader:", "GF737 MPIJob mpi has no spec.mpiReplicaSpecs.Launcher"),
        ("ray cluster", "groupName: gpu", "group: gpu", "has no groupName"),
        ("volcano job", "name: worker", "name: ps", 'is the second task called "ps"'),
        ("experiment", "parallelTrialCount: 3", "parallelTrialCount: 0", "between 1 and"),
        ("train job", "numNodes: 4", "numNodes: four", "spec.trainer.numNodes must be a whole number, not 'four'"),
        ("train job", "runtimeRef: {name: torch}", "runtimeRef: {}", "fine-tune has no spec.runtimeRef.name"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_message_with_its_place(name: str, old: str, new: str, said: str) -> None:
    text = SAMPLES[name].text
    assert old in text
    with pytest.raises(GpuflowError) as refusal:
        read(text.replace(old, new, 1))
    (finding,) = refusal.value.findings
    assert said in finding.render()
    assert finding.where.line and finding.where.file == "theirs.yaml"


def test_numbers_without_end_are_answered_at_once() -> None:
    text = SAMPLES["job with more completions than parallelism"].text
    for found in (demand(text.replace("10", "2000000000").replace("3", "1000000000")),):
        assert isinstance(found, Demand) and found.peak["pods"].value == Quantity("1000000000")
