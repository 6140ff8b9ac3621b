"""The pods that Argo makes of templates: what admission and scheduler see of them.

Tests gpuflow/readers/argo/pods.py and gpuflow/readers/argo/variables.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuflow.demands import Demand
from gpuflow.readers import Options
from gpuflow.site import Site
from tests.readers.argo.reading import HEAD, foreign, peak, read


def one(template: str, spec: str = "", **options: Any) -> Demand:
    """A workflow of one template."""
    return read(f"spec:\n  entrypoint: a\n{spec}  templates:\n  - name: a\n{template}", **options)


def pod(template: str, spec: str = "", **options: Any) -> dict[str, Any]:
    demand = one(template, spec, **options)
    assert not demand.refusals, demand.refusals
    return dict(demand.steps[0].pod["spec"])


def names(pod: dict[str, Any], group: str = "containers") -> list[str]:
    return [each["name"] for each in pod.get(group, ())]


PLAIN = "    container: {image: i, command: [x]}\n"


def test_script_sidecars_and_init_containers_are_one_pod() -> None:
    found = pod(
        "    script: {image: i, command: [sh], source: echo, resources: {requests: {cpu: 1}}}\n"
        "    sidecars: [{name: side, image: i, resources: {requests: {cpu: 2}}, mirrorVolumeMounts: true}]\n"
        "    initContainers: [{name: first, image: i, resources: {requests: {cpu: 5}}}]\n"
    )
    assert names(found) == ["main", "side"] and names(found, "initContainers") == ["first"]
    assert found["restartPolicy"] == "Never"
    assert "source" not in found["containers"][0] and "mirrorVolumeMounts" not in found["containers"][1]
    demand = one(
        "    script: {image: i, command: [sh], source: echo, resources: {requests: {cpu: 1}}}\n"
        "    sidecars: [{name: side, image: i, resources: {requests: {cpu: 2}}}]\n"
        "    initContainers: [{name: first, image: i, resources: {requests: {cpu: 5}}}]\n"
    )
    assert peak(demand, "requests.cpu") == ("exact", 5)


def test_a_container_set_is_one_pod_whatever_its_containers_wait_for() -> None:
    demand = one(
        "    containerSet:\n      containers:\n"
        "      - {name: a, image: i, resources: {requests: {cpu: 1}}}\n"
        "      - {name: b, image: i, dependencies: [a], resources: {requests: {cpu: 2}}}\n"
    )
    assert peak(demand) == ("exact", 1)
    assert peak(demand, "requests.cpu") == ("exact", 3)
    assert names(dict(demand.steps[0].pod["spec"])) == ["a", "b"]


SHARED = """\
  nodeSelector: {disk: hdd}
  tolerations: [{key: all, operator: Exists}]
  schedulerName: slow
  podPriorityClassName: low
  serviceAccountName: runner
  securityContext: {runAsUser: 1}
  hostNetwork: true
  imagePullSecrets: [{name: registry}]
  podMetadata: {labels: {team: a, kind: all}}
  activeDeadlineSeconds: 100
"""


def test_the_workflow_s_settings_hold_unless_the_template_has_its_own() -> None:
    found = pod(PLAIN, SHARED)
    assert found["nodeSelector"] == {"disk": "hdd"} and found["schedulerName"] == "slow"
    assert found["tolerations"] == [{"key": "all", "operator": "Exists"}]
    assert found["priorityClassName"] == "low" and found["serviceAccountName"] == "runner"
    assert found["securityContext"] == {"runAsUser": 1} and found["hostNetwork"] is True
    assert found["imagePullSecrets"] == [{"name": "registry"}] and found["activeDeadlineSeconds"] == 100
    own = """\
    nodeSelector: {disk: ssd}
    tolerations: [{key: gpu, operator: Exists}]
    schedulerName: fast
    priorityClassName: high
    serviceAccountName: trainer
    securityContext: {runAsUser: 2}
    activeDeadlineSeconds: 50
    metadata: {labels: {kind: gpu, mine: a}}
"""
    found = pod(PLAIN + own, SHARED)
    assert found["nodeSelector"] == {"disk": "ssd"} and found["schedulerName"] == "fast"
    assert found["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert found["priorityClassName"] == "high" and found["serviceAccountName"] == "trainer"
    assert found["securityContext"] == {"runAsUser": 2} and found["activeDeadlineSeconds"] == 50
    labels = one(PLAIN + own, SHARED).steps[0].pod["metadata"]["labels"]
    # As Argo has it: podMetadata overwrites what the template says.
    assert labels["team"] == "a" and labels["kind"] == "all" and labels["mine"] == "a"
    assert labels["workflows.argoproj.io/completed"] == "false"


def test_the_template_around_a_step_gives_it_its_place() -> None:
    text = """
spec:
  entrypoint: main
  nodeSelector: {from: workflow}
  templates:
  - name: main
    nodeSelector: {from: around}
    steps: [[{name: s, template: a}]]
  - name: a
    container: {image: i, command: [x]}
