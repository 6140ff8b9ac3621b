"""The pod of a step: labels, security, text that arrives unchanged, volumes and helpers.

Tests gpuflow/pod/build.py, gpuflow/pod/build.py, gpuflow/pod/supervision.py and gpuflow/spec/container.py.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gpuflow import GpuflowError, Pipeline, Site, load
from gpuflow.core.emit import emit
from gpuflow.kubernetes.admission.decision import admit
from gpuflow.plan import plan_of
from gpuflow.pod import pod_for, pod_notes
from gpuflow.site import presets
from tests.conftest import ROOT
from tests.spec.generated import pipelines

EXAMPLES = ROOT / "docs" / "examples"
RESTRICTED = {"metadata": {"name": "team-a", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
NVIDIA = Site.load("nvidia")


def pod(site: Site = NVIDIA, **fields: Any) -> dict[str, Any]:
    step = {"image": "registry.example.com/x:1", **({} if "script" in fields else {"command": ["run"]}), **fields}
    return pod_for(Pipeline("p", steps={"a": step}), "a", site)


def main(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod(**fields)["spec"]["containers"][0]
    return found


def site(tmp_path: Path, text: str) -> Site:
    file = tmp_path / "site.yaml"
    file.write_text(f"apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\n{text}")
    return Site.load(str(file))


def admitted(manifest: dict[str, Any], namespace: dict[str, Any] | None = None) -> str | None:
    """What the API server says against the pod; None when nothing."""
    named = {"apiVersion": "v1", "kind": "Pod", **manifest, "metadata": {"name": "p", **manifest["metadata"]}}
    return admit(named, namespace=namespace).message


def steps_of(pipeline: Pipeline) -> list[tuple[Pipeline, str]]:
    found = []
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        if step.pipeline is not None:
            found += steps_of(step.pipeline)
        elif step.runs_container:
            found.append((pipeline, name))
    return found


@pytest.mark.parametrize("name", ["nightly", "finetune", "gang"])
def test_the_pods_of_the_examples(name: str, golden: Callable[[Path, str], None]) -> None:
    owners = steps_of(load(EXAMPLES / f"{name}.yaml"))
    pods = {f"{owner.name}.{step}": pod_for(owner, step, NVIDIA) for owner, step in owners}
    golden(Path(__file__).parent / "golden" / f"example-{name}.yaml", emit(pods))


@pytest.mark.parametrize("preset", presets())
def test_the_default_pod_satisfies_the_restricted_standard(preset: str) -> None:
    helper = {"name": "h", "image": "i", "command": ["x"]}
    for fields in (
        {},
        {"gpu": "a100-80gb"},
        {"script": "ls", "shm": "1Gi"},
        {"sidecars": [helper], "outputs": {"n": "int"}},
    ):
        assert admitted(pod(Site.load(preset), **fields), RESTRICTED) is None


def test_the_nightly_pipeline_runs_in_a_restricted_namespace() -> None:
    for owner, step in steps_of(load(EXAMPLES / "nightly.yaml")):
        assert admitted(pod_for(owner, step, NVIDIA), RESTRICTED) is None


def test_of_the_long_example_only_what_gives_it_up_by_name_leaves_the_standard() -> None:
    refused = {
        step
        for owner, step in steps_of(load(EXAMPLES / "finetune.yaml"))
        if admitted(pod_for(owner, step, NVIDIA), RESTRICTED) is not None
    }
    assert refused == {"select", "train"}  # run_as_root, IPC_LOCK


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pipelines())
def test_no_generated_pod_breaks_what_the_api_server_validates(document: dict[str, Any]) -> None:
    pipeline = Pipeline(**copy.deepcopy(document))
    for owner, step in steps_of(pipeline):
        with contextlib.suppress(GpuflowError):  # the site has no word for the step; its places are tested elsewhere
            assert admitted(pod_for(owner, step, NVIDIA)) is None


def test_one_line_opts_out_of_the_standard_for_an_image_that_must_run_as_root() -> None:
    found = pod(security={"run_as_root": True})
    assert found["spec"]["securityContext"]["runAsUser"] == 0
    assert "runAsNonRoot" not in found["spec"]["securityContext"]
    assert "violates PodSecurity" in (admitted(found, RESTRICTED) or "")


def test_the_user_is_the_sites_unless_the_step_says_otherwise(tmp_path: Path) -> None:
    mine = site(tmp_path, "identity: {user: 4000, group: 4001, fs_group: 4002}\n")
    context = pod(mine)["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (4000, 4001, 4002)
    assert pod(mine, security={"user": 7})["spec"]["securityContext"]["runAsUser"] == 7


def test_every_pod_says_whose_it_is(tmp_path: Path) -> None:
    mine = site(tmp_path, "labels: {cluster: west, team: platform}\nqueue: default\n")
    pipeline = Pipeline(
        "nightly",
        labels={"cost-centre": "7", "team": "nlp"},
        defaults={"image": "i", "labels": {"stage": "prod"}},
        steps={"a": {"command": ["x"]}, "b": {"command": ["x"], "queue": "fast", "priority": {"queue": "high"}}},
        exit={"bye": {"command": ["x"]}},
    )
    common = {"cluster": "west", "team": "nlp", "cost-centre": "7", "stage": "prod"}
    for name, queue in (("a", {"default"}), ("b", {"fast"}), ("bye", {"default"})):
        labels = pod_for(pipeline, name, mine)["metadata"]["labels"]
        assert {key: labels[key] for key in common} == common
        assert {key: value for key, value in labels.items() if key.startswith("gpuflow.dev/")} == {
            "gpuflow.dev/pipeline": "nightly",
            "gpuflow.dev/step": name,
            "gpuflow.dev/team": "nlp",
        }
        assert {labels["kueue.x-k8s.io/queue-name"]} == queue
    assert pod_for(pipeline, "b", mine)["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"


def test_dollars_are_escaped_once_everywhere_kubernetes_expands() -> None:
    wild = "$(HOME) $$ $5"
    safe = "$$(HOME) $$$$ $5"
    found = main(
        command=["run", wild],
        args=[wild],
        env={"A": wild},
        probes={"liveness": {"command": ["test", wild]}},
    )
    assert found["command"] == ["run", safe, safe]
    assert found["env"] == [{"name": "A", "value": safe}]
    assert found["livenessProbe"]["exec"]["command"] == ["test", safe]
    helper = pod(sidecars=[{"name": "s", "image": "i", "command": [wild], "env": {"B": wild}}])["spec"][
        "initContainers"
    ][0]
    assert (helper["command"], helper["env"][0]["value"]) == ([safe], safe)


def test_a_script_is_handed_over_as_text_and_not_expanded_by_the_shell() -> None:
    text = "print('$HOME', `date`, $(x))\n"
    found = main(script={"run": text, "interpreter": ["python3", "-u"]})["command"]
    assert found[:2] == ["sh", "-c"]
    assert found[3:] == [text.replace("$(", "$$("), "python3", "-u"]


def test_a_script_in_a_read_only_image_gets_a_place_to_be_written_to() -> None:
    found = pod(script="ls", security={"read_only_root": True})
    assert [mount["mountPath"] for mount in found["spec"]["containers"][0]["volumeMounts"]] == ["/tmp"]
    assert "volumeMounts" not in main(script="ls")


def test_an_amount_is_request_and_limit_and_extended_resources_are_both() -> None:
    found = main(cpu=2, memory={"request": "1Gi", "limit": "2Gi"}, gpu="l4", kubernetes={"resources": {"rdma/hca": 2}})
    assert found["resources"] == {
        "requests": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1", "rdma/hca": "2"},
        "limits": {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "1", "rdma/hca": "2"},
    }


def test_every_kind_of_volume_and_one_volume_per_source() -> None:
    found = pod(
        volumes={
            "/a": {"claim": "data", "sub_path": "x"},
            "/b": {"claim": "data", "read_only": True},
            "/c": {"config_map": "cm"},
            "/d": {"secret": "s"},
            "/e": {"empty_dir": "1Gi"},
            "/f": {"memory": "1Gi"},
        },
        shm="2Gi",
    )["spec"]
    mounts = {mount["mountPath"]: mount for mount in found["containers"][0]["volumeMounts"]}
    assert mounts["/a"]["name"] == mounts["/b"]["name"]
    assert (mounts["/a"]["subPath"], mounts["/b"]["readOnly"]) == ("x", True)
    sources = {
        volume["name"]: {key: value for key, value in volume.items() if key != "name"} for volume in found["volumes"]
    }
    assert sources[mounts["/c"]["name"]] == {"configMap": {"name": "cm"}}
    assert sources[mounts["/d"]["name"]] == {"secret": {"secretName": "s"}}
    assert sources[mounts["/e"]["name"]] == {"emptyDir": {"sizeLimit": "1Gi"}}
    assert sources[mounts["/f"]["name"]] == {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    assert sources[mounts["/dev/shm"]["name"]] == {"emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}


def test_scratch_space_at_one_path_is_shared_by_the_containers_of_a_pod() -> None:
    helper = {
        "name": "h",
        "image": "i",
        "command": ["x"],
        "volumes": {"/s": {"empty_dir": "1Gi"}, "/t": {"empty_dir": "1Gi"}},
    }
    found = pod(volumes={"/s": {"empty_dir": "1Gi"}, "/t": {"empty_dir": "2Gi"}}, init_containers=[helper])["spec"]
    own = {mount["mountPath"]: mount["name"] for mount in found["containers"][0]["volumeMounts"]}
    its = {mount["mountPath"]: mount["name"] for mount in found["initContainers"][0]["volumeMounts"]}
    assert own["/s"] == its["/s"]
    assert own["/t"] != its["/t"]  # another size is another volume
    assert len(found["volumes"]) == 3


def test_paths_that_look_alike_are_different_volumes() -> None:
    found = pod(volumes={"/a/b": {"empty_dir": "1Gi"}, "/a-b": {"empty_dir": "1Gi"}, "/a.b": {"empty_dir": "1Gi"}})[
        "spec"
    ]
    assert len({volume["name"] for volume in found["volumes"]}) == 3


def test_sidecars_start_before_and_end_with_the_command() -> None:
    helper = {"image": "i", "command": ["x"]}
    found = pod(init_containers=[{"name": "first", **helper}], sidecars=[{"name": "beside", **helper}])["spec"]
    assert [(c["name"], c.get("restartPolicy")) for c in found["initContainers"]] == [
        ("first", None),
        ("beside", "Always"),
    ]


def test_images_are_rewritten_by_the_longest_prefix(tmp_path: Path) -> None:
    mine = site(tmp_path, "images: {rewrites: {docker.io/: m/, docker.io/lib/: n/}, pull_secrets: [mirror]}\n")
    for image, name in (("docker.io/x", "m/x"), ("docker.io/lib/x", "n/x"), ("quay.io/x", "quay.io/x")):
        found = pod(mine, image=image, image_pull_secrets=["own", "mirror"])["spec"]
        assert found["containers"][0]["image"] == name
        assert found["imagePullSecrets"] == [{"name": "mirror"}, {"name": "own"}]


@pytest.mark.parametrize(
    ("fields", "own"),
    [
        ({"for_each": {"seed": [1, 2]}, "volumes": {"/data": {"claim": "team"}}}, True),
        ({"for_each": {"seed": [1, 2]}, "volumes": {"/data/c": {"new_claim": "run"}}}, True),
        ({"for_each": {"seed": [1, 2]}, "volumes": {"/data": {"claim": "team"}, "/data/c": {"memory": "1Gi"}}}, False),
        ({"for_each": {"seed": [1, 2]}}, False),
        ({"volumes": {"/data": {"claim": "team"}}}, False),
    ],
)
def test_the_items_of_a_step_on_one_volume_get_a_checkpoint_folder_each(fields: dict[str, Any], own: bool) -> None:
    step = {"image": "x", "command": ["run"], "checkpoint": {"path": "/data/c", "store": "s3://m/x"}, **fields}
    pipeline = Pipeline("p", steps={"a": step}, claims={"run": {"size": "1Gi"}})
    words = pod_for(pipeline, "a", NVIDIA)["spec"]["containers"][0]["command"]
    assert "--checkpoint-dir=/data/c" in words
    assert ("--own-folder" in words) is own


def test_a_checkpointed_step_gets_its_grace_its_directory_and_the_supervisor() -> None:
    found = pod(
        checkpoint={"path": "/ckpt", "store": "s3://m/x", "grace": "90s", "keep": 3},
        retry={"failures": 1, "interruptions": 5},
        timeout="1h",
    )["spec"]
    assert (found["terminationGracePeriodSeconds"], found["activeDeadlineSeconds"]) == (100, 3600 + 3600 + 100)
    assert "/ckpt" in [mount["mountPath"] for mount in found["containers"][0]["volumeMounts"]]
    command = found["containers"][0]["command"]
    assert (command[0], command[-1]) == ("gpuflow-run", "run")
    assert "--store=s3://m/x" in command


def test_the_kubelet_ends_an_unsupervised_step_at_its_timeout_and_stands_behind_the_supervisor() -> None:
    alone = pod(timeout="1h", termination_grace="20s")["spec"]
    assert (alone["activeDeadlineSeconds"], alone["terminationGracePeriodSeconds"]) == (3600, 20)
    watched = pod(timeout="1h", outputs={"score": {"type": "float"}})["spec"]
    assert watched["activeDeadlineSeconds"] == 3600 + 3600 + 30
    assert "--timeout=1h" in watched["containers"][0]["command"]


@pytest.mark.parametrize(
    ("pod_grace", "needed", "own"),
    [
        ("5m", None, "--grace=4m50s"),
        ("20s", None, "--grace=15s"),
        ("2m", "90s", "--grace=1m30s"),
        ("60s", "60s", "--grace=50s"),
        ("45s", "60s", "--grace=35s"),
        ("1s", None, "--grace=0s"),
        (None, "60s", "--grace=1m"),
        (None, None, None),
    ],
)
def test_the_supervisor_gives_the_program_the_pods_grace_and_ends_before_the_kubelet_kills_it(
    pod_grace: str | None, needed: str | None, own: str | None
) -> None:
    more = {} if pod_grace is None else {"termination_grace": pod_grace}
    policy = {"path": "/c", "store": "s3://m/x"} | ({} if needed is None else {"grace": needed})
    words = main(checkpoint=policy, **more)["command"]
    assert [word for word in words if word.startswith("--grace")] == ([] if own is None else [own])
    if needed is None:
        words = main(outputs={"score": {"type": "float"}}, **more)["command"]
        assert [word for word in words if word.startswith("--grace")] == ([] if own is None else [own])


@pytest.mark.parametrize(
    ("own", "request_"), [(None, "50Gi"), ("80Gi", "80Gi"), ({"request": "1Gi"}, "50Gi"), ({"limit": "60Gi"}, "50Gi")]
)
def test_the_scratch_space_of_checkpoints_is_limited_and_requested(own: Any, request_: str) -> None:
    more = {} if own is None else {"ephemeral_storage": own}
    spec = pod(checkpoint={"path": "/c", "store": "s3://m/x", "scratch": "50Gi"}, **more)["spec"]
    assert {"name": "scratch-c", "emptyDir": {"sizeLimit": "50Gi"}} in spec["volumes"]
    assert spec["containers"][0]["resources"]["requests"]["ephemeral-storage"] == request_


def test_scratch_space_counts_only_where_it_is_and_never_above_the_steps_own_limit() -> None:
    policy = {"path": "/c", "store": "s3://m/x", "scratch": "50Gi"}
    assert "resources" not in main(checkpoint=policy, volumes={"/c": {"claim": "data"}})
    with pytest.raises(GpuflowError, match="GF323"):
        pod(checkpoint=policy, ephemeral_storage="40Gi")


def test_topology_needs_a_label_and_becomes_affinity_or_a_spread() -> None:
    same = pod(topology={"same": "zone"})["spec"]["affinity"]["podAffinity"]
    (term,) = same["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "topology.kubernetes.io/zone"
    assert term["labelSelector"]["matchLabels"] == {"gpuflow.dev/pipeline": "p", "gpuflow.dev/step": "a"}
    (spread,) = pod(topology={"spread": "node"})["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "DoNotSchedule")


def test_the_escape_hatch_is_taken_as_it_is_and_no_gpu_is_asked_for_twice() -> None:
    found = pod(
        kubernetes={
            "node_selector": {"disk": "ssd"},
            "tolerations": [{"key": "k", "operator": "Exists", "toleration_seconds": 30}],
            "scheduler": "volcano",
            "runtime_class": "nvidia",
            "host_ipc": True,
        }
    )["spec"]
    assert (found["schedulerName"], found["runtimeClassName"], found["hostIPC"]) == ("volcano", "nvidia", True)
    assert found["nodeSelector"] == {"disk": "ssd"}
    assert found["tolerations"] == [{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]
    with pytest.raises(GpuflowError, match=r"requests nvidia\.com/gpu again"):
        pod(gpu="l4", kubernetes={"resources": {"nvidia.com/gpu": 4}})


def test_the_same_step_gives_the_same_bytes() -> None:
    pipeline = load(EXAMPLES / "finetune.yaml")
    again = load(EXAMPLES / "finetune.py")
    assert emit(pod_for(pipeline, "train", NVIDIA)) == emit(pod_for(again, "train", NVIDIA))


RACKS = "topology: {rack: cloud.com/rack, queues: [research]}\n"
TOGETHER = {"gang": {"workers": 2}, "topology": {"same": "rack"}, "queue": "research"}


def test_a_gang_asks_kueue_for_its_rack_where_the_site_says_that_the_queue_has_a_topology(tmp_path: Path) -> None:
    made = pod(site(tmp_path, RACKS), **TOGETHER)
    assert made["metadata"]["annotations"] == {"kueue.x-k8s.io/podset-required-topology": "cloud.com/rack"}
    assert "affinity" not in made["spec"]


@pytest.mark.parametrize("other", [{"queue": "another"}, {"gang": None}])
def test_in_other_queues_and_for_single_pods_the_scheduler_is_asked(other: dict[str, Any], tmp_path: Path) -> None:
    made = pod(site(tmp_path, RACKS), **{**TOGETHER, **other})
    assert "annotations" not in made["metadata"]
    assert "podAffinity" in made["spec"]["affinity"]


def test_a_leader_and_its_workers_are_one_group_for_kueue(tmp_path: Path) -> None:
    made = pod(site(tmp_path, RACKS), **{**TOGETHER, "gang": {"workers": 2, "leader": True}})
    assert made["metadata"]["annotations"]["kueue.x-k8s.io/podset-group-name"] == "gang"


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("research", "Kueue places the gang in one rack as a whole, by cloud.com/rack"),
        ("another", "the scheduler keeps the gang in one rack, by affinity on cloud.com/rack, pod by pod"),
    ],
)
def test_who_keeps_a_gang_together_is_said(queue: str, said: str, tmp_path: Path) -> None:
    step = {"image": "registry.example.com/x:1", "command": ["run"], **TOGETHER, "queue": queue}
    plan = plan_of(Pipeline("p", steps={"a": step}), site(tmp_path, RACKS))
    (note,) = pod_notes(plan)
    assert (note.code, note.severity) == ("GF399", "note")
    assert said in note.message
