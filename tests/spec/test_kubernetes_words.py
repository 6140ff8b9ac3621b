"""Words of Kubernetes in the wrong place are answered with the spec's own word, or with the hatch.

Tests gpuflow/kubernetes/pod_fields.py.
"""

from __future__ import annotations

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.kubernetes.pod_fields import fields_of
from gpuflow.spec.loading import loads
from gpuflow.spec.step import Step

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: 'i:1'}\n"


def hint(text: str) -> str:
    with pytest.raises(GpuflowError) as refusal:
        loads(HEAD + text)
    (finding,) = refusal.value.findings
    assert finding.code == "GF113"
    return finding.hint or ""


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("nodeSelector", "write kubernetes: {node_selector: {…}}"),
        ("node_selector", "write kubernetes: {node_selector: {…}}"),
        ("tolerations", "write kubernetes: {tolerations: [{…}]}"),
        ("imagePullPolicy", "write image_pull_policy: …"),
        ("envFrom", "write env_from: [{secret: …}]"),
        ("resources", "write cpu: 4, memory: 16Gi and gpu: …; other extended resources: kubernetes: {resources: {…}}"),
        ("volumeMounts", "write volumes: {/data: {claim: …}}, by the path of the mount"),
        ("securityContext", "write security: {user: …, read_only_root: true, …}"),
        ("hostPath", "write volumes: {/data: {host_path: …}}"),
        ("host_path", "write volumes: {/data: {host_path: …}}"),
        ("restartPolicy", "write retry: 3"),
        ("hostPID", "write kubernetes: {merge: {spec: {hostPID: …}}}"),
        ("shareProcessNamespace", "write kubernetes: {merge: {spec: {shareProcessNamespace: …}}}"),
        ("tty", "write kubernetes: {merge: {spec: {containers: [{name: main, tty: …}]}}}"),
    ],
)
def test_in_a_step_and_in_defaults(word: str, instead: str) -> None:
    assert hint(f"steps: {{a: {{command: [x], {word}: y}}}}") == instead
    with pytest.raises(GpuflowError) as refusal:
        loads(HEAD.replace("{image", f"{{{word}: y, image") + "steps: {a: {command: [x]}}")
    assert refusal.value.findings[0].hint == instead


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("hostPath", "write host_path: /path/on/the/node"),
        ("persistentVolumeClaim", "write claim: …"),
        ("emptyDir", "write empty_dir: 10Gi"),
        ("configMap", "write config_map: …"),
        ("readOnly", "write read_only: true"),
        ("subPath", "write sub_path: …"),
        ("mountPath", "write volumes: {/path: {…}}: the path is the key"),
    ],
)
def test_in_a_volume(word: str, instead: str) -> None:
    assert hint(f"steps: {{a: {{command: [x], volumes: {{/d: {{claim: c, {word}: y}}}}}}}}") == instead


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("nodeSelector", "write node_selector: …"),
        ("hostIPC", "write host_ipc: true"),
        ("topologySpreadConstraints", "write topology_spread: [{…}]"),
        ("hostPID", "write merge: {spec: {hostPID: …}}"),
        ("podSpecPatch", "write merge: {spec: {…}}"),
    ],
)
def test_in_the_hatch(word: str, instead: str) -> None:
    assert hint(f"steps: {{a: {{command: [x], kubernetes: {{{word}: y}}}}}}") == instead


def test_at_the_top_of_a_pipeline() -> None:
    assert hint("nodeSelector: {}\nsteps: {a: {command: [x]}}").startswith("in a step or in defaults, write kubernetes")


@pytest.mark.parametrize("word", sorted({*fields_of("PodSpec"), *fields_of("Container")} - set(Step.model_fields)))
def test_every_field_of_a_pod_and_a_container_gets_an_answer(word: str) -> None:
    if word not in ("name",):
        assert hint(f"steps: {{a: {{command: [x], {word}: y}}}}").startswith("write ")


def test_a_misspelled_word_of_the_spec_is_still_corrected() -> None:
    assert hint("steps: {a: {command: [x], retyr: 3}}") == 'did you mean "retry"?'
