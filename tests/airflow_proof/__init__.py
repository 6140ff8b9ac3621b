"""Three DAGs on a real Airflow with a real cluster; docs/design/airflow-proof.md says what is shown."""
