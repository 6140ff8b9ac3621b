"""Which objects a snapshot understands, which it only names, and where it says each thing stands.

Tests gpuflow/cluster/fields.py, gpuflow/cluster/kinds.py, gpuflow/cluster/manifests.py and gpuflow/cluster/model.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuflow.checker.snapshot.validation import validate
from gpuflow.cluster import read_cluster
from gpuflow.cluster.fields import FIELDS, OTHER_VERSIONS, unknown_fields
from gpuflow.cluster.kinds import HARMLESS_BY_GROUP, KNOWN
from gpuflow.cluster.model import parts_of
from gpuflow.core import yaml_tree
from gpuflow.kubernetes.resources import BadField
from tests.cluster_model.conftest import Check
from tests.cluster_model.scenes import CLUSTER_QUEUE, NAMESPACE, NODE, QUEUED, QUEUES, QUOTA, written

CORPORA = Path(__file__).resolve().parents[2] / ".." / "shared" / "corpora"
KUEUE = CORPORA / "kueue"
SCHEMAS = CORPORA / "schemas"
MANIFESTS = sorted(path for path in KUEUE.rglob("*") if path.suffix in (".yaml", ".yml", ".json"))
corpus = pytest.mark.skipif(not MANIFESTS, reason="the corpus of Kueue's manifests is not beside the repository")

NAMED_ONLY = {
    "Cluster (kind.x-k8s.io/v1alpha4)",
    "MultiKueueCluster (kueue.x-k8s.io/v1beta2)",
    "MultiKueueConfig (kueue.x-k8s.io/v1beta2)",
    "ProvisioningRequestConfig (kueue.x-k8s.io/v1beta2)",
    "ResourceClaimTemplate (resource.k8s.io/v1)",
    "Sandbox (agents.x-k8s.io/v1alpha1)",
    "ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1)",
    "ValidatingAdmissionPolicyBinding (admissionregistration.k8s.io/v1)",
}
"""What Kueue's own examples hold that gpuflow carries by name alone."""


@corpus
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(KUEUE)))
def test_every_example_of_kueue_loads_and_every_object_of_it_is_there(path: Path) -> None:
    cluster = read_cluster(str(path))
    validate(cluster)
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    assert [item.kind for item in cluster.objects] == [document["kind"] for document in documents]
    assert [stray for item in cluster.objects for stray in unknown_fields(item.kind, item.body)] == []
    assert set(cluster.kinds()) <= {kind for kind, _ in KNOWN} | NAMED_ONLY


@corpus
def test_what_is_not_understood_in_the_examples_of_kueue_is_named_and_makes_unknown(check: Check) -> None:
    for path in MANIFESTS:
        foreign = NAMED_ONLY.intersection(read_cluster(str(path)).kinds())
        # These policies are about Jobs: they are asked about no pod, and so they hold none back.
        foreign = {kind for kind in foreign if not kind.startswith("ValidatingAdmissionPolicy (")}
        answer = check(path)
        assert answer.data["verdict"] != "always" or not foreign, path
        named = " ".join(row["message"] for row in answer.data["findings"] if row["code"] == "GF531")
        assert [kind for kind in foreign if kind not in named] == [], path


@pytest.mark.slow
def test_the_fields_that_are_known_are_those_of_kueues_own_definitions() -> None:
    definitions = sorted(SCHEMAS.glob("kueue_*.crd.yaml"))
    if not definitions:
        pytest.skip("the corpus of schemas is not beside the repository")
    seen = set()
    for path in definitions:
        definition = yaml.safe_load(path.read_text())
        kind = definition["spec"]["names"]["kind"]
        for version in definition["spec"]["versions"]:
            if kind not in FIELDS:
                continue
            seen.add(kind)
            spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            foreign = set(OTHER_VERSIONS.get((kind, version["name"]), "").split())
            ours = set(FIELDS[kind]["spec"].split()) - foreign
            retired = {"parent"} if kind == "Cohort" else set()  # v1alpha1
            assert ours - retired == set(spec), (kind, version["name"])
    assert seen == {"ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor"}


