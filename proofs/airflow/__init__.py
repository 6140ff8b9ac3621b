"""Three DAGs on a real Airflow with a real cluster; proofs/airflow.md says what is shown."""
