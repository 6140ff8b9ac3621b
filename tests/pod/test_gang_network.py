"""`gangs.network` of the site: what every rank with GPUs gets for the network between them, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.plan import planned_step
from gpuflow.pod import pod_for
from gpuflow.pod.build import leader_pod
from gpuflow.pod.launcher import launcher_for
from gpuflow.site import Site
from gpuflow.spec.loading import loads

NETWORK = """
apiVersion: gpuflow/v1
kind: Site
name: fast
gangs:
  network:
    resources: {rdma/hca: 8}
    capabilities: [IPC_LOCK]
    env: {NCCL_IB_HCA: mlx5, NCCL_DEBUG: WARN}
    annotations: {k8s.v1.cni.cncf.io/networks: rdma-net}
    shm: 64Gi
"""
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n  train:\n    image: i:1\n    command: [work]\n"


@pytest.fixture
def site(tmp_path: Any) -> Site:
    path = tmp_path / "site.yaml"
    path.write_text(NETWORK)
    return Site.load(str(path))


def pipeline(*lines: str) -> Any:
    return loads((HEAD + "".join(f"    {line}\n" for line in lines)).encode())


def main(pod: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = pod["spec"]["containers"][0]
    return container


def values(pod: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in main(pod).get("env", [])}


def test_every_rank_with_gpus_gets_it(site: Site) -> None:
    pod = pod_for(pipeline("gpu: 8", "gang: 4"), "train", site)
    assert main(pod)["resources"]["requests"]["rdma/hca"] == main(pod)["resources"]["limits"]["rdma/hca"] == "8"
    assert main(pod)["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert (values(pod)["NCCL_IB_HCA"], values(pod)["NCCL_DEBUG"]) == ("mlx5", "WARN")
    assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "rdma-net"
    (shm,) = [each["emptyDir"] for each in pod["spec"]["volumes"] if each.get("emptyDir", {}).get("medium")]
    assert shm["sizeLimit"] == "64Gi"


def test_what_the_step_says_itself_is_meant(site: Site) -> None:
    own = pipeline(
        "gpu: 8",
        "gang: 4",
        "shm: 1Gi",
        "env: {NCCL_DEBUG: INFO}",
        "annotations: {k8s.v1.cni.cncf.io/networks: mine}",
        "security: {add_capabilities: [SYS_PTRACE], read_only_root: true}",
        "kubernetes: {resources: {rdma/hca: 1, example.com/nic: 2}, node_selector: {a: b}}",
    )
    pod = pod_for(own, "train", site)
    limits = main(pod)["resources"]["limits"]
    assert (limits["rdma/hca"], limits["example.com/nic"]) == ("1", "2")
    assert pod["spec"]["nodeSelector"]["a"] == "b"
    assert main(pod)["securityContext"]["capabilities"]["add"] == ["IPC_LOCK", "SYS_PTRACE"]
    assert main(pod)["securityContext"]["readOnlyRootFilesystem"] is True
    assert (values(pod)["NCCL_IB_HCA"], values(pod)["NCCL_DEBUG"]) == ("mlx5", "INFO")
    assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "mine"
    (shm,) = [each["emptyDir"] for each in pod["spec"]["volumes"] if each.get("emptyDir", {}).get("medium")]
    assert shm["sizeLimit"] == "1Gi"


@pytest.mark.parametrize("lines", [("gpu: 8",), ("gang: 4",)], ids=["one pod", "no GPU"])
def test_others_get_nothing_of_it(site: Site, lines: tuple[str, ...]) -> None:
    pod = pod_for(pipeline(*lines), "train", site)
    text = repr(pod)
    assert not any(word in text for word in ("rdma", "IPC_LOCK", "NCCL", "dev-shm"))


def test_a_leader_without_gpus_gets_nothing_of_it_and_its_workers_do(site: Site) -> None:
    given = pipeline("gpu: 8", "gang: {workers: 3, leader: {gpu: null}}")
    leader = leader_pod(planned_step(given, "train", site))
    assert leader is not None and "rdma" not in repr(leader.manifest)
    assert "rdma/hca" in repr(pod_for(given, "train", site))


def test_helpers_and_the_launcher_may_do_no_more_than_before(site: Site) -> None:
    given = pipeline("gpu: 8", "gang: 4", "init_containers: [{name: first, image: i:1, command: [x]}]")
    pod = pod_for(given, "train", site)
    assert main(pod)["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    (helper,) = pod["spec"]["initContainers"]
    assert "add" not in helper["securityContext"]["capabilities"]
    launched = launcher_for(planned_step(given, "train", site))
    assert "IPC_LOCK" not in repr(launched["spec"]["containers"][0]["securityContext"])


def test_a_volume_of_the_step_at_dev_shm_is_not_mounted_over(site: Site) -> None:
    pod = pod_for(pipeline("gpu: 8", "gang: 4", "volumes: {/dev/shm: {claim: c}}"), "train", site)
    assert [each["mountPath"] for each in main(pod)["volumeMounts"]].count("/dev/shm") == 1


def test_the_check_counts_the_devices(site: Site) -> None:
    demand = demand_of(pipeline("gpu: 8", "gang: 4"), site, "argo")
    assert '"rdma/hca"' in repr(demand).replace("'", '"')


@pytest.mark.parametrize(
    ("resources", "word"),
    [("{cpu: 1}", "extended"), ("{rdma/hca: 0.5}", "whole"), ("{kubernetes.io/x: 1}", "extended")],
)
def test_what_is_no_device_is_refused_with_its_line(tmp_path: Any, resources: str, word: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(NETWORK.replace("{rdma/hca: 8}", resources))
    with pytest.raises(GpuflowError, match=word) as refusal:
        Site.load(str(path))
    (finding,) = refusal.value.findings
    assert (finding.code, finding.where.line) == ("GF160", 7)
