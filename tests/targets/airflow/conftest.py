"""What the tests of the operator share: a stand-in for the API server, and a maker of operators that ask it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .stand_in import StandIn


@pytest.fixture(autouse=True)
def deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run a task without an Airflow around it have no API server to ask for the Airflow's own id."""
    monkeypatch.setenv("AIRFLOW__GPUFLOW__DEPLOYMENT", "tests")


@pytest.fixture(scope="session", autouse=True)
def few_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One authority that is trusted instead of the machine's hundred and fifty.

    Each client of an API server reads them all when it is made, which was half of what a task costs here. The stand-in
    speaks plain HTTP, and a kubeconfig of a cluster brings its own authority.
    """
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    with pytest.MonkeyPatch.context() as patch:
        if trusted:
            file = tmp_path_factory.mktemp("trusted") / "one.pem"
            file.write_text(ssl.DER_cert_to_PEM_cert(trusted[0]))
            patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as server:
        yield server


@pytest.fixture
def maker(server: StandIn, tmp_path: Path) -> Callable[..., Callable[[], Any]]:
    """`maker(failures=1)` gives a function that makes the same operator again and again."""
    # Here, because the tests on a cluster share this file and run where Airflow is not installed.
    from gpuflow.airflow import GpuPodOperator

    from .playing import POD

    kubeconfig = str(server.kubeconfig(tmp_path))

    def of(**arguments: Any) -> Callable[[], Any]:
        settings = {
            "task_id": "train",
            "namespace": "ml",
            "template": POD,
            "config_file": kubeconfig,
            "in_cluster": False,
            "kubernetes_conn_id": None,
            "poll_interval": 0.01,
        }
        return lambda: GpuPodOperator(**{**settings, **arguments})

    return of
