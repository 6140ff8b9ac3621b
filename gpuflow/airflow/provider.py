"""What Airflow learns about gpuflow when it looks for providers: operators, triggers, links and settings."""

from __future__ import annotations

from typing import Any

from gpuflow.core.version import __version__

NAME = "gpuflow"


def _option(description: str, example: str) -> dict[str, str]:
    more = {"version_added": "0.1.0", "type": "string", "example": example, "default": ""}
    return {"description": description, **more}


def get_provider_info() -> dict[str, Any]:
    """The entry point `apache_airflow_provider`."""
    return {
        "package-name": NAME,
        "name": NAME,
        "description": "GPU pipelines: described once, checked before they start, restarted after interruptions.",
        "versions": [__version__],
        "integrations": [{"integration-name": NAME}],
        "operators": [
            {
                "integration-name": NAME,
                "python-modules": [
                    f"gpuflow.airflow.{name}" for name in ("operator", "gang_operator", "tasks", "approvals")
                ],
            }
        ],
        "triggers": [
            {"integration-name": NAME, "python-modules": ["gpuflow.airflow.trigger", "gpuflow.airflow.gang_trigger"]}
        ],
        "extra-links": ["gpuflow.airflow.links.SourceLink"],
        "config": {
            NAME: {
                "description": "Settings of gpuflow.",
                "options": {
                    "source_url": _option(
                        "Where the repository of the pipelines can be browsed; tasks then link to the "
                        "line they were compiled from.",
                        "https://git.example.com/nlp/pipelines/blob/main",
                    ),
                    "notes_connection": _option(
                        "An HTTP connection to this Airflow's own API server, with a user who may edit "
                        "task instances: while a task waits, its note says why. Empty: only the log and the XCom "
                        "gpuflow_status do.",
                        "airflow_api",
                    ),
                    "deployment": _option(
                        "A name that no other Airflow has which shares a store or a namespace with this "
                        "one. Empty: an id that the first task keeps as the Variable gpuflow_deployment. Set it where "
                        "a database is a copy of another's; a run that is on its way when it changes starts anew.",
                        "production",
                    ),
                },
            }
        },
    }
