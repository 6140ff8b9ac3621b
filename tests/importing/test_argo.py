"""Pods and templates of Argo as the importer takes them: what the template says, the workflow, and its defaults."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.importing.samples import import_text

HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: run}\n"


def step_of(spec: str) -> dict[str, Any]:
    found = import_text(HEAD + spec)
    assert found.pipeline is not None, [each.render() for each in found.findings]
    steps: dict[str, Any] = yaml.safe_load(found.text())["steps"]
    (step,) = steps.values()
    assert isinstance(step, dict)
    return step


def test_a_template_s_selector_and_tolerations_replace_those_of_the_workflow_and_aliases_add_up() -> None:
    step = step_of("""spec:
  entrypoint: main
  nodeSelector: {disk: ssd}
  tolerations: [{key: a, operator: Exists}]
  hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]
  templates:
  - name: main
    nodeSelector: {zone: b}
    tolerations: [{key: b, operator: Exists}]
    hostAliases: [{ip: 10.0.0.2, hostnames: [b]}]
    container: {image: i, command: [run]}
""")["kubernetes"]
    assert step["node_selector"] == {"zone": "b"}
    assert [each["key"] for each in step["tolerations"]] == ["b"]
    assert [each["ip"] for each in step["merge"]["spec"]["hostAliases"] if "ip" in each] == ["10.0.0.1", "10.0.0.2"]


def test_a_template_that_says_nothing_has_what_the_workflow_says() -> None:
    step = step_of("""spec:
  entrypoint: main
  nodeSelector: {disk: ssd}
  templates: [{name: main, nodeSelector: {}, container: {image: i, command: [run]}}]
""")
    assert step["kubernetes"]["node_selector"] == {"disk": "ssd"}


def test_defaults_of_another_type_run_no_other_program() -> None:
    step = step_of("""spec:
  entrypoint: main
  templateDefaults: {script: {image: other, command: [sh], source: echo other}}
  templates: [{name: main, container: {image: i, command: [run]}}]
""")
    assert (step["image"], step["command"], "script" in step) == ("i", ["run"], False)


def test_lists_of_defaults_are_merged_by_name_and_not_lost() -> None:
    step = step_of("""spec:
  entrypoint: main
  templateDefaults:
    container: {env: [{name: A, value: default}, {name: B, value: default}]}
    volumes: [{name: one, emptyDir: {}}]
  templates:
  - name: main
    volumes: [{name: two, emptyDir: {}}]
    container:
      image: i
      command: [run]
      env: [{name: B, value: own}]
      volumeMounts: [{name: one, mountPath: /one}, {name: two, mountPath: /two}]
""")
    assert step["env"] == {"A": "default", "B": "own"}
    assert {"/one", "/two"} <= set(re.findall(r"/\w+", str(step)))


def test_what_is_wrong_in_a_template_with_defaults_is_listed_at_its_line() -> None:
    found = import_text(HEAD + """spec:
  entrypoint: main
  templateDefaults: {activeDeadlineSeconds: 60}
  templates:
  - name: main
    timeout: 5s
    container: {image: i, command: [run]}
""")  # fmt: skip
    assert [(each.where.line, each.where.column) for each in found.findings] == [(9, 5)]


def test_a_template_that_is_several_things_is_listed() -> None:
    (finding,) = import_text(HEAD + """spec:
  entrypoint: main
  templates: [{name: main, container: {image: i, command: [run]}, script: {image: i, command: [sh], source: x}}]
""").findings  # fmt: skip
    assert finding.message.startswith("template that is several things")


def test_a_variable_without_a_name_is_listed() -> None:
    for entry in ("{value: x}", "{name: '', value: x}", "{valueFrom: {fieldRef: {fieldPath: metadata.name}}}"):
        spec = f"container: {{image: i, command: [run], env: [{entry}]}}"
        (finding,) = import_text(f"{HEAD}spec: {{entrypoint: main, templates: [{{name: main, {spec}}}]}}").findings
        assert finding.message == "variable: it has no name"


def test_a_template_of_another_document_is_held_to_its_shape_too() -> None:
    other = """---
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: other}
spec: {entrypoint: main, templates: [{name: main, steps: true}, {name: leaf, container: {image: i, resources: 3}}]}
"""
    task = "{name: main, steps: [[{name: a, templateRef: {name: other, template: leaf}}]]}"
    for spec in ("{workflowTemplateRef: {name: other}}", f"{{entrypoint: main, templates: [{task}]}}"):
        found = import_text(f"{HEAD}spec: {spec}\n{other}")
        assert {each.code for each in found.findings} == {"GF789"}
        assert {each.message.partition(":")[0] for each in found.findings} == {"steps", "resources"}


def test_a_hook_that_is_no_map_is_listed() -> None:
    leaf = "{name: main, container: {image: i, command: [run]}}"
    (finding,) = import_text(f"{HEAD}spec: {{entrypoint: main, hooks: {{busy: true}}, templates: [{leaf}]}}").findings
    assert finding.message.startswith("hook busy")
