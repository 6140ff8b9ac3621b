"""The pods that the spec says a run on KFP has: every reference filled in with the value it has in that run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.pod import pod_for
from gpuflow.site import Site
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, RunRef
from gpuflow.targets.kubeflow.build import ENGINE
from tests.targets.argo.cluster.known import Known, items
from tests.targets.argo.cluster.standins import VALUES

TEXT = "plain text, which no engine reads"
VALUES_HERE = {**VALUES, "string": TEXT}
"""What the stand-ins write. A value with tags or `$$` is read again on its way through KFP, as its guide says."""


@dataclass(frozen=True)
class KnownRun(Known):
    """The facts of one run, which KFP decides when it makes it."""

    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def text(self, ref: Ref) -> str:
        return self.facts[ref.field] if isinstance(ref, RunRef) else super().text(ref)


def facts_of(run: Mapping[str, Any], workflow: Mapping[str, Any]) -> dict[str, str]:
    """What a step of this run is told about it."""
    made = workflow["metadata"]["creationTimestamp"]
    return {"id": run["run_id"], "name": workflow["metadata"]["name"], "logical_date": made, "interval_end": made}


def specified_pods(known: Known, site: Site, leaves_out: Any) -> Iterator[dict[str, Any]]:
    """Every pod of a run, those of sub-pipelines included; `leaves_out(step, item)` says which copies have none."""
    pipeline: Pipeline = known.pipeline
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        if step.approval is not None:
            continue  # left out, with what is lost
        for item in items(step, known):
            if leaves_out(name, item):
                continue
            here = dataclasses.replace(known, item=item)
            if step.pipeline is None:
                yield pod_for(pipeline, name, site, here, ENGINE)
                continue
            given = {
                key: here.text(value) if isinstance(value, ParamRef | OutputRef | ItemRef) else text_of(value)
                for key, value in step.params.items()
            }
            inner = dataclasses.replace(here, pipeline=step.pipeline, given=given)
            yield from specified_pods(inner, site, leaves_out)
