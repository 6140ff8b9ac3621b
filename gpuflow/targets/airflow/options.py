"""Airflow's own options of `gpuflow compile`."""

from __future__ import annotations

from dataclasses import dataclass

from gpuflow.targets.options import option


@dataclass(frozen=True, slots=True)
class AirflowOptions:
    """What may be asked of a DAG file."""

    pools: bool = option("--pools", "put GPU tasks in pools (gpuflow airflow pools)")
    standalone: bool = option("--standalone", "a DAG file that does not import gpuflow")
    airflow: str | None = option(
        "--airflow", "with --standalone: for an older Airflow, 2.10, 2.11, 3.0 or 3.1", metavar="VERSION"
    )
