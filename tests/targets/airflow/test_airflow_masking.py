"""Finding 17: what Airflow stores and shows of a task holds no secret that stands in the pod's plain text."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields

from gpuflow import Step
from gpuflow.airflow import GpuPodOperator, Pod, param, task, to_dag

from .playing import Stage

LITERAL, GIVEN, ADDRESS, OWN = "literal-hunter2", "given-hunter3", "address-hunter4", "own-hunter5"


def stored(operator: Any, **params: Any) -> str:
    """What a worker sends to the API server as rendered fields, as text."""
    operator.render_template_fields(Stage(params=params).context(operator))
    return json.dumps(_serialize_rendered_fields(operator))


def test_secrets_in_a_pod_are_masked_in_what_airflow_stores() -> None:
    env = [
        {"name": "DB_PASSWORD", "value": LITERAL},
        {"name": "HF_TOKEN", "value": param("token")},
        {"name": "TOKENIZERS_PARALLELISM", "value": "false-but-shown"},
        {"name": "PLAIN", "value": "plain-and-shown"},
    ]
    main = {"name": "main", "image": "i", "command": ["x", f"--store=s3://KEY:{ADDRESS}@bucket"], "env": env}
    with DAG(dag_id="d"):
        operator = GpuPodOperator(task_id="t", template=Pod(spec={"containers": [main]}))
    shown = stored(operator, token=GIVEN)
    for secret in (LITERAL, GIVEN, ADDRESS):
        assert secret not in shown
    assert "false-but-shown" in shown
    assert "plain-and-shown" in shown
    # The pod itself is as it was written.
    assert operator.template["spec"]["containers"][0]["env"][0]["value"] == LITERAL


def test_a_dag_that_is_read_at_parse_time_says_what_it_shows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "p.yaml").write_text(
        "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
        f"steps: {{a: {{image: i, command: [x], env: {{DB_PASSWORD: {LITERAL}}}}}}}\n"
    )
    with caplog.at_level(logging.WARNING, "gpuflow.airflow.dags"):
        to_dag(tmp_path / "p.yaml", namespace="ml")
    (said,) = (record.getMessage() for record in caplog.records if record.name == "gpuflow.airflow.dags")
    assert 'GF601 step "a": DB_PASSWORD is written in plain text' in said
    assert LITERAL not in said


def test_a_step_in_a_dag_of_ones_own_is_masked_too() -> None:
    with DAG(dag_id="d"):
        operator = task(Step(image="i", command=["x"], env={"DB_PASSWORD": OWN, "SHOWN": "shown"}), task_id="t")
    shown = stored(operator)
    assert OWN not in shown
    assert "DB_PASSWORD" in shown