FOREIGN = {
    "a pod group of the scheduler": ("scheduling.k8s.io/v1alpha1", "PodGroup"),
    "a workload of the scheduler": ("scheduling.k8s.io/v1alpha1", "Workload"),
    "a hierarchical quota": ("hnc.x-k8s.io/v1alpha2", "HierarchicalResourceQuota"),
    "a sub-namespace": ("hnc.x-k8s.io/v1alpha2", "SubnamespaceAnchor"),
    "a claim of devices in a version that is not known": ("resource.k8s.io/v1alpha2", "ResourceClaim"),
    "a node of another group": ("foo/v1", "Node"),
    "a quota of another group": ("example.com/v1", "ResourceQuota"),
    "a quota of a version that is not known": ("v2", "ResourceQuota"),
    "a queue of a version that is not known": ("kueue.x-k8s.io/v1alpha1", "ClusterQueue"),
    "a configuration of something else": ("pkg.crossplane.io/v1", "Configuration"),
    "a policy that is bound and not shown": ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_kind_that_is_not_modeled_is_named_and_makes_unknown(name: str, check: Check, tmp_path: Path) -> None:
    version, kind = FOREIGN[name]
    unmodeled = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {{}}\n"
    answer = check(written(tmp_path, QUOTA, unmodeled))
    assert (answer.code, answer.data["verdict"]) == (1, "unknown")
    (found,) = [row for row in answer.data["findings"] if row["code"] == "GF531"]
    assert f"{kind} ({version})" in found["message"]


@pytest.mark.parametrize("text", list(HARMLESS_BY_GROUP.values()))
def test_a_kind_that_cannot_hold_a_pod_back_changes_nothing(text: str, check: Check, tmp_path: Path) -> None:
    group = next(group for group, kinds in HARMLESS_BY_GROUP.items() if kinds == text)
    version = f"{group}/v1" if group else "v1"
    objects = [f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x, namespace: ns}}\n" for kind in text.split()]
    assert check(written(tmp_path, QUOTA, *objects)).data["verdict"] == "always"


HOOK = """apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: a.example.com
  namespaceSelector: %s
  rules:
  - {apiGroups: ["%s"], apiVersions: [v1], operations: [%s], resources: ["%s"]}
"""
HOOKS = {
    "asked about every new pod": (("x", "{}", "", "CREATE", "pods"), "unknown"),
    "asked about everything": (("x", "{}", "*", "'*'", "*/*"), "unknown"),
    "asked about changed pods": (("x", "{}", "", "UPDATE", "pods"), "unknown"),
    "asked about deleted pods": (("x", "{}", "", "DELETE", "pods"), "always"),
    "asked about jobs": (("x", "{}", "batch", "CREATE", "jobs"), "always"),
    "asked about this namespace": (("x", "{matchLabels: {team: nlp}}", "", "CREATE", "pods"), "unknown"),
    "asked about another namespace": (("x", "{matchLabels: {team: cv}}", "", "CREATE", "pods"), "always"),
    "a selector that cannot be read": (("x", "{matchLabels: 5}", "", "CREATE", "pods"), "unknown"),
    "Kueue's own": (("kueue-validating-webhook-configuration", "{}", "", "CREATE", "pods"), "always"),
}


@pytest.mark.parametrize("name", HOOKS)
def test_a_webhook_makes_unknown_when_it_is_asked_about_pods_of_the_namespace(
    name: str, check: Check, tmp_path: Path
) -> None:
    words, verdict = HOOKS[name]
    assert check(written(tmp_path, QUOTA, NAMESPACE, HOOK % words)).data["verdict"] == verdict


def test_what_names_a_kind_only_by_accident_is_not_that_kind(tmp_path: Path) -> None:
    cluster = read_cluster(str(written(tmp_path, NODE.replace("v1", "foo/v1", 1), NODE)))
    assert [item.where.line for item in cluster.of("Node")] == [14]
    assert cluster.kinds() == ["Node (foo/v1)", "Node"]


def test_lists_of_kubectl_give_their_items_kind_and_place(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n"
        "---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c}\n"
        "---\napiVersion: v1\nkind: PodList\nitems: []\n"
    )
    cluster = read_cluster(str(written(tmp_path, text)))
    assert [(item.kind, item.name, item.where.line) for item in cluster.objects] == [
        ("Node", "a", 4),
        ("Node", "b", 5),
        ("ConfigMap", "c", 10),
    ]
    assert all(item.is_known for item in cluster.objects)


