"""A step that takes any GPU is counted against every model that can serve it, and against nothing else."""

from __future__ import annotations

from pathlib import Path

from gpuflow.site import Site
from tests.checker.kueue.scenes import flavor
from tests.checker.whole_scenes import Body, checked, codes, line, node, queues, quota, text_of

PRODUCT = "nvidia.com/gpu.product"
SXM, PCIE, L4 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-L4"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def copies(count: int, wish: str = "1", more: str = "") -> str:
    return f"steps: {{a: {{command: [x], gpu: {wish}, for_each: {{i: {{range: {count}}}}}{more}}}}}"


def of(name: str, product: str, gpus: int, **labels: str) -> Body:
    return node(name, gpus, labels={PRODUCT: product, **labels})


def site(tmp_path: Path, more: str) -> Site:
    path = tmp_path / "site.yaml"
    path.write_text(f"apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\n{more}\n")
    return Site.load(str(path))


def test_nodes_of_every_model_count_together() -> None:
    nodes = (of("n", SXM, 2), of("m", L4, 2))
    assert checked(copies(4), *nodes).verdict == "always"
    assert checked(copies(5), *nodes).verdict == "may-queue"
    assert checked(copies(4, "l4"), *nodes).verdict == "may-queue"
    assert checked(copies(1, "3"), *nodes).verdict == "never"


def test_nodes_that_the_catalog_does_not_know_count_as_well() -> None:
    assert checked(copies(1), of("n", "NVIDIA-Next-Year", 1)).verdict == "always"


def test_tainted_gpu_nodes_are_tolerated() -> None:
    assert checked(copies(1), node("n", 1, taints=[TAINT])).verdict == "always"


def test_every_flavor_of_the_queue_counts() -> None:
    flavors = [flavor("a100", nodeLabels={PRODUCT: SXM}), flavor("l4", nodeLabels={PRODUCT: L4})]
    split = queues({"a100": quota(2), "l4": quota(2)}, flavors=flavors)
    nodes = (of("n", SXM, 2), of("m", L4, 2))
    assert checked(copies(4, more=", queue: lq"), *split, *nodes).verdict == "always"
    assert checked(copies(5, more=", queue: lq"), *split, *nodes).verdict == "may-queue"
    assert checked(copies(3, "l4", ", queue: lq"), *split, *nodes).verdict == "may-queue"


def test_a_quota_counts_the_plain_resource() -> None:
    hard = {"requests.nvidia.com/gpu": "3"}
    limit = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "team-a"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": {"requests.nvidia.com/gpu": "0"}},
    }
    limit["metadata"]["namespace"] = checked(copies(1), of("n", L4, 8)).namespace
    report = checked(copies(4), limit, of("n", L4, 8))
    assert str(line(report, "ResourceQuota", "requests.nvidia.com/gpu").peak) == "4"
    assert report.verdict == "may-queue"


def test_nodes_that_are_shared_under_the_same_name_are_left_out(tmp_path: Path) -> None:
    """GPU Feature Discovery labels whole nodes too, with none: they must not be left out with the others."""
    here = site(tmp_path, "sharing: {resource: nvidia.com/gpu}")
    whole = of("n", L4, 1, **{"nvidia.com/gpu.sharing-strategy": "none"})
    shared = of("m", f"{L4}-SHARED", 4, **{"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    assert checked(copies(1), whole, shared, site=here).verdict == "always"
    assert checked(copies(1, "l4"), whole, shared, site=here).verdict == "always"
    assert checked(copies(2), whole, shared, site=here).verdict == "may-queue"
    assert checked(copies(1), shared, site=here).verdict == "never"


def test_nodes_that_are_cut_into_slices_of_the_same_name_are_left_out(tmp_path: Path) -> None:
    here = site(tmp_path, "mig: {strategy: single}")
    both = {"nvidia.com/mig.strategy": "single"}
    whole = of("n", SXM, 1, **both)
    cut = of("m", f"{SXM}-MIG-1g.10gb", 7, **both, **{"nvidia.com/gpu.slices.gi": "1"})
    assert checked(copies(1), whole, cut, site=here).verdict == "always"
    assert checked(copies(2), whole, cut, site=here).verdict == "may-queue"
    assert checked(copies(1), cut, site=here).verdict == "never"


def test_only_nodes_with_the_form_count() -> None:
    nodes = (of("n", SXM, 2), of("m", PCIE, 2))
    assert checked(copies(4, "a100-80gb"), *nodes).verdict == "always"
    assert checked(copies(2, "a100-80gb sxm"), *nodes).verdict == "always"
    assert checked(copies(3, "a100-80gb sxm"), *nodes).verdict == "may-queue"
    report = checked(copies(1, "a100-80gb sxm"), of("m", PCIE, 2))
    assert report.verdict == "never" and codes(report) == ["GF506"]
    assert "fits here, with as much GPU memory: a100-80gb (79.14 GiB)" in text_of(report, "GF506")
