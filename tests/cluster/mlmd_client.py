"""What ML Metadata holds of a run, as one JSON text: `python mlmd_client.py HOST PORT RUN`.

It runs in the environment of locks/kubeflow-backend.txt, in the cluster's network, and imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from google.protobuf import json_format
from ml_metadata.metadata_store import MetadataStore
from ml_metadata.proto import metadata_store_pb2 as messages


def properties(of: Any) -> dict[str, Any]:
    """The custom properties of an artifact or an execution, each as plain data."""
    plain = json_format.MessageToDict(of, preserving_proto_field_name=True).get("custom_properties", {})
    return {name: next(iter(value.values())) for name, value in plain.items()}


def lineage(store: MetadataStore, run: str) -> list[dict[str, Any]]:
    """Each execution of the run with the artifacts it took and made, in the order in which they were recorded."""
    context = store.get_context_by_type_and_name("system.PipelineRun", run)
    if context is None:
        return []
    executions = {each.id: each for each in store.get_executions_by_context(context.id)}
    events = store.get_events_by_execution_ids(list(executions))
    known = {each.id: each for each in store.get_artifacts_by_id([event.artifact_id for event in events])}
    types = {each.id: each.name for each in store.get_artifact_types()}
    ways = {messages.Event.INPUT: "inputs", messages.Event.OUTPUT: "outputs"}
    rows: dict[int, dict[str, Any]] = {}
    for number, execution in sorted(executions.items()):
        about = properties(execution)
        rows[number] = {
            "id": number,
            "task": about.get("task_name") or about.get("display_name", ""),
            "type": execution.type,
            "state": messages.Execution.State.Name(execution.last_known_state),
            "parameters": about.get("inputs", {}),
            "inputs": [],
            "outputs": [],
        }
    for event in events:
        if event.type not in ways:
            continue
        artifact = known[event.artifact_id]
        rows[event.execution_id][ways[event.type]].append(
            {
                "id": artifact.id,
                "name": event.path.steps[0].key,
                "type": types[artifact.type_id],
                "uri": artifact.uri,
                "properties": properties(artifact),
            }
        )
    return list(rows.values())


def main() -> None:
    host, port, run = sys.argv[1:]
    store = MetadataStore(messages.MetadataStoreClientConfig(host=host, port=int(port)))
    print(json.dumps(lineage(store, run)))


if __name__ == "__main__":
    main()
