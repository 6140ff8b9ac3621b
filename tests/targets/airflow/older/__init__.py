"""Standalone DAG files on Airflows that gpuflow.airflow does not run on: by hand, with `make prove-airflow-older`."""
