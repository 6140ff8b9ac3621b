"""The pod of a task: resources, accelerators, and every field of the platform document.

Tests gpuflow/readers/kfp/pods.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.readers.kfp.pods import FIELDS
from tests.readers.kfp.documents import (
    constant,
    container,
    given,
    group,
    loop,
    output,
    pipeline,
    platform,
    read,
    shown,
    task,
)

STRING = {"parameterType": "STRING"}


def of_one(settings: dict[str, Any] | None = None, params: dict[str, Any] | None = None, **resources: Any) -> Any:
    """The demand of a pipeline of one task."""
    document = pipeline({"a": task("a")}, executors={"exec-a": container(**resources)}, params=params)
    return read(document) if settings is None else read(document, platform(a=settings))


def spec_with(settings: dict[str, Any], params: dict[str, Any] | None = None) -> Any:
    return of_one(settings, params).steps[0].pod["spec"]


def placeholder(name: str) -> str:
    return f"{{{{$.inputs.parameters['{name}']}}}}"


@pytest.mark.parametrize(
    ("resources", "amounts"),
    [
        ({"cpuLimit": 2.0, "memoryLimit": 17.179869184}, {"limits.cpu": "2", "limits.memory": "17179869184"}),
        ({"cpuRequest": 0.25, "memoryRequest": 1}, {"requests.cpu": "250m", "requests.memory": "1G"}),
        ({"resourceCpuLimit": "500m", "cpuLimit": 9.0}, {"limits.cpu": "500m"}),
        ({"resourceMemoryRequest": "1Gi", "resourceMemoryLimit": "2Gi"}, {"requests.memory": "1Gi"}),
        ({"resource_cpu_limit": "3"}, {"limits.cpu": "3"}),
        ({"accelerator": {"type": "nvidia.com/gpu", "count": "2"}}, {"requests.nvidia.com/gpu": "2"}),
        ({"accelerator": {"type": "nvidia.com/gpu", "count": 2}}, {"requests.nvidia.com/gpu": "2"}),
        (
            {"accelerator": {"resourceType": "amd.com/gpu", "resourceCount": "4", "type": "x", "count": "1"}},
            {"requests.amd.com/gpu": "4"},
        ),
    ],
)
def test_amounts_are_those_that_the_driver_sets(resources: dict[str, Any], amounts: dict[str, str]) -> None:
    peak = of_one(**resources).peak
    assert {key: str(peak[key].value) for key in amounts} == {
        key: value.replace("17179869184", "17179869184") for key, value in amounts.items()
    }


@pytest.mark.parametrize(
    "accelerator", [{"count": "1"}, {"resourceCount": "1"}, {"type": "nvidia.com/gpu"}, {"type": "x/y", "count": 0}]
)
def test_an_accelerator_without_type_or_count_is_none_and_a_finding_says_so(accelerator: dict[str, Any]) -> None:
    demand = of_one(accelerator=accelerator)
    assert list(demand.peak) == ["pods"]
    assert [(each.code, each.severity) for each in demand.refusals] == [("GF731", "warning")]


def test_a_count_that_is_a_number_of_the_pipeline_is_no_count_to_kubeflow() -> None:
    accelerator = {"resourceType": "nvidia.com/gpu", "resourceCount": placeholder("n")}
    components = {
        "comp-a": {
            "executorLabel": "exec-a",
            "inputDefinitions": {"parameters": {"n": {"parameterType": "NUMBER_INTEGER"}}},
        }
    }
    tasks = {"a": task("a", inputs={"n": constant(2.0)})}
    demand = read(pipeline(tasks, components=components, executors={"exec-a": container(accelerator=accelerator)}))
    assert "requests.nvidia.com/gpu" not in demand.peak
    assert [each.code for each in demand.refusals] == ["GF731"]


def asking(value: Any, params: dict[str, Any] | None = None, **resources: str) -> Any:
    """A document whose one task gets an input `x`."""
    components = {"comp-a": {"executorLabel": "exec-a", "inputDefinitions": {"parameters": {"x": STRING}}}}
    tasks = {"make": task("make"), "a": task("a", inputs={"x": value})}
    executors = {"exec-a": container(**resources)}
    return pipeline(tasks, components=components, executors=executors, params=params)


def test_a_placeholder_is_resolved_from_constants_defaults_and_given_values() -> None:
    text = placeholder("x")
    assert shown(read(asking(constant("2Gi"), resourceMemoryLimit=text)), "limits.memory") == "exact 2Gi"
    params = {"size": {**STRING, "defaultValue": "3Gi"}}
    document = asking(given("size"), params, resourceMemoryLimit=text)
    assert shown(read(document), "limits.memory") == "exact 3Gi"
    assert shown(read(document, params={"size": "5Gi"}), "limits.memory") == "exact 5Gi"


def test_an_amount_that_only_the_run_knows_is_unknown_for_its_resource_alone() -> None:
    demand = read(asking(output("make"), resourceMemoryLimit=placeholder("x"), resourceCpuLimit="2"))
    assert shown(demand, "limits.memory") == shown(demand, "requests.memory") == "unknown"
    assert shown(demand, "limits.cpu") == "exact 2"
    assert shown(demand, "pods") == "exact 1"
    (part,) = demand.unseen
    assert (part.step, part.resource) == ("a", "memory")
    assert part.because == 'resourceMemoryLimit: it is the output "Output" of the task "make"'


@pytest.mark.parametrize("name", ["resourceType", "resourceCount"])
def test_an_accelerator_that_only_the_run_knows_is_unknown(name: str) -> None:
    accelerator = {"resourceType": "nvidia.com/gpu", "resourceCount": "1", name: placeholder("x")}
    demand = read(asking(output("make"), accelerator=accelerator))  # type: ignore[arg-type]  # what nobody should pass, or a table of options
    assert shown(demand, "requests.nvidia.com/gpu") == "unknown"
    assert f"accelerator.{name}" in demand.unseen[0].because


def test_an_amount_of_each_item_of_a_loop_is_bounded_by_the_largest() -> None:
    components = {
        "comp-loop": group({"a": task("a", inputs={"x": given("item")})}, item=STRING),
        "comp-a": {"executorLabel": "exec-a", "inputDefinitions": {"parameters": {"x": STRING}}},
    }
    executors = {"exec-a": container(resourceMemoryLimit=placeholder("x"))}
    document = pipeline(
        {"each": task("loop", **loop(["1Gi", "4Gi", "2Gi"]))}, components=components, executors=executors
    )
    assert shown(read(document), "limits.memory") == "at-most 12Gi"
    member = {**given("item"), "parameterExpressionSelector": 'parseJson(string_value)["memory"]'}
    components["comp-loop"] = group({"a": task("a", inputs={"x": member})}, item={"parameterType": "STRUCT"})
    items = [{"memory": "1Gi"}, {"memory": "3Gi"}]
    document = pipeline({"each": task("loop", **loop(items))}, components=components, executors=executors)
    assert shown(read(document), "limits.memory") == "at-most 6Gi"


@pytest.mark.parametrize(
    "resources",
    [
        {"resourceMemoryLimit": "16384K"},
        {"resourceCpuLimit": "lots"},
        {"resourceCpuLimit": "{{channel}}"},
        {"accelerator": {"resourceType": "nvidia.com/gpu", "resourceCount": "two"}},
    ],
)
def test_an_amount_that_the_driver_fails_on_is_refused_with_its_place(resources: dict[str, Any]) -> None:
    with pytest.raises(GpuflowError, match=r"pipeline.yaml:1:\d+: GF730 task \"a\""):
        of_one(**resources)


SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nodeSelector": ({"labels": {"k": "v"}}, {"nodeSelector": {"k": "v"}}),
    "tolerations": (
        [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": "60"}],  # type: ignore[dict-item]  # the values of the table differ in kind
        {"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 60}]},
    ),
    "secretAsVolume": (
        [{"secretName": "s", "secretNameParameter": constant("s"), "mountPath": "/s", "optional": False}],  # type: ignore[dict-item]  # the values of the table differ in kind
        {"volumes": [{"name": "s", "secret": {"secretName": "s", "optional": False}}]},
    ),
    "configMapAsVolume": (
        [{"configMapName": "c", "mountPath": "/c", "optional": True}],  # type: ignore[dict-item]  # the values of the table differ in kind
        {"volumes": [{"name": "c", "configMap": {"name": "c", "optional": True}}]},
    ),
    "pvcMount": (
        [{"constant": "data", "mountPath": "/d"}],  # type: ignore[dict-item]  # the values of the table differ in kind
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    ),
    "emptyDirMounts": (
        [{"volumeName": "e", "mountPath": "/e", "medium": "Memory", "sizeLimit": "1Gi"}],  # type: ignore[dict-item]  # the values of the table differ in kind
        {"volumes": [{"name": "e", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]},
    ),
    "genericEphemeralVolume": (
        [
            {
                "volumeName": "g",
                "mountPath": "/g",
                "accessModes": ["ReadWriteOnce"],
                "size": "5Gi",
                "storageClassName": "fast",
            }
        ],  # type: ignore[dict-item]  # the values of the table differ in kind
        {
            "volumes": [
                {
                    "name": "g",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "metadata": {},
                            "spec": {
                                "accessModes": ["ReadWriteOnce"],
                                "resources": {"requests": {"storage": "5Gi"}},
                                "storageClassName": "fast",
                            },
                        }
                    },
                }
            ]
        },
    ),
    "imagePullSecret": ([{"secretName": "r"}], {"imagePullSecrets": [{"name": "r"}]}),  # type: ignore[dict-item]  # the values of the table differ in kind
    "activeDeadlineSeconds": ("3600", {"activeDeadlineSeconds": 3600}),  # type: ignore[dict-item]  # the values of the table differ in kind
    "nodeAffinity": (
        [  # type: ignore[dict-item]  # the values of the table differ in kind
            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]},
            {"matchFields": [{"key": "f", "operator": "Exists"}], "weight": 5},
            {},
        ],
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 5, "preference": {"matchFields": [{"key": "f", "operator": "Exists"}]}}
                    ],
                }
            }
        },
    ),
    "podAffinity": ([{"topologyKey": "zone"}], {}),  # type: ignore[dict-item]  # the values of the table differ in kind
    "enabledSharedMemory": ({"volumeName": "shm", "size": "1Gi"}, {}),
}
MAIN: dict[str, tuple[Any, dict[str, Any]]] = {
    "secretAsEnv": (
        [{"secretName": "s", "keyToEnv": [{"secretKey": "k", "envVar": "E"}], "optional": True}],
        {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}]},
    ),
    "configMapAsEnv": (
        [{"configMapName": "c", "keyToEnv": [{"configMapKey": "k", "envVar": "E"}]}],
        {"env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
    ),
    "fieldPathAsEnv": (
        [{"name": "E", "fieldPath": "metadata.name"}],
        {"env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
    ),
    "imagePullPolicy": ("Always", {"imagePullPolicy": "Always"}),
    "securityContext": (
        {"runAsUser": "7", "runAsGroup": 8, "runAsNonRoot": True},
        {
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
                "runAsUser": 7,
                "runAsGroup": 8,
                "runAsNonRoot": True,
            }
        },
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_pod_is_what_the_driver_makes_of_it(name: str) -> None:
    value, wanted = SETTINGS[name]
    spec = spec_with({name: value})
    assert {key: spec[key] for key in wanted} == wanted
    plain = spec_with({"imagePullPolicy": "Always"})
    assert {*spec} - {*plain} == {*wanted} - {*plain}


@pytest.mark.parametrize("name", MAIN)
def test_a_setting_of_the_container_is_what_the_driver_makes_of_it(name: str) -> None:
    value, wanted = MAIN[name]
    main = spec_with({name: value})["containers"][0]
    assert {key: main[key] for key in wanted} == wanted


def test_every_field_of_the_platform_document_is_tried() -> None:
    assert {*FIELDS} == {*SETTINGS, *MAIN, "podMetadata", "initContainers"}


def test_labels_and_annotations_reach_the_pod_beside_kubeflow_s_own() -> None:
    metadata = of_one({"podMetadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}).steps[0].pod["metadata"]
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert metadata["annotations"] == {"pipelines.kubeflow.org/v2_component": "true"}


def test_init_containers_are_counted_and_sidecars_run_beside_the_step() -> None:
    containers = [
        {"name": "i", "image": "i:1", "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}},
        {"name": "s", "image": "i:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
    ]
    document = pipeline({"a": task("a")}, executors={"exec-a": container(resourceCpuRequest="2")})
    demand = read(document, platform(a={"initContainers": containers}))
    assert shown(demand, "requests.cpu") == "exact 4"
    assert [each["name"] for each in demand.steps[0].pod["spec"]["initContainers"]] == ["i", "s"]


@pytest.mark.parametrize("name", ["podAffinity", "enabledSharedMemory"])
def test_a_setting_that_the_driver_never_reads_is_said(name: str) -> None:
    demand = of_one({name: SETTINGS[name][0]})
    assert [(each.code, each.severity) for each in demand.refusals] == [("GF732", "warning")]


def test_a_setting_that_kubeflow_does_not_have_is_refused() -> None:
    document = pipeline({"a": task("a")})
    demand = read(document, platform(a={"priorityClassName": "high"}), engine="kubeflow")
    assert [(each.code, each.severity) for each in demand.refusals] == [("GF729", "error")]


@pytest.mark.parametrize(
    "settings",
    [
        {"imagePullPolicy": "Sometimes"},
        {"emptyDirMounts": [{"volumeName": "e", "mountPath": "/e", "sizeLimit": "lots"}]},
        {"genericEphemeralVolume": [{"volumeName": "g", "mountPath": "/g", "size": ""}]},
        {"secretAsVolume": [{"mountPath": "/s"}]},
        {"pvcMount": [{"mountPath": "/d"}]},
        {"initContainers": [{"name": "main", "image": "i"}]},
        {"initContainers": [{"name": "x"}]},
        {"initContainers": [{"name": "x", "image": "i", "restartPolicy": "Never"}]},
        {"initContainers": [{"name": "x", "image": "i", "resources": {"limits": {"cpu": "many"}}}]},
        {"nodeSelector": {"nodeSelectorJson": constant({"k": 1})}},
        {"tolerations": [{"tolerationJson": constant(["x"])}]},
        {"nodeAffinity": [{"nodeAffinityJson": constant({"preferredDuringSchedulingIgnoredDuringExecution": "x"})}]},
    ],
)
def test_what_the_driver_fails_on_is_refused_with_its_place(settings: dict[str, Any]) -> None:
    with pytest.raises(GpuflowError, match=r"GF730 task \"a\"") as refusal:
        of_one(settings)
    assert refusal.value.findings[0].where.line == 3  # in the second document


def test_settings_may_come_from_parameters_of_the_group_around_the_task() -> None:
    settings = {
        "nodeSelector": {"nodeSelectorJson": given("nodes")},
        "tolerations": [{"tolerationJson": given("taints")}],
        "nodeAffinity": [{"nodeAffinityJson": given("near")}],
        "secretAsVolume": [{"secretNameParameter": given("secret"), "mountPath": "/s"}],
    }
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Exists"}]}]}
    params = {
        "nodes": {"parameterType": "STRUCT", "defaultValue": {"gpu": "a100"}},
        "taints": {"parameterType": "LIST", "defaultValue": [{"key": "gpu", "operator": "Exists"}]},
        "near": {"parameterType": "STRUCT", "defaultValue": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "secret": {"parameterType": "STRING", "isOptional": True},
    }
    spec = spec_with(settings, params)
    assert spec["nodeSelector"] == {"gpu": "a100"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["affinity"]["nodeAffinity"] == {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    assert "volumes" not in spec


@pytest.mark.parametrize(
    "settings",
    [
        {"nodeSelector": {"nodeSelectorJson": given("open")}},
        {"tolerations": [{"tolerationJson": given("open")}]},
        {"nodeAffinity": [{"nodeAffinityJson": given("open")}]},
        {"pvcMount": [{"pvcNameParameter": given("open"), "mountPath": "/d"}]},
    ],
)
def test_a_place_that_only_the_run_knows_leaves_the_amounts_known(settings: dict[str, Any]) -> None:
    demand = of_one(settings, {"open": STRING}, resourceCpuLimit="2")
    assert shown(demand, "limits.cpu") == "exact 2"
    assert [each.is_placement for each in demand.unseen] == [True]
    assert demand.unseen[0].hint is not None


def test_resources_that_are_handed_on_are_not_the_pod_s_and_leave_the_run_unknown() -> None:
    components = {"comp-a": {"executorLabel": "exec-a", "taskConfigPassthroughs": [{"field": "RESOURCES"}]}}
    executors = {"exec-a": container(resourceCpuLimit="8")}
    demand = read(pipeline({"a": task("a")}, components=components, executors=executors))
    assert demand.steps[0].limits == {}
    assert shown(demand, "pods") == "unknown"


CREATE = {"exec-create": container("argostub/createpvc"), "exec-delete": container("argostub/deletepvc")}
SIZE = {"size": constant("5Gi"), "access_modes": constant(["ReadWriteOnce"]), "pvc_name_suffix": constant("-x")}


def test_a_claim_that_a_task_makes_is_one_of_the_run_and_has_no_pod() -> None:
    tasks = {
        "create": task("create", inputs={**SIZE, "storage_class_name": constant("fast")}),
        "use": task("a", after=("create",)),
        "delete": task("delete", after=("use",), inputs={"pvc_name": output("create", "name")}),
    }
    mount = platform(a={"pvcMount": [{"pvcNameParameter": output("create", "name"), "mountPath": "/d"}]})
    demand = read(pipeline(tasks, executors=CREATE), mount)
    assert [step.name for step in demand.steps] == ["use"]
    assert shown(demand, "requests.storage") == "exact 5Gi"
    assert shown(demand, "persistentvolumeclaims") == "exact 1"
    (claim,) = demand.claims
    assert claim.storage_class == "fast"
    assert claim.volume == demand.steps[0].pod["spec"]["volumes"][0]["name"]
    with_drivers = read(pipeline(tasks, executors=CREATE), mount, engine="kubeflow")
    assert [step.name for step in with_drivers.steps] == ["create", "use", "delete"]
    assert with_drivers.driver_pods is not None
    assert with_drivers.driver_pods.at_most == 2  # of the run and of the one container


def test_a_claim_without_a_class_is_of_the_class_that_kubeflow_takes() -> None:
    demand = read(pipeline({"create": task("create", inputs=SIZE)}, executors=CREATE))
    assert demand.claims[0].storage_class == "standard"


def test_claims_of_a_loop_are_one_for_each_item_at_most() -> None:
    components = {"comp-loop": group({"create": task("create", inputs=SIZE)})}
    demand = read(pipeline({"each": task("loop", **loop([1, 2, 3]))}, components=components, executors=CREATE))
    assert shown(demand, "requests.storage") == "at-most 15Gi"
    many = read(pipeline({"each": task("loop", **loop(list(range(5000))))}, components=components, executors=CREATE))
    assert shown(many, "requests.storage") == shown(many, "persistentvolumeclaims") == "unknown"


def test_a_claim_of_a_size_that_only_the_run_knows_is_unknown() -> None:
    tasks = {"create": task("create", inputs={**SIZE, "size": given("open")})}
    demand = read(pipeline(tasks, executors=CREATE, params={"open": STRING}))
    assert shown(demand, "requests.storage") == "unknown"
    assert shown(demand, "persistentvolumeclaims") == "exact 1"


def test_a_workspace_is_a_claim_of_the_run_that_its_users_mount() -> None:
    document = pipeline({"a": task("a", inputs={"x": constant("{{$.workspace_path}}")}), "b": task("a")})
    workspace = {
        "size": "10Gi",
        "kubernetes": {"pvcSpecPatch": {"accessModes": ["ReadWriteMany"], "storageClassName": "nfs"}},
    }
    settings = {"platforms": {"kubernetes": {"pipelineConfig": {"workspace": workspace, "activeDeadlineSeconds": 60}}}}
    demand = read(document, settings)
    assert shown(demand, "requests.storage") == "exact 10Gi"
    assert demand.claims[0].storage_class == "nfs"
    assert demand.deadline is not None
    assert demand.deadline.seconds == 60
    mounted = {step.name: [each["name"] for each in step.pod["spec"].get("volumes", ())] for step in demand.steps}
    assert mounted == {"a": ["kfp-workspace"], "b": []}


def test_an_artifact_that_was_downloaded_into_the_workspace_mounts_it() -> None:
    importer = {"importer": {"artifactUri": {"constant": "s3://b/model"}, "downloadToWorkspace": True}}
    read_model = {"artifacts": {"m": {"taskOutputArtifact": {"producerTask": "get", "outputArtifactKey": "artifact"}}}}
    components = {"comp-get": {"executorLabel": "exec-get", "outputDefinitions": {"artifacts": {"artifact": {}}}}}
    tasks = {"get": task("get"), "use": {**task("a"), "inputs": read_model}}
    demand = read(pipeline(tasks, components=components, executors={"exec-get": importer}))
    assert [each["name"] for each in demand.by_name["use"].pod["spec"]["volumes"]] == ["kfp-workspace"]
