"""The smoke part of the proof: a handful of rows on both engines, and the rows that need no node that runs pods.

The second runs in CI: etcd, API server and controllers are real, nodes are simulated, and what a kubelet would write is
written into the pods' status. Airflow's operator judges it.
"""

from __future__ import annotations

import pytest

from proofs.retries.contract import Case
from proofs.retries.ground import ground
from proofs.retries.on_airflow import ENVIRONMENT
from proofs.retries.rows import rows
from proofs.retries.running import Result, run
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import (
    argo,
    cluster,
    control_plane,
    kueue,
    private_cluster,
    proof_ground,
    pytest_runtest_setup,
)
from tests.cluster.fixtures import AnyCluster, lacking

__all__ = ["argo", "cluster", "control_plane", "kueue", "private_cluster", "proof_ground", "pytest_runtest_setup"]
NEED_NO_NODE = ("shutdown", "rejected", "pressure", "critical", "forbidden", "limits-missing")


def differences(cluster: Cluster, cases: list[Case]) -> dict[str, list[str]]:
    """What was not as promised, by case."""
    if not (ENVIRONMENT / "bin" / "airflow").exists():
        lacking("no Airflow in .venvs/airflow; make it: make .venvs/airflow/.ready")
    found: list[Result] = []
    with ground(cluster) as place:
        run(place, cases, found.append)
    assert {result["name"] for result in found} == {case.name for case in cases}
    return {result["name"]: result["differences"] for result in found if result["differences"]}


@pytest.mark.control_plane
def test_what_a_kubelet_writes_is_counted_as_the_table_says(private_cluster: Cluster) -> None:
    cases = [case for case in rows(("airflow",)) if case.name.removeprefix("row-airflow-") in NEED_NO_NODE]
    assert len(cases) == len(NEED_NO_NODE)
    assert differences(private_cluster, cases) == {}


@pytest.mark.cluster
def test_a_handful_of_rows_on_both_engines(private_cluster: Cluster, argo: AnyCluster, kueue: AnyCluster) -> None:
    assert differences(private_cluster, list(rows(smoke=True))) == {}
