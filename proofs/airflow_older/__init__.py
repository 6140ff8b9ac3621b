"""Standalone DAG files on Airflows that gpuflow.airflow does not run on: `python -m proofs airflow-older`."""
