"""Finding 8: what each engine calls a run is unique over all installations of that engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

UNIQUE = {
    "argo": ("{{workflow.uid}}",),
    "kubeflow": ("metadata.labels['pipeline/runid']",),
    "airflow": ("{{ run_name(dag_run.dag_id, dag_run.run_id) }}", 'run_id()'),
}  # fmt: skip
USUAL = r"--run-id=(.{1,60})"
TOLD = {"kubeflow": r'fieldPath: "(.{1,60})"\n +name: GPUFLOW_RUN_RUN_ID'}
"""How an artifact names the run, where its command does not."""
HERE = Path(__file__).parent


@pytest.mark.parametrize("engine", UNIQUE)
def test_every_run_id_in_every_artifact_is_unique_to_its_engine(engine: str) -> None:
    files = [path for path in (HERE / engine / "golden").rglob("*") if path.is_file()]
    told = [found for path in files for found in re.findall(TOLD.get(engine, USUAL), path.read_text("utf-8"))]
    assert told
    for words in told:
        assert words.startswith(UNIQUE[engine]) or words.removeprefix('", ').startswith(UNIQUE[engine]), words
