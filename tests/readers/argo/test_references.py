"""Documents that name others, schedules, hooks, locks, and what steps create.

Tests gpuflow/readers/argo/variables.py, gpuflow/readers/argo/resource_templates.py and
gpuflow/formats/argo.py.
"""

from __future__ import annotations

import pytest

from tests.readers.argo.reading import POD, passive, peak, pods, read

LEAF = f"  - {{name: a, {POD}}}\n"
SHARED = f"""
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {{name: shared}}
spec:
  entrypoint: main
  parallelism: 2
  arguments: {{parameters: [{{name: n, value: 5}}]}}
  templates:
  - name: main
    steps: [[{{name: each, template: work, withSequence: {{count: "{{{{workflow.parameters.n}}}}"}}}}]]
  - {{name: work, {POD}}}
"""


def test_templates_of_others_are_found_in_the_files_given() -> None:
    text = """
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: one, templateRef: {name: shared, template: main}}
      - {name: two, templateRef: {name: shared, template: work}}
"""
    # The parallelism of the other workflow is not that of this one, and its parameters are.
    demand = read(
        text.replace("entrypoint: main", "entrypoint: main\n  arguments: {parameters: [{name: n, value: 3}]}"), SHARED
    )
    assert peak(demand) == ("exact", 4)
    assert {step.where.file for step in demand.steps} == {"w1.yaml"}
    alone = read(text)
    assert peak(alone) == ("unknown", None)
    assert "templateRef names template main of WorkflowTemplate shared, which was not given" in alone.unseen[0].because
    assert alone.unseen[0].where.line == 11
    assert alone.unseen[0].hint == "name the file of WorkflowTemplate shared as well"
    lost = read(text.replace("template: work}", "template: none}"), SHARED)
    assert [finding.code for finding in lost.refusals] == ["GF712"]


def test_a_whole_workflow_may_be_another_s() -> None:
    text = "spec: {workflowTemplateRef: {name: shared}}"
    assert pods(text, SHARED) == ("exact", 2)
    more = "spec: {workflowTemplateRef: {name: shared}, parallelism: 4, arguments: {parameters: [{name: n, value: 3}]}}"
    assert pods(more, SHARED) == ("exact", 3)
    assert pods(more, SHARED, params={"n": "9"}) == ("exact", 4)
    assert pods(text) == ("unknown", None)
    cluster = SHARED.replace("WorkflowTemplate", "ClusterWorkflowTemplate")
    assert pods("spec: {workflowTemplateRef: {name: shared, clusterScope: true}}", cluster) == ("exact", 2)


def test_a_template_with_an_entrypoint_is_read_and_one_without_starts_nothing() -> None:
    assert pods(SHARED.lstrip()) == ("exact", 2)
    assert "no entrypoint" in passive(SHARED.lstrip().replace("  entrypoint: main\n", "")).because


CRON = """
apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata: {name: nightly}
spec:
  schedules: ["0 0 * * *", "0 12 * * *"]
  workflowSpec:
    entrypoint: a
    templates:
    - {name: a, container: {image: i, command: [x]}}
"""


def test_a_schedule_may_overlap_itself_unless_it_says_otherwise() -> None:
    demand = read(CRON.lstrip())
    assert demand.kind == "CronWorkflow" and peak(demand) == ("exact", 1)
    assert demand.overlap is not None and demand.overlap.at_most is None
    assert demand.overlap.because == 'schedule "0 0 * * *, 0 12 * * *", concurrencyPolicy: Allow'
    assert demand.overlap.where.line == 5
    for more in ("concurrencyPolicy: Forbid", "concurrencyPolicy: Replace", "suspend: true"):
        assert read(CRON.lstrip().replace("spec:\n", f"spec:\n  {more}\n", 1)).overlap is None
    locked = CRON.lstrip().replace(
        "    entrypoint: a\n", "    entrypoint: a\n    synchronization: {mutexes: [{name: m}]}\n"
    )
    assert read(locked).overlap is None


