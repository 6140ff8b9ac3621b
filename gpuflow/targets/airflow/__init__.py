"""Airflow 3: a pipeline becomes a DAG file that imports `gpuflow.airflow` and needs no YAML beside it.

Writing the file imports nothing of Airflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuflow.core.errors import fail
from gpuflow.pod.launcher import AIRFLOW_ACCOUNTS, airflow_role
from gpuflow.site import Site
from gpuflow.targets.airflow.dag import dag_of
from gpuflow.targets.airflow.dag_file import dag_file
from gpuflow.targets.airflow.facts import CAPABILITIES, FACTS, AirflowOptions
from gpuflow.targets.airflow.refusals import NOTES, REFUSALS, file_of
from gpuflow.targets.airflow.standalone import for_version, import_homes, standalone
from gpuflow.targets.target import Artifact, Request, Target


class Airflow(Target):
    """One DAG file per pipeline; with --standalone one that does not import gpuflow."""

    facts = FACTS
    capabilities = CAPABILITIES
    options = AirflowOptions
    refusal_rules = REFUSALS
    note_rules = NOTES
    run_values = (
        "Airflow checks a parameter against its type, enum, min and max when a run is started. What reaches a pod is "
        "text that the kubelet does not expand: `$` is doubled where it would mean something."
    )
    folder = "dags/"
    first_run = "put dags/my_pipeline.py where your Airflow reads DAGs; gpuflow must be installed there too"

    def gang_account(self, site: Site, namespace: str | None, accounts: Sequence[str] | None) -> list[dict[str, Any]]:
        """What Airflow's own accounts must be allowed where gangs run."""
        given = [account.partition("/") for account in accounts or AIRFLOW_ACCOUNTS]
        for home, _, name in given:
            if not home or not name:
                text = f"--account {home}{name}: an account is written NAMESPACE/NAME"
                raise fail("GF388", text, hint="write it like airflow/airflow-worker")
        return airflow_role([(home, name) for home, _, name in given], namespace, site.gangs.made_as)

    def compile(self, request: Request) -> tuple[Artifact, ...]:
        dag, options = dag_of(request), request.options_as(AirflowOptions)
        if options.standalone:
            dag = for_version(standalone(dag), options.airflow)
        text = dag_file(dag, request, import_homes(options.airflow))
        return (Artifact(file_of(request.pipeline.name), text),)


target = Airflow()