"""
    assert read(text).steps[0].pod["spec"]["nodeSelector"] == {"from": "around"}


def test_deadline_of_the_workflow_is_the_run_s() -> None:
    demand = one(PLAIN, "  activeDeadlineSeconds: 3600\n")
    assert demand.deadline is not None
    assert (demand.deadline.seconds, demand.deadline.where.line) == (3600, 6)


def test_patches_of_workflow_and_template_are_merged_in_that_order() -> None:
    spec = """\
  arguments: {parameters: [{name: mem, value: 2Gi}]}
  podSpecPatch: '{"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi", "cpu": "1"}}}]}'
"""
    template = PLAIN + (
        "    podSpecPatch: |\n      containers:\n      - name: main\n"
        '        resources: {limits: {memory: "{{workflow.parameters.mem}}"}}\n'
    )
    limits = pod(template, spec)["containers"][0]["resources"]["limits"]
    assert limits == {"memory": "2Gi", "cpu": "1"}
    assert pod(template, spec, params={"mem": "9Gi"})["containers"][0]["resources"]["limits"]["memory"] == "9Gi"


def test_a_patch_of_argo_s_own_containers_adds_none_where_they_are_not_counted() -> None:
    template = PLAIN + (
        '    podSpecPatch: \'{"containers": [{"name": "wait", "resources": {"requests": {"cpu": "7"}}}],'
        ' "initContainers": [{"name": "init", "resources": {"requests": {"cpu": "1"}}}]}\'\n'
    )
    assert names(pod(template)) == ["main"] and names(pod(template), "initContainers") == []
    with_engine = pod(template, engine="argo")
    assert names(with_engine) == ["main", "wait"]
    assert with_engine["containers"][1]["resources"]["requests"]["cpu"] == "7"


def test_amounts_that_are_not_known_are_unknown_and_others_are_exact() -> None:
    template = """\
    inputs: {parameters: [{name: mem}]}
    container: {image: i, command: [x], resources: {requests: {cpu: 2}}}
    podSpecPatch: '{"containers": [{"name": "main", "resources": {"limits": {"memory": "{{inputs.parameters.mem}}"}}}]}'
"""
    text = f"""
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {{name: size, template: size}}
    - - name: train
        template: a
        arguments: {{parameters: [{{name: mem, value: "{{{{steps.size.outputs.result}}}}"}}]}}
  - name: size
    container: {{image: i, command: [x]}}
  - name: a
{template}"""
    demand = read(text)
    assert peak(demand) == ("exact", 1) and peak(demand, "requests.cpu") == ("exact", 2)
    assert peak(demand, "requests.memory") == ("unknown", None)
    (part,) = demand.unseen
    assert (part.step, part.resource, part.where.line) == ("main.train", "memory", 19)
    assert "{{steps.size.outputs.result}} is only known in the run" in part.because


def test_a_place_that_is_not_known_leaves_the_amounts_known() -> None:
    template = PLAIN + '    nodeSelector: {zone: "{{workflow.parameters.zone}}"}\n'
    demand = one(template, "  arguments: {parameters: [{name: zone}]}\n")
    assert peak(demand) == ("exact", 1)
    (part,) = demand.unseen
    assert part.is_placement and part.hint == "give --param zone=VALUE"
    assert not one(template, "  arguments: {parameters: [{name: zone}]}\n", params={"zone": "a"}).unseen


def test_template_defaults_stand_behind_every_template_of_their_kind() -> None:
    spec = """\
  templateDefaults:
    nodeSelector: {disk: ssd}
    container: {imagePullPolicy: Always, resources: {requests: {cpu: 3}}, env: [{name: A, value: a}]}
"""
    found = pod("    container: {image: i, command: [x], env: [{name: B, value: b}]}\n", spec)
    main = found["containers"][0]
    assert found["nodeSelector"] == {"disk": "ssd"} and main["imagePullPolicy"] == "Always"
    assert main["resources"] == {"requests": {"cpu": 3}}
    assert [each["name"] for each in main["env"]] == ["B", "A"]
    script = pod("    script: {image: i, command: [sh], source: x}\n", spec)
    assert "imagePullPolicy" not in script["containers"][0] and script["nodeSelector"] == {"disk": "ssd"}


def test_claims_of_the_run_and_volumes_that_are_mounted() -> None:
    spec = """\
  volumes: [{name: data, emptyDir: {}}, {name: unused, emptyDir: {}}]
  volumeClaimTemplates:
  - metadata: {name: work}
    spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 5Gi}}}
