"""Documents of what the public corpora have little of: references, defaults, maps that are empty, runs of Kubeflow."""

# ruff: noqa: E501  # calls and tasks, one a line

from __future__ import annotations

import json

from tests.readers.kfp.documents import constant, container, given, group, loop, output, pipeline, platform, task

HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: {}\nmetadata: {{name: {}}}\n"
POD = "container: {image: i, command: [run], resources: {limits: {cpu: 1}}}"
SHARED = f"""{HEAD.format("WorkflowTemplate", "shared")}spec:
  entrypoint: main
  arguments: {{parameters: [{{name: size, value: 2}}, {{name: word, value: under}}]}}
  templateDefaults: {{activeDeadlineSeconds: 60, container: {{env: [{{name: A, value: b}}]}}}}
  podMetadata: {{labels: {{team: shared}}}}
  nodeSelector: {{disk: ssd}}
  templates:
  - name: main
    steps: [[{{name: a, template: leaf, arguments: {{parameters: [{{name: x, value: "{{{{workflow.parameters.word}}}}"}}]}}}}]]
  - name: leaf
    inputs: {{parameters: [{{name: x, default: none}}]}}
    {POD}
"""
ARGO = {
    "names a template": f"{HEAD.format('Workflow', 'run')}spec: {{workflowTemplateRef: {{name: shared}}}}\n---\n{SHARED}",
    "names a template with words of its own": f"""{HEAD.format("Workflow", "run")}spec:
  workflowTemplateRef: {{name: shared}}
  entrypoint: main
  arguments: {{parameters: [{{name: word, value: over}}]}}
---
{SHARED}""",
    "names a template and says more": f"""{HEAD.format("Workflow", "run")}spec:
  workflowTemplateRef: {{name: shared}}
  parallelism: 1
  nodeSelector: {{disk: hdd}}
  templates: [{{name: leaf, {POD}}}]
---
{SHARED}""",
    "names a template that is not here": f"{HEAD.format('Workflow', 'run')}spec: {{workflowTemplateRef: {{name: none}}}}",
    "names a template of the cluster": f"""{HEAD.format("CronWorkflow", "run")}spec:
  schedules: ["0 2 * * *"]
  workflowSpec: {{workflowTemplateRef: {{name: shared, clusterScope: true}}}}
---
{SHARED.replace("WorkflowTemplate", "ClusterWorkflowTemplate")}""",
    "names its scope as a text": f"""{HEAD.format("Workflow", "run")}spec: {{workflowTemplateRef: {{name: shared, clusterScope: "true"}}}}
---
{SHARED}""",
    "calls templates of others": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  arguments: {{parameters: [{{name: which, value: leaf}}]}}
  templates:
  - name: main
    dag:
      tasks:
      - {{name: a, templateRef: {{name: shared, template: leaf}}, arguments: {{parameters: [{{name: x, value: 1.50}}]}}}}
      - {{name: b, templateRef: {{name: shared, template: none}}}}
      - {{name: c, templateRef: {{name: other, template: leaf}}}}
      - {{name: d, templateRef: {{name: shared, template: "{{{{workflow.parameters.which}}}}"}}}}
      - {{name: e, templateRef: {{name: "{{{{tasks.a.outputs.result}}}}", template: "{{{{item}}}}"}}, withItems: [1, 2]}}
      - {{name: f, template: "{{{{item}}}}", withItems: [main, leaf]}}
      - {{name: g, templateRef: {{}}}}
      - {{name: h, inline: {{}}}}
      - {{name: i, inline: {{{POD}}}}}
      - {{name: j, template: 7}}
      - {{name: k}}
      - {{name: l, template: main}}
---
{SHARED}""",
    "has defaults": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  templateDefaults:
    script: {{image: other, command: [sh], source: "echo other"}}
    container: {{env: [{{name: A, value: b}}], resources: {{limits: {{memory: 1Gi}}}}}}
    volumes: [{{name: one, emptyDir: {{}}}}]
    inputs: {{parameters: [{{name: y, value: 3}}]}}
    retryStrategy: {{limit: 2}}
  templates:
  - name: main
    volumes: [{{name: two, emptyDir: {{}}}}]
    container: {{image: i, command: [run], env: [{{name: B, value: "{{{{inputs.parameters.y}}}}"}}]}}
""",
    "has settings of pods on both sides": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  nodeSelector: {{disk: ssd}}
  tolerations: [{{key: a, operator: Exists}}]
  hostAliases: [{{ip: 10.0.0.1, hostnames: [a]}}]
  affinity: {{nodeAffinity: {{}}}}
  podPriorityClassName: low
  templates:
  - name: main
    nodeSelector: {{zone: b}}
    tolerations: [{{key: b, operator: Exists}}]
    hostAliases: [{{ip: 10.0.0.2, hostnames: [b]}}]
    priorityClassName: high
    {POD}
""",
    "has maps that are empty": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  arguments: {{}}
  hooks: {{}}
  templates:
  - name: main
    steps:
    - - {{name: a, template: leaf, withSequence: {{}}}}
      - {{name: b, template: leaf, withItems: []}}
      - {{name: c, template: leaf, withParam: ""}}
    - - {{name: d, template: leaf, arguments: {{}}, hooks: {{}}, when: ""}}
    - []
    - null
  - name: leaf
    inputs: {{}}
    outputs: {{}}
    retryStrategy: {{}}
    memoize: {{}}
    metadata: {{}}
    {POD}
""",
    "has loops": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  arguments: {{parameters: [{{name: n, value: 3}}, {{name: list, value: '["a", {{"k": 1}}]'}}, {{name: open}}]}}
  templates:
  - name: main
    dag:
      tasks:
      - {{name: a, template: leaf, withSequence: {{start: 5, end: 1}}}}
      - {{name: b, template: leaf, withSequence: {{count: "{{{{workflow.parameters.n}}}}", format: "x%03d"}}}}
      - {{name: c, template: leaf, withSequence: {{count: 0}}}}
      - {{name: d, template: leaf, withSequence: {{count: "{{{{workflow.parameters.open}}}}"}}}}
      - {{name: e, template: leaf, withSequence: {{start: 1}}}}
      - {{name: f, template: leaf, withSequence: {{count: no}}}}
      - {{name: g, template: leaf, withParam: "{{{{workflow.parameters.list}}}}"}}
      - {{name: h, template: leaf, withParam: "{{{{tasks.a.outputs.result}}}}"}}
      - {{name: i, template: leaf, withParam: "{{}}"}}
      - {{name: j, template: leaf, withItems: [1, {{gpus: 2}}, [3]], arguments: {{parameters: [{{name: x, value: "{{{{item}}}}"}}]}}}}
      - {{name: k, template: leaf, withItems: ["{{{{tasks.a.outputs.result}}}}", b]}}
      - {{name: l, template: leaf, withSequence: {{count: 3, format: "%s"}}}}
      - {{name: m, template: leaf, withItems: [{{a: 1, b: x}}, {{a: 2, b: y}}], arguments: {{parameters: [{{name: x, value: "{{{{item.b}}}}"}}]}}}}
  - name: leaf
    inputs: {{parameters: [{{name: x, default: none}}]}}
    {POD}
""",
    "waits in every way": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {{name: a, template: leaf, when: "1 == 1"}}
      - {{name: b, template: leaf, dependencies: [a]}}
      - {{name: c, template: leaf, depends: a && b}}
      - {{name: d, template: leaf, depends: "(a.Succeeded || a.Skipped) && b"}}
      - {{name: e, template: leaf, depends: a.Failed}}
      - {{name: f, template: leaf, depends: "!a"}}
      - {{name: g, template: leaf, depends: a || b}}
      - {{name: h, template: leaf, depends: a.AnySucceeded}}
      - {{name: i, template: leaf, depends: "a.Succeeded || a.Skipped || a.Daemoned"}}
  - {{name: leaf, {POD}}}
""",
    "waits for a result that is none": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  templates:
  - name: main
    dag: {{tasks: [{{name: a, template: leaf}}, {{name: b, template: leaf, depends: a.Gone}}]}}
  - {{name: leaf, {POD}}}
""",
    "waits in two ways": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  templates:
  - name: main
    dag: {{tasks: [{{name: a, template: leaf}}, {{name: b, template: leaf, depends: a, dependencies: [a]}}]}}
  - {{name: leaf, {POD}}}
""",
    "shares a template by an alias": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {{name: a, inline: &own {{{POD}, timeout: 5s}}}}
      - {{name: b, inline: *own}}
      - {{name: c, template: two}}
  - name: two
    container: {{image: i}}
    script: {{image: i, source: x}}
""",
    "ends with handlers": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  onExit: tidy
  hooks: {{exit: {{template: leaf}}, busy: {{expression: 'workflow.status == "Running"', templateRef: {{name: shared, template: leaf}}}}}}
  templates:
  - name: main
    steps: [[{{name: a, template: leaf, onExit: leaf, hooks: {{late: {{expression: 'steps.a.status == "Failed"', template: none}}}}}}]]
  - name: tidy
    steps: [[{{name: x, template: leaf, when: "{{{{workflow.status}}}} == Failed"}}], [{{name: y, template: leaf}}]]
  - {{name: leaf, {POD}}}
---
{SHARED}""",
    "takes values from ConfigMaps": f"""{HEAD.format("Workflow", "run")}spec:
  entrypoint: main
  arguments:
    parameters:
    - {{name: a, valueFrom: {{configMapKeyRef: {{name: values, key: a}}}}}}
    - {{name: b, valueFrom: {{configMapKeyRef: {{name: values, key: none}}}}}}
    - {{name: c, valueFrom: {{configMapKeyRef: {{name: none, key: a}}}}, default: d}}
    - {{name: d}}
  templates:
  - name: main
    dag:
      tasks:
      - name: t
        template: leaf
        arguments:
          parameters:
          - {{name: x, valueFrom: {{expression: "1 + 1"}}}}
          - {{name: y, valueFrom: {{configMapKeyRef: {{name: none, key: a}}}}}}
          - {{name: z, valueFrom: {{path: /x}}}}
          - {{name: w, value: "{{{{workflow.parameters.d}}}}{{{{item}}}}"}}
        withItems: [1, 2]
  - name: leaf
    inputs: {{parameters: [{{name: x}}, {{name: y}}, {{name: z}}, {{name: w}}, {{name: v}}, {{name: u, valueFrom: {{configMapKeyRef: {{name: values, key: a}}}}}}]}}
    container: {{image: i, resources: {{requests: {{cpu: "{{{{inputs.parameters.x}}}}", memory: "{{{{inputs.parameters.w}}}}"}}}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: values}}
data: {{a: 5Gi}}
""",
}
WHOLE = pipeline(
    {
        "a": task("a", inputs={"x": given("size")}),
        "each": task("loop", inputs={"l": given("list")}, after=("a",), **loop("l", limit=2)),
        "b": task("a", inputs={"x": output("a")}, triggerPolicy={"condition": "inputs.parameter_values['x'] == '1'"}),
        "end": task("a", after=("each", "b"), triggerPolicy={"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}),
    },
    components={
        "comp-loop": group({"a": task("a", inputs={"x": given("item")})}, l={"parameterType": "LIST"}, item={}),
        "comp-a": {
            "executorLabel": "exec-a",
            "inputDefinitions": {"parameters": {"x": {"parameterType": "STRING", "defaultValue": "1Gi"}}},
            "outputDefinitions": {"parameters": {"Output": {"parameterType": "STRING"}}},
        },
    },
    executors={"exec-a": container(resourceMemoryLimit="{{$.inputs.parameters['x']}}", cpuLimit=2.0)},
    params={
        "list": {"parameterType": "LIST", "defaultValue": ["1Gi", "2Gi"]},
        "size": {"parameterType": "STRING"},
    },
)
SETTINGS = platform(a={"nodeSelector": {"labels": {"disk": "ssd"}}, "pvcMount": [{"pvcNameParameter": constant("d")}]})
OTHER = platform(a={"nodeSelector": {"labels": {"disk": "hdd"}}})
SNAKE = json.loads(
    json.dumps(WHOLE)
    .replace("componentRef", "component_ref")
    .replace("dependentTasks", "dependent_tasks")
    .replace("executorLabel", "executor_label")
    .replace("resourceMemoryLimit", "resource_memory_limit")
)
WRONG = json.loads(json.dumps(WHOLE).replace('"dependentTasks": ["a"]', '"dependentTasks": [1], "retryPolicy": 3'))
RUNS = {"parameterValues": {"size": "3Gi"}, "parameters": {"old": {"stringValue": "x"}}}
KFP = {
    "a pipeline with settings": [WHOLE, SETTINGS],
    "a run": [{"pipelineSpec": WHOLE, "runtimeConfig": RUNS}],
    "a run with settings of its own": [{"pipelineSpec": WHOLE, "runtimeConfig": RUNS, "platformSpec": SETTINGS}],
    "a version": [
        {
            "apiVersion": "pipelines.kubeflow.org/v2beta1",
            "kind": "PipelineVersion",
            "metadata": {"name": "v"},
            "spec": {"pipelineSpec": WHOLE, "platformSpec": SETTINGS},
        }
    ],
    "two pipelines": [WHOLE, SETTINGS, WHOLE, OTHER],
    "two pipelines, one with settings": [WHOLE, WHOLE, OTHER],
    "words of protobuf": [SNAKE, SETTINGS],
    "values of another type": [WRONG, SETTINGS],
    "no root": [{**WHOLE, "root": {}}],
}


def documents() -> dict[str, str]:
    """Each as the text of a file, by what is special in it."""
    return {**ARGO, **{name: "\n---\n".join(json.dumps(each, indent=1) for each in some) for name, some in KFP.items()}}
