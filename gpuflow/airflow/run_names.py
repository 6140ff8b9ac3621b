"""What a run is called in stores and in Kubernetes: unique over all Airflows, the same for all its tasks and tries.

Two Airflows give their scheduled runs the same ids, and nothing that a task sees of a run's own record is unique and
stays (`start_date` changes when a run is cleared, the task instance's id with every try). So each Airflow has a name.

A standalone DAG file holds both functions as text: they import what they need, and nothing of gpuflow.
"""

from __future__ import annotations


def run_name(dag_id: str, run_id: str) -> str:
    """A short name of the run, safe in paths and in Kubernetes names. Airflow's own id holds colons and plus signs."""
    import hashlib

    whole = f"{deployment()}/{dag_id}/{run_id}"
    return f"r{hashlib.sha256(whole.encode()).hexdigest()[:15]}"


def deployment() -> str:
    """What tells this Airflow from others: `[gpuflow] deployment`, or an id that its first task keeps as a Variable."""
    import time
    import uuid

    from airflow.providers.common.compat.sdk import AirflowException, conf
    from airflow.sdk import Variable

    key, hint = "gpuflow_deployment", "or set [gpuflow] deployment in airflow.cfg"
    name = str(conf.get("gpuflow", "deployment", fallback="") or "").strip()
    if name:
        return name

    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetVariable
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    # Variable.get also says "not there" when the API server, or a secrets manager that is asked before it, is only out
    # of reach, and a second id would part every run from its checkpoints. So each is asked where its refusal is heard.
    server = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if server is None:  # no task runs: `airflow tasks render`, which has the database and no API server
        from airflow.models import Variable as Stored

        name = Stored.get(key, default_var=None)
        if name:
            return str(name)
        raise AirflowException(f"there is no Variable {key} before the first task has run: create it, {hint}")
    try:
        name = Variable.get(key, default=None)
        if name:
            return str(name)
        for backend in ensure_secrets_backend_loaded():
            backend.get_variable(key=key)
        answer = server.send(GetVariable(key=key))
    except Exception as refusal:
        raise AirflowException(f"the Variable {key} cannot be read now: try again, {hint}") from refusal
    if getattr(answer, "error", None) != ErrorType.VARIABLE_NOT_FOUND:
        raise AirflowException(f"the Variable {key} cannot be read now: try again, {hint}")
    try:
        Variable.set(key, uuid.uuid4().hex, description="Tells this Airflow from others that share a store. Keep it.")
        time.sleep(2)  # of several first tasks at once the last one to write decides for all
        name = Variable.get(key, default=None)
    except Exception as refusal:
        raise AirflowException(f"the Variable {key} cannot be kept: create it, {hint}") from refusal
    if not name:
        raise AirflowException(f"the Variable {key} cannot be kept: create it, {hint}")
    return str(name)
