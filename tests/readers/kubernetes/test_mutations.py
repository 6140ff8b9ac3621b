"""Whatever is written into a document, reading it gives an answer or one message: never anything else."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.demands import Demand
from gpuflow.quantity import Quantity
from tests.readers.kubernetes.reading import demand, read
from tests.readers.kubernetes.samples import GPU_POD, SAMPLES, pod

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "x", "25%", "1000%", "-1", "${trialParameters.lr}", "OnFailure", "Complete", "1e999", "9" * 5000]
    ),
    st.sampled_from([[], {}, [{}], [None], {"a": None}, [[1]], {"name": 1}, [{"name": "a"}, {"name": "a"}]]),
)


def places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in children:
        found += places(value, (*at, key))
    return found


def changed(tree: Any, at: tuple[Any, ...], value: Any, *, drop: bool) -> None:
    for key in at[:-1]:
        tree = tree[key]
    if drop:
        del tree[at[-1]]
    else:
        tree[at[-1]] = value


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_document_with_junk_in_it_is_read_or_refused(name: str, data: st.DataObject) -> None:
    documents = list(yaml.safe_load_all(SAMPLES[name].text))
    for _ in range(data.draw(st.integers(1, 3))):
        tree = data.draw(st.sampled_from(documents))
        open_places = [at for at in places(tree) if at not in (("kind",), ("apiVersion",))]
        if open_places:
            at = data.draw(st.sampled_from(open_places))
            changed(tree, at, deepcopy(data.draw(JUNK)), drop=data.draw(st.booleans()))
    found: list[Any] = []
    refused: list[Finding] = []
    try:
        found = read(yaml.safe_dump_all(documents))
    except GpuflowError as refusal:
        refused += refusal.findings
    assert all(finding.where.file and finding.where.line for finding in refused)
    for each in found:
        if isinstance(each, Demand):
            each.document()
            assert each.source is not None
            each.source.unsilenced_findings(each.source.warnings())


COUNTS = st.integers(0, 30)


@settings(max_examples=60, deadline=None)
@given(parallelism=COUNTS, completions=st.none() | COUNTS, queued=st.booleans())
def test_a_job_has_the_smaller_of_both_numbers(parallelism: int, completions: int | None, queued: bool) -> None:
    labels = ", labels: {kueue.x-k8s.io/queue-name: q}" if queued else ""
    more = "" if completions is None else f"\n  completions: {completions}"
    text = (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j{labels}}}\nspec:\n  parallelism: {parallelism}{more}\n"
    )
    (found,) = read(f"{text}  template:\n{pod(4)}\n")
    by_hand = parallelism if completions is None else min(parallelism, completions)
    if not isinstance(found, Demand):
        assert by_hand == 0
        return
    assert found.peak["pods"].bound == "exact"
    assert found.peak["requests.nvidia.com/gpu"].value == Quantity(str(2 * by_hand))


JOBS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(jobs=JOBS)
def test_a_job_set_has_all_pods_of_all_its_jobs(jobs: list[tuple[int, int, int]]) -> None:
    template = yaml.safe_load(GPU_POD)
    listed = [
        {
            "name": f"j{number}",
            "replicas": replicas,
            "template": {"spec": {"parallelism": parallelism, "completions": completions, "template": template}},
        }
        for number, (replicas, parallelism, completions) in enumerate(jobs)
    ]
    spec = {"replicatedJobs": listed}
    tree = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "js"}, "spec": spec}
    (found,) = read(yaml.safe_dump(tree))
    by_hand = sum(replicas * min(parallelism, completions) for replicas, parallelism, completions in jobs)
    if isinstance(found, Demand):
        assert found.peak["pods"].value == Quantity(str(by_hand))
    else:
        assert by_hand == 0


@settings(max_examples=40, deadline=None)
@given(replicas=st.integers(1, 9), size=st.integers(1, 9))
def test_a_leader_worker_set_has_so_many_groups(replicas: int, size: int) -> None:
    text = SAMPLES["leader worker set"].text.replace("replicas: 2", f"replicas: {replicas}")
    peak = demand(text.replace("size: 4", f"size: {size}")).peak
    assert peak["pods"].value == Quantity(str(replicas * size))
    gpus = peak.get("requests.nvidia.com/gpu")
    assert (Quantity.zero if gpus is None else gpus.value) == Quantity(str(2 * replicas * (size - 1)))


@settings(max_examples=40, deadline=None)
@given(replicas=st.integers(0, 9), most=st.integers(0, 9), hosts=st.integers(1, 4))
def test_a_ray_cluster_grows_to_the_maximum_of_its_groups(replicas: int, most: int, hosts: int) -> None:
    text = SAMPLES["ray cluster that scales"].text.replace(
        "replicas: 1", f"replicas: {replicas}\n    numOfHosts: {hosts}"
    )
    pods = demand(text.replace("maxReplicas: 5", f"maxReplicas: {most}")).peak["pods"]
    assert pods.value == Quantity(str(1 + most * hosts))
    assert pods.bound == ("exact" if replicas >= most else "at-most")
