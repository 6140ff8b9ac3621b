"""Outputs as Airflow's own images write them (`outputs_from: xcom`): what they cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.spec.step import Step

WHOLE = "return_value"
"""The output that is the whole file, not an entry of the map in it: what Airflow calls the value of a task."""
Fault = tuple[str, tuple[str, ...], str]
"""Message, place in the step, way out."""


def xcom_faults(step: Step) -> Iterator[Fault]:
    """What only the supervisor does, in a step whose program writes its outputs itself."""
    if step.outputs_from is None or not step.outputs:
        return
    for name, output in step.outputs.items():
        if output.is_artifact:
            text = f'the output "{name}" is a {output.type}, which gpuflow-run keeps at its uri; return.json has values'
            yield text, ("outputs", name), "let the program keep it, and write its place as a string"
        elif output.path is not None:
            text = f'the output "{name}" has a path, and nobody reads it: the program writes return.json itself'
            yield text, ("outputs", name, "path"), "remove path, or outputs_from"
    if WHOLE in step.outputs and len(step.outputs) > 1:
        text = f'"{WHOLE}" is the whole of return.json, and the step has other outputs beside it'
        yield text, ("outputs", WHOLE), f"keep {WHOLE} alone, or name the entries of the map"
    if any(given.is_fetched for given in step.inputs.values()):
        text = "inputs need gpuflow-run, which hands over the outputs too"
        hint = "write each output to $GPUFLOW_OUTPUTS/<name>, and remove outputs_from (null, where defaults have it)"
        yield text, ("inputs",), hint
    if step.checkpoint is not None:
        text = "a checkpoint needs gpuflow-run, which hands over the outputs too: of an attempt that it finds done, "
        text += "nobody would write return.json again"
        hint = "write each output to $GPUFLOW_OUTPUTS/<name>, and remove outputs_from (null, where defaults have it)"
        yield text, ("outputs_from",), hint
