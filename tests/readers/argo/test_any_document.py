"""Whatever stands in a workflow: an answer or a finding, never a traceback and never an endless loop.

Tests gpuflow/formats/documents.py and gpuflow/readers/interface.py.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand
from gpuflow.readers import Options, PassiveObject, documents_of, foreign_in
from tests.readers.argo.reading import SITE

WHOLE = """
apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata: {name: nightly, namespace: team, labels: {a: b}}
spec:
  schedules: ["0 0 * * *"]
  concurrencyPolicy: Allow
  workflowSpec:
    entrypoint: main
    onExit: tidy
    parallelism: 7
    activeDeadlineSeconds: 600
    podGC: {strategy: OnPodSuccess}
    arguments: {parameters: [{name: gpus, value: 2}, {name: list, value: "[1, 2]"}]}
    hooks: {busy: {expression: 'workflow.status == "Running"', template: leaf}}
    templateDefaults: {activeDeadlineSeconds: 60, container: {resources: {requests: {cpu: 1}}}}
    podSpecPatch: '{"terminationGracePeriodSeconds": 5}'
    volumes: [{name: data, emptyDir: {}}]
    volumeClaimTemplates:
    - metadata: {name: work}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
    podMetadata: {labels: {team: x}}
    synchronization: {mutexes: [{name: one}]}
    templates:
    - name: main
      parallelism: 3
      dag:
        target: "a b c d"
        tasks:
        - {name: a, template: leaf, withItems: [1, {gpus: 2}]}
        - {name: b, template: many, depends: a.Succeeded, when: "{{tasks.a.outputs.result}} == 1"}
        - {name: c, depends: "a && !b.Failed", inline: {container: {image: i, command: [c]}}}
        - name: d
          template: patched
          dependencies: [a]
          withParam: "{{workflow.parameters.list}}"
          arguments: {parameters: [{name: gpus, value: "{{item}}"}]}
          hooks: {exit: {template: leaf}, later: {expression: 'tasks.d.status == "Failed"', template: leaf}}
    - name: many
      steps:
      - - {name: s, template: set, withSequence: {start: 1, count: 4, format: "%02d"}}
        - {name: r, template: job}
      - - {name: w, template: wait, onExit: leaf}
      - - {name: h, template: ask}
        - {name: e, template: server}
    - name: leaf
      nodeSelector: {disk: ssd}
      tolerations: [{key: gpu, operator: Exists}]
      container:
        image: i
        command: [run]
        resources: {requests: {memory: 1Gi}, limits: {nvidia.com/gpu: "{{workflow.parameters.gpus}}"}}
        volumeMounts: [{name: data, mountPath: /data}, {name: work, mountPath: /work}]
      sidecars: [{name: side, image: i, resources: {limits: {cpu: 1}}}]
      initContainers: [{name: first, image: i, resources: {limits: {cpu: 2}}}]
      retryStrategy: {limit: 3, affinity: {nodeAntiAffinity: {}}}
    - name: patched
      inputs: {parameters: [{name: gpus, default: 1}]}
      podSpecPatch: |
        containers: [{name: main, resources: {limits: {nvidia.com/gpu: "{{inputs.parameters.gpus}}"}}}]
      script: {image: i, command: [sh], source: "echo {{inputs.parameters.gpus}}"}
    - name: set
      containerSet:
        volumeMounts: [{name: data, mountPath: /x}]
        containers:
        - {name: one, image: i, resources: {requests: {cpu: 1}}}
        - {name: two, image: i, dependencies: [one]}
    - name: job
      resource:
        action: create
        successCondition: status.succeeded > 0
        manifest: |
          apiVersion: argoproj.io/v1alpha1
          kind: Workflow
          metadata: {generateName: inner-}
          spec: {entrypoint: x, templates: [{name: x, container: {image: i, command: [x]}}]}
    - {name: wait, suspend: {duration: 5}}
    - {name: ask, http: {url: "https://example.com"}}
    - {name: server, daemon: true, container: {image: i, command: [serve]}}
    - {name: tidy, container: {image: i, command: [tidy]}}
