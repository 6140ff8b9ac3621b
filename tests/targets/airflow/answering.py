"""Answers approvals through Airflow's REST API: `python -m tests.targets.airflow.answering Approve|Reject|nothing`.

With `nothing` it only does what the scheduler does now and then: it ends the waits whose time is over.
"""

from __future__ import annotations

import sys
import time

from airflow.api_fastapi.app import create_app
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from fastapi.testclient import TestClient


def main(answer: str) -> None:
    with TestClient(create_app(apps="core")) as client:
        token = client.get("/auth/token").json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        scheduler = SchedulerJobRunner(job=Job())
        while True:
            time.sleep(0.5)
            if answer == "nothing":
                scheduler.check_awaiting_input_timeouts()
                continue
            asked = client.get("/api/v2/dags/~/dagRuns/~/hitlDetails", headers=headers).raise_for_status().json()
            for one in asked["hitl_details"]:
                ti = one["task_instance"]
                if one["response_received"] or ti["state"] not in ("awaiting_input", "deferred"):
                    continue
                place = f"/api/v2/dags/{ti['dag_id']}/dagRuns/{ti['dag_run_id']}/taskInstances/{ti['task_id']}"
                told = client.patch(
                    f"{place}/{ti['map_index']}/hitlDetails", headers=headers, json={"chosen_options": [answer]}
                )
                print("ANSWERED", ti["task_id"], told.status_code, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