MAIN = "spec:\n  entrypoint: m\n  templates:\n" + LEAF + "  - {name: m, "


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("spec:\n  entrypoint: none\n  templates:\n" + LEAF, "GF711", 5),
        ("spec:\n  templates:\n" + LEAF, "GF711", 5),
        (MAIN + "steps: [[{name: s, template: none}]]}\n", "GF712", 8),
        (MAIN + "container: {image: i}, suspend: {}}\n", "GF713", 8),
        (MAIN + "steps: [{name: s, template: m}]}\n", "GF713", 8),
        (MAIN + "steps: [[{name: s, template: a, withParam: no}]]}\n", "GF714", 8),
        (MAIN + "steps: [[{name: s, template: a, withSequence: {count: many}}]]}\n", "GF714", 8),
        (MAIN + "dag: {tasks: [{name: s, template: a, depends: t}]}}\n", "GF716", 8),
        (MAIN + "dag: {tasks: [{name: s, template: a, depends: s}]}}\n", "GF716", 8),
        (MAIN + "dag: {tasks: [{name: s, template: a, depends: s.Nice}]}}\n", "GF716", 8),
        (MAIN + "dag: {target: t, tasks: [{name: s, template: a}]}}\n", "GF716", 8),
        (
            "spec:\n  entrypoint: a\n  templateDefaults: {volumes: [{name: v, emptyDir: {}}]}\n  templates:\n"
            "  - {name: a, volumes: [{emptyDir: {}}], container: {image: i}}\n",
            "GF717",
            6,
        ),
        ("spec:\n  entrypoint: a\n  parallelism: 0\n  templates:\n" + LEAF, "GF718", 6),
    ],
)
def test_what_argo_refuses_never_runs_and_says_where(text: str, code: str, line: int) -> None:
    (finding,) = read(text).refusals
    assert (finding.code, finding.where.line, finding.severity) == (code, line, "error")


def test_exit_handlers_run_when_the_rest_has_ended() -> None:
    text = """
spec:
  entrypoint: main
  onExit: tidy
  templates:
  - name: main
    steps:
    - - {name: one, template: a, onExit: a}
      - {name: two, template: a}
  - name: tidy
    steps: [[{name: x, template: a}, {name: y, template: a}, {name: z, template: a}]]
"""
    demand = read(text + LEAF)
    assert peak(demand) == ("exact", 3)
    assert [step.name for step in demand.steps if step.is_exit] == ["onExit.x", "onExit.y", "onExit.z"]
    assert "main.one.onExit" in demand.by_name
    labels = demand.by_name["main.one.onExit"].pod["metadata"]["labels"]
    assert labels["workflows.argoproj.io/on-exit"] == "true"


def test_hooks_run_beside_their_step_or_after_it() -> None:
    text = """
spec:
  entrypoint: main
  hooks:
    busy: {expression: 'workflow.status == "Running"', template: a}
  templates:
  - name: main
    steps:
    - - name: one
        template: a
        hooks:
          running: {expression: 'steps.one.status == "Running"', template: a}
          failed: {expression: 'steps.one.status == "Failed"', template: a}
          exit: {template: a}
"""
    demand = read(text + LEAF)
    assert {step.name for step in demand.steps} == {
        "main.one", "main.one.hook-running", "main.one.hook-failed", "main.one.onExit", "hook-busy",
    }  # fmt: skip
    assert peak(demand) == ("at-most", 3)  # the step and what runs beside it; conditions may exclude each other


def test_a_mutex_lets_one_run_and_a_semaphore_as_many_as_its_config_map_says() -> None:
    text = """
spec:
  entrypoint: main
  templates:
  - name: main
    steps: [[{name: each, template: a, withSequence: {count: 9}}]]
  - name: a
    synchronization: SYNC
    container: {image: i, command: [x]}
"""
    assert pods(text.replace("SYNC", "{mutexes: [{name: m}]}")) == ("exact", 1)
    assert pods(text.replace("SYNC", "{mutexes: [{name: 'm-{{workflow.uid}}'}]}")) == ("exact", 1)
    semaphore = text.replace("SYNC", "{semaphores: [{configMapKeyRef: {name: limits, key: gpu}}]}")
    given = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits}\ndata: {gpu: '4'}\n"
    assert pods(semaphore, given) == ("exact", 4)
    demand = read(semaphore)
    assert peak(demand) == ("at-most", 9)
    assert demand.only_at_most == "semaphore gpu of ConfigMap limits may let fewer run at once"


def test_values_in_a_config_map_that_is_given_are_known() -> None:
    text = """
spec:
  entrypoint: main
  arguments:
    parameters: [{name: n, valueFrom: {configMapKeyRef: {name: numbers, key: n}}}]
  templates:
  - name: main
    steps: [[{name: each, template: a, withSequence: {count: "{{workflow.parameters.n}}"}}]]
"""
    given = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: numbers}\ndata: {n: '4'}\n"
    assert pods(text + LEAF, given) == ("exact", 4)
    assert "ConfigMap numbers, key n, which was not given" in (read(text + LEAF).peak["pods"].because or "")