"""
VALID = yaml.safe_load(WHOLE)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found += places(each, (*path, key))
    return found


PLACES = [path for path in places(VALID) if path not in (("apiVersion",), ("kind",))]
WORDS: list[Any] = [
    None, True, False, 0, 1, -1, 10**9, 10**30, 1.5, "", "a", "main", "leaf", "many", "{{item}}", "{{=1+}}", "[",
    "{{inputs.parameters.gpus}}", "{{workflow.parameters.none}}", "[[[[", '{"a": [1', [], {}, [[]], [{}], {"a": {}},
    [None], ["main"], [["a"]], {"name": "main"}, "{{=toJson(1)}}", "1 == 1", "a.Failed", "!", "x" * 500,
]  # fmt: skip


def put(tree: Any, path: tuple[Any, ...], word: Any) -> None:
    """The word in its place, unless that is gone by now."""
    for part in path[:-1]:
        if isinstance(tree, dict) or (isinstance(tree, list) and isinstance(part, int) and part < len(tree)):
            tree = tree.get(part) if isinstance(tree, dict) else tree[part]
    if isinstance(tree, dict) or (isinstance(tree, list) and isinstance(path[-1], int) and path[-1] < len(tree)):
        tree[path[-1]] = word


def read(tree: Any) -> None:
    """Read it, and ask everything of the answer that commands ask."""
    for engine in ("none", "argo"):
        with contextlib.suppress(GpuflowError):
            active, _ = foreign_in(documents_of([tree], "w.yaml"))
            for each in active:
                found = each.demand(Options(SITE, engine))
                assert isinstance(found, Demand | PassiveObject)
                if isinstance(found, Demand):
                    found.document()


def test_the_document_itself_is_sound() -> None:
    active, _ = foreign_in(documents_of([VALID], "w.yaml"))
    found = active[0].demand(Options(SITE))
    assert isinstance(found, Demand) and not found.refusals and not found.unseen
    assert len(found.steps) == 14


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(WORDS)), min_size=1, max_size=4))
def test_any_change_of_a_workflow_is_answered(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    tree = copy.deepcopy(VALID)
    for path, word in changes:
        put(tree, path, copy.deepcopy(word))
    read(tree)


@given(st.data())
def test_any_part_may_stand_in_the_place_of_another(data: st.DataObject) -> None:
    tree = copy.deepcopy(VALID)
    path, other = data.draw(st.sampled_from(PLACES)), data.draw(st.sampled_from(PLACES))
    value: Any = VALID
    for part in other:
        value = value[part]
    put(tree, path, copy.deepcopy(value))
    read(tree)


def test_templates_that_call_others_twice_end_in_bounded_time() -> None:
    templates: list[Any] = [{"name": "t0", "container": {"image": "i", "command": ["x"]}}]
    for level in range(1, 38):
        calls = [{"name": name, "template": f"t{level - 1}"} for name in ("a", "b")]
        templates.append({"name": f"t{level}", "steps": [calls]})
    tree = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "bomb"},
        "spec": {"entrypoint": "t37", "templates": templates},
    }
    active, _ = foreign_in(documents_of([tree], "w.yaml"))
    found = active[0].demand(Options(SITE))
    assert isinstance(found, Demand)
    assert found.peak["pods"].bound == "unknown"
    assert "more than 20,000 steps" in (found.peak["pods"].because or "")


def test_a_chain_of_templates_deeper_than_is_read_is_unknown() -> None:
    for loop in (None, [1, 2]):
        templates: list[Any] = [{"name": "t0", "container": {"image": "i", "command": ["x"]}}]
        for level in range(1, 200):
            call: dict[str, Any] = {"name": "n", "template": f"t{level - 1}"}
            beside = {"name": "m", "template": "t0"}
            if loop:
                call["withItems"] = loop
            templates.append({"name": f"t{level}", "steps": [[call, beside], [beside | {"name": "z"}]]})
        tree = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": "deep"},
            "spec": {"entrypoint": "t199", "templates": templates, "parallelism": 5},
        }
        active, _ = foreign_in(documents_of([tree], "w.yaml"))
        found = active[0].demand(Options(SITE))
        assert isinstance(found, Demand)
        assert "deep" in (found.peak["pods"].because or "")
