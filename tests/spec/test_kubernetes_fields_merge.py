"""`kubernetes: {merge: …}`: what is refused where it is written, with its place and the way out."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.pod import pod_for
from gpuflow.site import Site
from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.remarks import exposed_secrets

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: 'i:1'}\n"


def loaded(patch: str) -> Pipeline:
    return loads(HEAD + f"steps: {{a: {{command: [x], kubernetes: {{merge: {patch}}}}}}}", "p.yaml")


@pytest.mark.parametrize(
    ("patch", "code", "message", "hint"),
    [
        ("{hostPID: true}", "GF371", "merge has no 'hostPID'", "write spec: {hostPID: …}"),
        ("{spec: {node_selector: {}}}", "GF371", "spec has no 'node_selector'", "write nodeSelector: merge takes"),
        ("{spec: {tty: true}}", "GF371", "spec has no 'tty'", "write containers: [{name: main, tty: …}]"),
        ("{spec: {hostPID: 'yes'}}", "GF371", "hostPID is true or false", "write true or false"),
        ("{spec: {containers: [{name: main, env: [{name: A, value: 1}]}]}}", "GF371", "value is text", "in quotes"),
        ("{spec: {tolerations: {key: k}}}", "GF371", "tolerations is a list", "as in a Kubernetes manifest"),
        ("{spec: {restartPolicy: Always}}", "GF372", "spec.restartPolicy", "write retry in the step"),
        ("{spec: {activeDeadlineSeconds: 5}}", "GF372", "spec.activeDeadlineSeconds", "write timeout in the step"),
        ("{spec: {nodeName: n}}", "GF372", "spec.nodeName", "node_selector"),
        ("{spec: {containers: [{name: main, image: j}]}}", "GF372", "image of main", "write image in the step"),
        ("{spec: {containers: [{name: main, resources: {}}]}}", "GF372", "resources of main", "write cpu, memory, gpu"),
        ("{spec: {containers: [{name: log}]}}", "GF372", "the list of containers (log)", "write sidecars"),
        ("{spec: {containers: [{name: main, env: [{name: GPUFLOW_X}]}]}}", "GF372", "GPUFLOW_X", "take it out"),
        ("{metadata: {name: n}}", "GF372", "metadata.name", "take it out"),
        ("{metadata: {labels: {kueue.x-k8s.io/queue-name: q}}}", "GF372", "queue-name", "write queue in the step"),
        ("{metadata: {labels: {gpuflow.dev/step: q}}}", "GF372", "gpuflow.dev/step", "take it out"),
        ("{spec: {volumes: [{emptyDir: {}}]}}", "GF376", "an entry of volumes has no name", "add name: …"),
        ("{spec: {$patch: merge}}", "GF376", "$patch 'merge'", "use one of the two"),
        ("{spec: {$setElementOrder/volums: []}}", "GF376", "does not fit here", 'did you mean "volumes"?'),
    ],
)
def test_what_is_refused(patch: str, code: str, message: str, hint: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        loaded(patch)
    (finding,) = refusal.value.findings
    assert finding.code == code
    assert message in finding.message
    assert hint in (finding.hint or "")
    assert finding.where.line == 5
    assert (finding.where.column or 0) > len("steps: {a: {command: [x], kubernetes: {merge: ") - 2


def test_a_patch_comes_back_from_the_canonical_form_as_it_was() -> None:
    patch: Any = {"spec": {"hostPID": True, "tolerations": None, "volumes": [{"name": "v", "$patch": "delete"}]}}
    pipeline = loaded(yaml.safe_dump(patch, default_flow_style=True).strip())
    hatch = pipeline.steps["a"].kubernetes
    assert hatch is not None
    assert hatch.merge == patch
    assert loads(to_yaml(pipeline)) == pipeline


def test_a_secret_in_plain_text_in_a_patch_is_warned_of() -> None:
    made = loaded(
        "{spec: {containers: [{name: main, env: [{name: AWS_SECRET_ACCESS_KEY, value: abcdefghij0123456789}]}]}}"
    )
    (finding,) = exposed_secrets(made)
    assert (finding.code, finding.where.line) == ("GF601", 5)
    assert "abcdefghij" not in finding.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "metadata", "containers", "name", "env", "volumes", "$patch", "labels", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["spec", "metadata", "$patch", "y"]), json_values, max_size=2))
def test_no_patch_ends_in_a_traceback(patch: dict[str, Any]) -> None:
    step = {"image": "i:1", "command": ["x"], "kubernetes": {"merge": patch}}
    with contextlib.suppress(GpuflowError):
        pod_for(Pipeline("p", steps={"a": step}), "a", Site.load("nvidia"))