JOB = """
spec:
  entrypoint: main
  parallelism: 2
  templates:
  - name: main
    steps:
    - - {name: make, template: make, withItems: [1, 2, 3]}
    - - {name: use, template: a}
  - name: make
    resource:
      action: create
      SUCCESS
      manifest: |
        apiVersion: batch/v1
        kind: Job
        metadata: {generateName: j-}
        spec:
          parallelism: 4
          completions: 4
          template:
            spec:
              restartPolicy: Never
              containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def test_what_a_step_creates_is_counted_and_no_cap_of_argo_counts_it() -> None:
    waits = read(JOB.replace("SUCCESS", "successCondition: status.succeeded > 3") + LEAF)
    assert peak(waits, "requests.nvidia.com/gpu") == ("at-most", 12)
    left = read(JOB.replace("SUCCESS", "") + LEAF)
    assert peak(left, "requests.nvidia.com/gpu") == ("at-most", 13)  # the Jobs may still run beside the next step
    free = read(
        JOB.replace("  parallelism: 2\n", "").replace("SUCCESS", "successCondition: status.succeeded > 3") + LEAF
    )
    assert peak(free, "requests.nvidia.com/gpu") == ("exact", 12)
    engine = read(JOB.replace("SUCCESS", "") + LEAF, engine="argo")
    assert "main.make" in engine.by_name and "main.make" not in left.by_name


def test_a_workflow_that_creates_itself_ends() -> None:
    text = """
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: again}
spec:
  entrypoint: a
  templates:
  - name: a
    resource:
      action: create
      successCondition: status.phase == Succeeded
      manifest: |
        apiVersion: argoproj.io/v1alpha1
        kind: Workflow
        metadata: {generateName: again-}
        spec: {workflowTemplateRef: {name: again}}
"""
    demand = read(text.lstrip())
    assert "create workflows more than 5 deep" in demand.unseen[0].because


def test_waits_requests_and_plugins_have_no_pods_but_the_agent() -> None:
    text = """
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: one, template: a}
      - {name: wait, template: wait, dependencies: [one]}
      - {name: ask, template: ask, dependencies: [wait]}
      - {name: plug, template: plug, dependencies: [ask]}
      - {name: two, template: a, dependencies: [plug]}
  - {name: wait, suspend: {}}
  - {name: ask, http: {url: "https://example.com"}}
  - {name: plug, plugin: {hello: {}}}
"""
    demand = read(text + LEAF)
    assert peak(demand) == ("exact", 1)  # the second pod still waits for the first
    assert [step.name for step in read(text + LEAF, engine="argo").steps] == ["main.one", "main.two", "agent"]
    assert pods(text + LEAF, engine="argo") == ("exact", 2)


def test_inline_templates_are_read_where_they_stand() -> None:
    text = f"""
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {{name: one, inline: {{{POD}}}}}
"""
    demand = read(text)
    assert peak(demand, "requests.nvidia.com/gpu") == ("exact", 1)
    assert demand.steps[0].where.line == 11


def test_ten_thousand_tasks_are_read_with_their_order() -> None:
    tasks = "".join(
        f"      - {{name: t{number}, template: a, dependencies: [{f't{number - 100}' if number >= 100 else ''}], "
        f"arguments: {{parameters: [{{name: n, value: {number}}}]}}}}\n"
        for number in range(10_000)
    )
    text = f"spec:\n  entrypoint: main\n  templates:\n  - name: main\n    dag:\n      tasks:\n{tasks}"
    text += (
        "  - {name: a, inputs: {parameters: [{name: n}]}, container: {image: i, args: ['{{inputs.parameters.n}}']}}\n"
    )
    demand = read(text)
    assert len(demand.steps) == 10_000 and peak(demand) == ("exact", 100)
    assert len({id(step.pod_sets[0]) for step in demand.steps}) == 1  # what differs is no business of a quota


def test_a_parameter_whose_name_is_no_text_is_no_traceback() -> None:
    arguments = "arguments: {parameters: [{name: [a], value: 1}]}"
    shared = f"""apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {{name: shared}}
spec: {{entrypoint: main, {arguments}, templates: [{{name: main, {POD}}}]}}
"""
    assert peak(read(f"spec: {{workflowTemplateRef: {{name: shared}}, {arguments}}}", shared)) == ("exact", 1)
