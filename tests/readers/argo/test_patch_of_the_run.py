"""A podSpecPatch that is nothing but a value of the run, as Kubeflow's compiler writes it.

Tests gpuflow/readers/argo/pods.py.
"""

from __future__ import annotations

import json

import pytest

from gpuflow.core import yaml_tree
from gpuflow.demands import Demand
from gpuflow.readers import Options, documents_of, foreign_in
from gpuflow.site import Site

TEXT = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: w-}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: driver, template: driver}
      - name: run
        template: impl
        depends: driver.Succeeded
        arguments: {parameters: [{name: patch, value: "{{tasks.driver.outputs.parameters.patch}}"}]}
  - name: driver
    container: {image: d}
    outputs: {parameters: [{name: patch, valueFrom: {path: /tmp/patch}}]}
  - name: impl
    inputs: {parameters: [{name: patch}]}
    podSpecPatch: "{{inputs.parameters.patch}}"
    container: {image: i, command: [run]}
"""


def test_the_pod_is_counted_and_what_it_asks_for_is_unknown() -> None:
    foreign, _ = foreign_in(documents_of(yaml_tree.parse_all(TEXT, "w.yaml"), "w.yaml"))
    demand = foreign[0].demand(Options(Site.load("nvidia")))
    assert isinstance(demand, Demand)
    assert [step.name for step in demand.steps] == ["main.driver", "main.run"]
    assert demand.refusals == ()
    bounds = {key: bound.bound for key, bound in demand.peak.items()}
    assert bounds["pods"] == "exact"
    assert {bounds[key] for key in ("requests.cpu", "limits.memory", "requests.nvidia.com/gpu")} == {"unknown"}
    assert any(part.is_placement for part in demand.unseen)


VALUE = "{{inputs.parameters.patch}}"
AMOUNTS = frozenset({"cpu", "memory", "nvidia.com/gpu"})


def patched(patch: str, value: str = "{{tasks.driver.outputs.parameters.patch}}") -> Demand:
    written = TEXT.replace(f'podSpecPatch: "{VALUE}"', f"podSpecPatch: {json.dumps(patch)}")
    written = written.replace('"{{tasks.driver.outputs.parameters.patch}}"', json.dumps(value))
    foreign, _ = foreign_in(documents_of(yaml_tree.parse_all(written, "w.yaml"), "w.yaml"))
    demand = foreign[0].demand(Options(Site.load("nvidia"), "argo"))
    assert isinstance(demand, Demand)
    return demand


def main(fields: str) -> str:
    return f'{{"containers": [{{"name": "main", {fields}}}]}}'


@pytest.mark.parametrize(
    ("patch", "resources"),
    [
        (main(f'"resources": {{"limits": {VALUE}, "requests": {VALUE} }}'), AMOUNTS),
        (main(f'"resources": {{"limits": "{VALUE}"}}'), AMOUNTS),
        (main(f'"resources": {VALUE}'), AMOUNTS),
        (main(f'"resources": {{"limits": {{ {VALUE} }}}}'), AMOUNTS),
        (main(f'"resources": {{"limits": {{"{VALUE}": "1"}}}}'), AMOUNTS),
        (main(f'"resources": {{"limits": {{"cpu": "{VALUE}"}}}}'), {"cpu"}),
        (main(f'"resources": {{"limits": {{"cpu": {VALUE}}}}}'), {"cpu"}),
        (main(f'"{VALUE}": {{"limits": {{"cpu": 1}}}}'), {*AMOUNTS, None}),
        (f'{{"containers": [{VALUE}]}}', {*AMOUNTS, None}),
        (f'{{"containers": {VALUE}}}', {*AMOUNTS, None}),
        (f'{{"containers": [{{"name": "{VALUE}", "resources": {{"limits": {{"cpu": 64}}}}}}]}}', {*AMOUNTS, None}),
        (f'{{"{VALUE}": 1}}', {*AMOUNTS, None}),
        (f'{{"initContainers": {VALUE}}}', {*AMOUNTS, None}),
        (f"containers:\n- name: main\n  resources:\n    limits: {VALUE}\n", AMOUNTS),
        (f"{VALUE}\n", {*AMOUNTS, None}),
        (f"{VALUE}{VALUE}", {*AMOUNTS, None}),
        (f'{{"containers": [{{"name": "main" {VALUE} }}]}}', {*AMOUNTS, None}),
        (f"{VALUE}\ncontainers: []\n", {*AMOUNTS, None}),
        (f'{{"nodeSelector": {VALUE}}}', {None}),
        (f'{{"tolerations": [{VALUE}]}}', {None}),
        (f'{{"hostNetwork": {VALUE}}}', {None}),
        (f'{{"terminationGracePeriodSeconds": {VALUE}}}', {None}),
        (f'{{"volumes": {VALUE}}}', {"storage", None}),
        (f'{{"volumes": [{{"name": "v", "emptyDir": {{"sizeLimit": "{VALUE}"}}}}]}}', {"storage", None}),
        (main(f'"env": {VALUE}'), set()),
        (main(f'"args": ["{VALUE}"], "image": "{VALUE}"'), set()),
    ],
)
def test_what_a_value_of_the_run_decides_is_unknown_and_nothing_is_refused(
    patch: str, resources: set[str | None]
) -> None:
    demand = patched(patch)
    assert demand.refusals == ()
    assert [step.name for step in demand.steps] == ["main.driver", "main.run"]
    assert {each.resource for each in demand.unseen} == set(resources)
    assert all(each.step == "main.run" and "is only known in the run" in each.because for each in demand.unseen)
    assert {each.resource for each in demand.unseen if each.is_placement} <= {None}


def test_the_same_patch_with_a_value_that_is_known_is_counted() -> None:
    known = patched(main(f'"resources": {{"limits": {VALUE}}}'), '{"cpu": "2", "memory": "10Gi"}')
    assert known.unseen == () and known.refusals == ()
    assert (str(known.peak["limits.cpu"].value), str(known.peak["limits.memory"].value)) == ("2", "10Gi")


def test_a_patch_that_is_wrong_whatever_the_run_says_is_refused() -> None:
    for patch in (main('"resources": {"limits": "2"}'), main(f'"resources": "much", "image": "{VALUE}"'), '{"a": ['):
        assert [each.code for each in patched(patch).refusals] == ["GF715"]
