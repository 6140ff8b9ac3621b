"""Compiled pipelines on a running Argo: the examples to their end, and budgets under every kind of interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpuflow.pod import pod_for
from gpuflow.site import Site
from gpuflow.spec.loading import loads

from ...cluster.cluster import Cluster
from ...cluster.conftest import argo, cluster, control_plane, kueue, private_cluster, proof_ground
from ...cluster.fixtures import AnyCluster
from .cluster.contract import SUCCEEDED, Sequence, possible, promised
from .cluster.examples import EXAMPLES
from .cluster.plays import SPOT, STEP, Seen, pipeline, play
from .cluster.rehearsal import Rehearsal, rehearse
from .cluster.sequences import DISTURBED, FALLS_BACK, FALSE_GREEN, GROWS, SEQUENCES
from .cluster.stage import stage

__all__ = ["argo", "cluster", "control_plane", "kueue", "private_cluster", "proof_ground"]
pytestmark = pytest.mark.cluster

Played = dict[str, Seen]
EXAMPLE_NAMES = [example.name for example in EXAMPLES]


def each(sequences: tuple[Sequence, ...], *, supervised: bool) -> pytest.MarkDecorator:
    """A test for each of these sequences that is, or is not, supervised."""
    chosen = [sequence for sequence in sequences if (sequence.care != "none") == supervised]
    return pytest.mark.parametrize("sequence", chosen, ids=[sequence.name for sequence in chosen])


@pytest.fixture(scope="module")
def rehearsed(private_cluster: Cluster, argo: AnyCluster, kueue: AnyCluster) -> dict[str, Rehearsal]:
    """Every example, run once."""
    with stage(private_cluster) as place:
        return rehearse(place, EXAMPLES)


@pytest.fixture(scope="module")
def played(private_cluster: Cluster, argo: AnyCluster) -> Played:
    """All sequences under Argo's default settings, which may miss how a deleted pod ended."""
    with stage(private_cluster) as place:
        return play(place, SEQUENCES)


@pytest.fixture(scope="module")
def played_attentively(private_cluster: Cluster, argo: AnyCluster) -> Iterator[Played]:
    """Those in which pods are taken away, under the setting that lets Argo see how every deleted pod ended."""
    private_cluster.restart("workflow-controller", env={"ARGO_POD_STATUS_CAPTURE_FINALIZER": "true"})
    try:
        with stage(private_cluster) as place:
            yield play(place, (*DISTURBED, FALLS_BACK, GROWS, FALSE_GREEN))
    finally:
        private_cluster.restart("workflow-controller")


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_an_example_runs_to_its_end(name: str, rehearsed: dict[str, Rehearsal]) -> None:
    run = rehearsed[name]
    assert (run.phase, run.message) == (SUCCEEDED, "")
    assert {step: len(pods) for step, pods in run.live.items()} == {
        step: len(pods) for step, pods in run.specified.items()
    }


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_the_pods_of_an_example_are_the_specs_and_argos_written_additions(
    name: str, rehearsed: dict[str, Rehearsal]
) -> None:
    assert rehearsed[name].live == rehearsed[name].specified


@each(SEQUENCES, supervised=True)
def test_a_supervised_step_spends_its_budgets_as_the_spec_says(sequence: Sequence, played: Played) -> None:
    _spends_as_promised(sequence, played[sequence.name])


@each(DISTURBED, supervised=True)
def test_a_supervised_step_spends_the_same_when_argo_sees_how_pods_end(
    sequence: Sequence, played_attentively: Played
) -> None:
    _spends_as_promised(sequence, played_attentively[sequence.name])


def _spends_as_promised(sequence: Sequence, seen: Seen) -> None:
    print(f"{sequence} promised {promised(sequence)}, seen {seen}")
    assert seen.end == promised(sequence)
    assert seen.overlaps == [], "it ran twice at once"
    assert seen.done == (seen.end.phase == SUCCEEDED), "green and success are not the same"


@each(SEQUENCES, supervised=False)
def test_a_step_without_a_supervisor_ends_as_the_guide_says(sequence: Sequence, played: Played) -> None:
    _ends_as_named(sequence, played[sequence.name], attentive=False)


@each(DISTURBED, supervised=False)
def test_a_step_without_a_supervisor_ends_in_one_way_when_argo_sees_how_pods_end(
    sequence: Sequence, played_attentively: Played
) -> None:
    assert len(possible(sequence, attentive=True)) == 1
    _ends_as_named(sequence, played_attentively[sequence.name], attentive=True)


def _ends_as_named(sequence: Sequence, seen: Seen, *, attentive: bool) -> None:
    expected = possible(sequence, attentive=attentive)
    print(f"{sequence} possible {expected}, seen {seen}")
    assert (seen.end.phase, seen.end.starts) in expected
    assert seen.overlaps == [], "it ran twice at once"
    assert seen.done == (seen.end.phase == SUCCEEDED), "green and success are not the same"


def test_without_a_supervisor_exit_0_after_sigterm_passes_for_success(played_attentively: Played) -> None:
    """Argo has nothing else to go by. It is why steps with a checkpoint or an interruption budget are supervised."""
    seen = played_attentively[FALSE_GREEN.name]
    assert (seen.end.phase, seen.done) == (SUCCEEDED, False)


def test_a_step_leaves_spot_nodes_after_so_many_interruptions(played_attentively: Played) -> None:
    seen = played_attentively[FALLS_BACK.name]
    _spends_as_promised(FALLS_BACK, seen)
    on_spot, on_demand = (_affinity(policy) for policy in (FALLS_BACK, replace(FALLS_BACK, spot={"mode": "never"})))
    assert on_spot != on_demand
    assert [pod.get("affinity") for pod in seen.pods] == [on_spot, on_spot, on_demand]


def _affinity(sequence: Sequence) -> Any:
    """Where the spec puts the step of a sequence."""
    site = Site.model_validate({"name": "stage", "spot": {"labels": SPOT}})
    return pod_for(loads(pipeline(sequence, "image"), "play.yaml"), STEP, site)["spec"].get("affinity")


def test_a_step_that_ran_out_of_memory_gets_more_and_never_above_the_most(played_attentively: Played) -> None:
    seen = played_attentively[GROWS.name]
    _spends_as_promised(GROWS, seen)
    mains = [container for pod in seen.pods for container in pod["containers"] if container["name"] == "main"]
    assert [main["resources"]["limits"]["memory"] for main in mains] == ["128Mi", "256Mi", "300Mi"]
