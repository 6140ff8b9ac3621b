"""The smoke part of the proof: a dozen workflows on a control plane with a real Argo controller and no node."""

from __future__ import annotations

import pytest
import yaml

from proofs.readers import generated
from proofs.readers.__main__ import furnished, play
from proofs.readers.case import NAME, Case, leaf_of, leaf_read, prepared
from proofs.readers.playing import is_wanted
from proofs.readers.proving import Result, line
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import private_cluster, proof_ground, pytest_runtest_setup

__all__ = ["private_cluster", "proof_ground", "pytest_runtest_setup"]
SEED = 1
NUMBERS = (1, 3, 4, 5, 6, 7, 14, 40)


def _own(name: str, *templates: str, **spec: object) -> Case:
    head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": NAME}}
    found = [yaml.safe_load(each) for each in templates]
    return Case(name, prepared({**head, "spec": {"entrypoint": found[0]["name"], "templates": found, **spec}}))


POD = "{name: pod, container: {image: i}}"
OWN = (
    _own("fan-out", "{name: main, steps: [[{name: a, template: pod, withSequence: {count: '5'}}]]}", POD),
    _own("limit", "{name: main, steps: [[{name: a, template: pod, withSequence: {count: '5'}}]]}", POD, parallelism=2),
    _own(
        "diamond",
        "{name: main, dag: {tasks: [{name: a, template: pod}, {name: b, template: pod, dependencies: [a]},"
        " {name: c, template: pod, dependencies: [a]}, {name: d, template: pod, dependencies: [b, c]}]}}",
        POD,
    ),
    _own(
        "daemon",
        "{name: main, steps: [[{name: a, template: server}], [{name: b, template: pod}, {name: c, template: pod}]]}",
        POD,
        "{name: server, daemon: true, container: {image: i}}",
    ),
)


@pytest.mark.control_plane
def test_a_dozen_workflows_never_exceed_their_peak_and_reach_it_where_it_is_exact(private_cluster: Cluster) -> None:
    cases = [*OWN, *(generated.case(SEED, number) for number in NUMBERS)]
    private_cluster.ensure("argo")
    found: list[Result] = []
    with furnished(private_cluster):
        play(private_cluster, cases, SEED, len(cases), found.append)
    assert {each["name"] for each in found} == {case.name for case in cases}
    assert [line(each) for each in found if each["exceeded"]] == []
    assert sum(bool(each["exact"]) for each in found) > len(found) // 2
    # Random ones need luck with the order in which a busy machine ends their pods.
    simple = {case.name for case in OWN}
    assert [line(each) for each in found if each["missed"] and each["name"] in simple] == []


@pytest.mark.parametrize(
    ("node", "step"),
    [
        ("wf", "main"),
        ("wf[0].a(1:x)", "main.a"),
        ("wf.n[1].a(0)", "main.n.a"),
        ("wf.onExit[0].c", "onExit.c"),
        ("wf.hooks.running", "hook-running"),
        ("wf[0].a.hooks.running", "main.a.hook-running"),
    ],
)
def test_a_pod_of_argo_is_found_under_the_readers_name(node: str, step: str) -> None:
    assert leaf_of(node)[0] == leaf_read(step)[0]


def test_items_that_differ_are_told_apart_and_equal_ones_are_not() -> None:
    steps = ["main.a(0)", "main.a(1)"]
    assert is_wanted("wf[0].a(1:gpus:2)", ["main.a(1)"], steps)
    assert is_wanted("wf[0].a(2:gpus:2)", ["main.a(1)"], steps)
    assert not is_wanted("wf[0].a(0:gpus:1)", ["main.a(1)"], steps)