"""
    template = (
        "    container: {image: i, command: [x], volumeMounts: "
        "[{name: data, mountPath: /d}, {name: work, mountPath: /w}]}\n"
    )
    demand = one(template, spec)
    assert names(dict(demand.steps[0].pod["spec"]), "volumes") == ["data", "work"]
    (claim,) = demand.claims
    assert (claim.name, claim.volume, claim.storage_class) == ("work", "work", "fast")
    assert str(demand.peak["requests.storage"].value) == "5Gi"
    lost = one(template.replace("name: work", "name: other"), spec)
    assert [finding.code for finding in lost.refusals] == ["GF715"]
    assert "volume other is mounted" in lost.refusals[0].message


def test_pod_resources_and_device_claims_of_newer_versions_reach_the_pod() -> None:
    spec = "  podResources: {limits: {cpu: 1}}\n  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]\n"
    found = pod(PLAIN, spec)
    assert found["resources"] == {"limits": {"cpu": 1}} and found["resourceClaims"][0]["name"] == "gpu"
    own = "    podResources: {limits: {cpu: 2}}\n    resourceClaims: [{name: gpu, resourceClaimTemplateName: two}]\n"
    found = pod(PLAIN + own, spec)
    assert found["resources"] == {"limits": {"cpu": 2}}
    assert found["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "two"}]


@pytest.mark.parametrize(
    ("written", "limit", "tries"),
    [("{limit: 3}", None, 4), ('{limit: "2"}', None, 3), ("{limit: '{{workflow.parameters.n}}'}", "5", 6)],
)
def test_retries_are_tries_and_add_no_pods_at_once(written: str, limit: str | None, tries: int) -> None:
    spec = "  arguments: {parameters: [{name: n}]}\n"
    demand = one(PLAIN + f"    retryStrategy: {written}\n", spec, params={"n": limit} if limit else {})
    assert demand.steps[0].tries == tries and peak(demand) == ("exact", 1)


def test_retries_keep_away_from_nodes_and_may_ask_for_more() -> None:
    template = PLAIN + (
        "    retryStrategy: {limit: 2, affinity: {nodeAntiAffinity: {}}}\n"
        '    podSpecPatch: \'{"containers": [{"name": "main", "resources": {"limits": '
        '{"memory": "{{=asInt(retries) * 2 + 1}}Gi"}}}]}\'\n'
    )
    demand = one(template)
    assert demand.steps[0].nodes_avoided == 2
    assert str(demand.peak["limits.memory"].value) == "1Gi"
    assert {later.when for later in demand.later} == {"after running out of memory", "after interruptions"}
    assert str(demand.at_later(demand.later[0]).peak["limits.memory"].value) == "5Gi"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("    container: {image: i, command: [x], resources: {limits: {cpu: lots}}}\n", "not a quantity"),
        ("    container: {image: i, command: [x], env: [{name: A, value: 5}]}\n", "env[0].value is not a text"),
        (PLAIN + "    nodeSelector: {gpu: true}\n", "nodeSelector.gpu is not a text"),
        (PLAIN + "    podSpecPatch: '[1]'\n", "podSpecPatch is not a map"),
        (PLAIN + "    podSpecPatch: '{\"a\": '\n", "podSpecPatch is not valid YAML"),
    ],
)
def test_what_no_pod_can_be_made_of_never_runs(template: str, says: str) -> None:
    (finding,) = one(template).refusals
    assert finding.code == "GF715" and says in finding.message and finding.where.file == "w.yaml"


AMOUNTS = """
apiVersion: gpuflow/v1
kind: Site
name: s
extends: nvidia
engines:
  argo:
    init: {init: {requests: {cpu: 10m}}}
    containers: {wait: {requests: {cpu: 100m, memory: 64Mi}}}
"""


def test_engine_s_own_containers_come_with_the_engine(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(AMOUNTS, encoding="utf-8")
    options = Options(Site.load(str(tmp_path / "site.yaml")), "argo")
    text = HEAD + "spec:\n  entrypoint: a\n  templates:\n  - name: a\n"
    plain = foreign(text + PLAIN).demand(options)
    assert isinstance(plain, Demand)
    found = dict(plain.steps[0].pod["spec"])
    assert names(found) == ["main", "wait"] and names(found, "initContainers") == ["init"]
    assert str(plain.overhead["requests.memory"].value) == str(plain.peak["requests.memory"].value) == "64Mi"
    resource = foreign(text + "    resource: {action: get, flags: [pod, x]}\n").demand(options)
    assert isinstance(resource, Demand)
    assert names(dict(resource.steps[0].pod["spec"])) == ["main"]
    assert str(resource.overhead["requests.cpu"].value) == str(resource.peak["requests.cpu"].value) == "100m"
    assert foreign(text + "    resource: {action: get, flags: [pod, x]}\n").demand(Options(options.site)).steps == ()  # type: ignore[union-attr]  # it is there in this case


def test_what_is_collected_and_kept() -> None:
    assert one(PLAIN).keeps_pods == "all" and not one(PLAIN).pods_collected
    assert one(PLAIN, "  podGC: {strategy: OnPodCompletion}\n").pods_collected
    assert not one(PLAIN, "  podGC: {strategy: OnWorkflowCompletion}\n").pods_collected
    selected = "  podGC: {strategy: OnPodSuccess, labelSelector: {matchLabels: {a: b}}}\n"
    assert one(PLAIN, selected).keeps_pods == "unknown"
