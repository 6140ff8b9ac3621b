"""Airflow 3: a pipeline becomes a DAG file that imports `gpuflow.airflow` and needs no YAML beside it.

Writing the file imports nothing of Airflow.
"""

from __future__ import annotations

from gpuflow.targets.airflow.capabilities import CAPABILITIES
from gpuflow.targets.airflow.dag import dag_of
from gpuflow.targets.airflow.facts import FACTS
from gpuflow.targets.airflow.standalone import refuse_losses, standalone
from gpuflow.targets.airflow.text import dag_file
from gpuflow.targets.frame import Artifact, Request, Target


class Airflow(Target):
    """One DAG file per pipeline."""

    facts = FACTS
    capabilities = CAPABILITIES

    def compile(self, request: Request) -> Artifact:
        """The DAG file; with the option `standalone` one that imports nothing of gpuflow."""
        alone = request.options.get("standalone") == "true"
        if alone:
            refuse_losses(request.pipeline)
        dag = dag_of(request)
        text = dag_file(standalone(dag) if alone else dag, request)
        return Artifact(f"{request.pipeline.name.replace('-', '_')}.py", text)


target = Airflow()
