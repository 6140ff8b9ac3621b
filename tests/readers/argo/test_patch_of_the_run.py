"""A podSpecPatch that is nothing but a value of the run, as Kubeflow's compiler writes it."""

from __future__ import annotations

from gpuflow import yaml_tree
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
