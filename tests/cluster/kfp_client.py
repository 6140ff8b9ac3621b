"""kfp's own client behind a pipe: `python kfp_client.py HOST`, one JSON request and one JSON answer per line.

It runs in the environment that has kfp, in the network that KFP is in, and imports nothing of this project. A request
names a method of `Calls` and its arguments; an answer holds `value`, or `error` with what kfp or the server said.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

import kfp
import kfp_server_api


class Calls:
    """What the tests ask of a KFP, in the words of kfp.Client."""

    def __init__(self, host: str) -> None:
        self.client = kfp.Client(host=host)
        self.plain = kfp_server_api.ApiClient()

    def experiment(self, name: str) -> str:
        return str(self.client.create_experiment(name).experiment_id)

    def run(self, file: str, **named: Any) -> str:
        """Start a compiled file; the id of the run."""
        return str(self.client.create_run_from_pipeline_package(file, **named).run_id)

    def get(self, run: str) -> dict[str, Any]:
        """The run as the API has it, its tasks included and its specification left out."""
        found: dict[str, Any] = self.plain.sanitize_for_serialization(self.client.get_run(run))
        found.pop("pipeline_spec", None)
        return found

    def states(self, runs: list[str]) -> dict[str, str]:
        return {run: str(self.client.get_run(run).state) for run in runs}

    def terminate(self, run: str) -> None:
        self.client.terminate_run(run)

    def delete(self, run: str) -> None:
        self.client.delete_run(run)

    def recurring(self, file: str, experiment: str, **named: Any) -> str:
        """Make a recurring run of a compiled file; its id."""
        named = {"experiment_id": self.experiment(experiment), "pipeline_package_path": file, **named}
        return str(self.client.create_recurring_run(**named).recurring_run_id)

    def paste(self, lines: list[str], folder: str) -> dict[str, Any]:
        """Run lines as a person would after `client = kfp.Client(...)`; what the last call gave."""
        os.chdir(folder)
        known: dict[str, Any] = {"client": self.client}
        exec("\n".join([*lines[:-1], f"answer = {lines[-1]}"]), known)
        found: dict[str, Any] = self.plain.sanitize_for_serialization(known["answer"])
        found.pop("pipeline_spec", None)
        return found

    def runs_of(self, recurring: str, experiment: str) -> list[str]:
        """The runs that a recurring run has started."""
        found = self.client.list_runs(experiment_id=self.experiment(experiment), page_size=100).runs or []
        return [str(run.run_id) for run in found if run.recurring_run_id == recurring]

    def end_recurring(self, recurring: str) -> None:
        self.client.delete_recurring_run(recurring)

    def call(self, method: str, **named: Any) -> Any:
        """Any other method of the client."""
        return self.plain.sanitize_for_serialization(getattr(self.client, method)(**named))


def main() -> None:
    calls = Calls(sys.argv[1])
    print(json.dumps({"value": "ready"}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                answer = {"value": getattr(calls, request.pop("do"))(**request)}
        except Exception as error:  # the caller decides what a refusal means
            words = getattr(error, "body", None) or str(error)
            answer = {"error": f"{type(error).__name__}: {words}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