SETTINGS = """apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources: {excludeResourcePrefixes: [nvidia.com]}
"""
CONFIG_MAP = """apiVersion: v1
kind: ConfigMap
metadata: {name: kueue-manager-config, namespace: kueue-system}
data:
  controller_manager_config.yaml: |
""" + "".join(f"    {line}\n" for line in SETTINGS.splitlines())


@pytest.mark.parametrize("settings", [SETTINGS, CONFIG_MAP], ids=["as an object", "in its ConfigMap"])
def test_the_configuration_of_kueue_is_followed(settings: str, check: Check, tmp_path: Path) -> None:
    small = QUEUES.replace("nominalQuota: 4", "nominalQuota: 1")
    assert check(written(tmp_path, small), pipeline=QUEUED).data["verdict"] == "never"
    assert check(written(tmp_path, small, settings), pipeline=QUEUED).data["verdict"] != "never"


def test_a_manifest_that_names_no_namespace_is_put_where_the_pipeline_runs(check: Check, tmp_path: Path) -> None:
    bare = QUEUES.replace("name: research, namespace: ns", "name: research")
    pipeline = (
        "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
        "steps: {a: {image: i, command: [x], cpu: 1, memory: 1Gi, queue: research}}\n"
    )
    for text in (QUEUES, bare):
        answer = check(written(tmp_path, text), pipeline=pipeline)
        assert "GF507" not in answer.out


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("spec.hard[requests.nvidia.com/gpu]", ("spec", "hard", "requests.nvidia.com/gpu")),
        ("spec.hard.requests.nvidia.com/gpu", ("spec", "hard", "requests.nvidia.com/gpu")),
        ("spec.list[1].name", ("spec", "list", 1, "name")),
        ("spec.list[b].name", ("spec", "list", 1, "name")),
        ("spec.list[7].name", ("spec", "list")),
        ("spec.none.name", ("spec",)),
        ("nothing", ()),
    ],
)
def test_a_field_leads_to_its_place_as_far_as_it_exists(field: str, path: tuple[str | int, ...]) -> None:
    body = yaml_tree.parse(
        "spec: {hard: {requests.nvidia.com/gpu: 1, requests: 2}, list: [{name: a}, {name: b}]}\n", "x.yaml"
    )
    assert parts_of(body, field) == path


@pytest.mark.parametrize(
    ("path", "owner", "field"),
    [
        ("ResourceQuota q: spec.hard[cpu]", "ResourceQuota q", "spec.hard[cpu]"),
        ("LimitRange metadata.name", "LimitRange", "metadata.name"),
        ("metadata.annotations[a b]", "", "metadata.annotations[a b]"),
        ("spec", "", "spec"),
    ],
)
def test_a_bad_field_knows_its_object_and_its_path(path: str, owner: str, field: str) -> None:
    bad = BadField(path, "must be a map")
    assert (str(bad), bad.owner, bad.field) == (f"{path}: must be a map", owner, field)


def test_a_field_that_does_not_exist_is_named_with_the_one_that_was_meant(check: Check, tmp_path: Path) -> None:
    file = written(tmp_path, CLUSTER_QUEUE.replace("nominalQuota: 4}", "nominalQuota: 4, borowingLimit: 1}"), QUOTA)
    answer = check(file)
    (found,) = [row for row in answer.data["findings"] if row["code"] == "GF407"]
    assert (found["where"]["line"], 'did you mean "borrowingLimit"' in found["hint"]) == (14, True)
    assert answer.data["verdict"] == "unknown"


def test_a_field_of_another_version_is_not_taken_for_one_of_this(check: Check, tmp_path: Path) -> None:
    old = CLUSTER_QUEUE.replace("v1beta2", "v1beta1").replace("cohortName", "cohort")
    mixed = CLUSTER_QUEUE.replace("cohortName", "cohort")
    assert "GF407" not in check(written(tmp_path, old, QUOTA)).out
    assert "GF407" in check(written(tmp_path, mixed, QUOTA)).out
