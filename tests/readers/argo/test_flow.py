"""Steps, DAGs and loops of Argo workflows: how many pods run at once.

Tests gpuflow/readers/argo/demand.py, gpuflow/readers/argo/expressions.py, gpuflow/readers/argo/flow.py and
gpuflow/readers/argo/walk.py.
"""

from __future__ import annotations

import pytest

from tests.readers.argo.reading import POD, peak, pods, read

LEAF = f"  - {{name: a, {POD}}}\n"


def test_one_container_is_one_pod() -> None:
    demand = read(f"spec:\n  entrypoint: a\n  templates:\n{LEAF}")
    assert [step.name for step in demand.steps] == ["a"]
    assert peak(demand) == ("exact", 1)
    assert peak(demand, "requests.nvidia.com/gpu") == ("exact", 1)
    assert (demand.steps[0].where.file, demand.steps[0].where.line) == ("w.yaml", 7)


STEPS = """
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: one, template: a}
      - {name: two, template: a}
      - {name: three, template: a}
    - - {name: four, template: a}
      - {name: five, template: a}
"""


def test_groups_of_steps_run_one_after_the_other() -> None:
    demand = read(STEPS + LEAF)
    assert [step.name for step in demand.steps] == ["main.one", "main.two", "main.three", "main.four", "main.five"]
    assert peak(demand) == ("exact", 3)
    assert demand.peak["pods"].witness == ("main.one", "main.two", "main.three")


def test_tasks_wait_for_their_dependencies() -> None:
    tasks = """
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: a}
      - {name: b, template: a, dependencies: [a]}
      - {name: c, template: a, depends: a}
      - {name: d, template: a, depends: "b && c"}
"""
    assert pods(tasks + LEAF) == ("exact", 2)


def test_target_runs_what_its_tasks_need_and_no_more() -> None:
    tasks = """
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      target: "b c"
      tasks:
      - {name: a, template: a}
      - {name: b, template: a, dependencies: [a]}
      - {name: c, template: a}
      - {name: d, template: a}
      - {name: e, template: a}
"""
    demand = read(tasks + LEAF)
    assert sorted(step.name for step in demand.steps) == ["main.a", "main.b", "main.c"]
    assert peak(demand) == ("exact", 2)


def test_tasks_for_success_and_for_failure_never_run_together() -> None:
    tasks = """
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: a, template: a}
      - {name: good, template: a, depends: a.Succeeded}
      - {name: bad, template: a, depends: a.Failed || a.Errored}
"""
    demand = read(tasks + LEAF)
    assert peak(demand) == ("at-most", 2)
    assert "exclude each other" in (demand.peak["pods"].because or "")


@pytest.mark.parametrize(
    ("one", "other", "pods"),
    [
        ("'{{tasks.a.outputs.result}} == heads'", "'{{tasks.a.outputs.result}} == tails'", ("exact", 1)),
        ("'{{tasks.a.outputs.result}} == heads'", "'{{tasks.a.outputs.result}} != \"heads\"'", ("exact", 1)),
        ("'{{tasks.a.outputs.result}} == 1'", "'{{tasks.a.outputs.result}} == 2'", ("exact", 1)),
        ("'{{tasks.a.outputs.result}} == 1'", "'{{tasks.a.outputs.result}} == 1.0'", ("at-most", 2)),
        ("'{{tasks.a.outputs.result}} == 16'", "'{{tasks.a.outputs.result}} == 0x10'", ("at-most", 2)),
        ("'{{tasks.a.outputs.result}} == nan'", "'{{tasks.a.outputs.result}} == nan'", ("at-most", 2)),
        ("'{{tasks.a.outputs.result}} == 1'", "'{{tasks.a.outputs.result}} != \"1\"'", ("at-most", 2)),
        ("'{{tasks.a.outputs.result}} == true'", "'{{tasks.a.outputs.result}} != \"true\"'", ("at-most", 2)),
        (
            '\'"{{tasks.a.outputs.result}}" == "2026-01-02"\'',
            '\'"{{tasks.a.outputs.result}}" == "2026-01-02T00Z"\'',
            ("at-most", 2),
        ),
        ('\'"{{tasks.a.outputs.result}}" == "heads"\'', "'{{tasks.a.outputs.result}} == tails'", ("at-most", 2)),
        ("'{{tasks.a.outputs.result}} != heads'", "'{{tasks.a.outputs.result}} != tails'", ("at-most", 2)),
        ("'{{tasks.a.outputs.result}} == heads'", "'{{tasks.a.outputs.exitCode}} == tails'", ("at-most", 2)),
        ("'{{tasks.a.outputs.result}} == heads'", "'{{tasks.a.outputs.result}} == tails || 1 == 1'", ("at-most", 2)),
    ],
)
def test_tasks_that_ask_for_different_values_never_run_together(one: str, other: str, pods: tuple[str, int]) -> None:
    tasks = f"""
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {{name: a, template: a}}
      - {{name: heads, template: a, dependencies: [a], when: {one}}}
      - {{name: tails, template: a, dependencies: [a], when: {other}}}
"""
    assert peak(read(tasks + LEAF)) == pods
    # What else waits for one of them is no alternative of the other.
    assert peak(read(tasks + "      - {name: b, template: a, dependencies: [tails]}\n" + LEAF))[1] == 2


def looped(loop: str, more: str = "", head: str = "") -> str:
    return f"""
spec:
  entrypoint: main
{head}
  templates:
  - name: main
    steps:
    - - name: each
        template: a
{loop}
{more}
{LEAF}"""


def test_items_parameters_and_sequences_make_copies() -> None:
    assert pods(looped("        withItems: [1, 2, {a: 3}]")) == ("exact", 3)
    assert pods(looped("        withParam: '[1, 2]'")) == ("exact", 2)
    assert pods(looped("        withSequence: {count: 7}")) == ("exact", 7)
    assert pods(looped("        withSequence: {start: 3, end: 5}")) == ("exact", 3)
    assert pods(looped("        withSequence: {start: 5, end: 3}")) == ("exact", 3)
    assert pods(looped("        withSequence: {count: '0'}")) == ("exact", 0)
    assert pods(looped("        withParam: '[]'")) == ("exact", 0)


def test_a_billion_items_are_counted_and_not_written_out() -> None:
    assert pods(looped("        withSequence: {count: 1000000000}")) == ("exact", 1_000_000_000)
    capped = looped("        withSequence: {count: 1000000000}", head="  parallelism: 5")
    assert pods(capped) == ("exact", 5)


def test_a_list_that_a_step_makes_is_unknown_and_says_where() -> None:
    text = """
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: list, template: a}
    - - name: each
        template: a
        withParam: "{{steps.list.outputs.result}}"
"""
    demand = read(text + LEAF)
    assert peak(demand) == ("unknown", None)
    because = demand.peak["pods"].because or ""
    assert "withParam (w.yaml:13:20)" in because and "{{steps.list.outputs.result}}" in because


def test_parameters_of_the_run_decide_the_number_of_copies() -> None:
    head = "  arguments: {parameters: [{name: list, value: '[1, 2, 3]'}]}"
    loop = '        withParam: "{{workflow.parameters.list}}"'
    assert pods(looped(loop, head=head)) == ("exact", 3)
    assert pods(looped(loop, head=head), params={"list": "[1, 2]"}) == ("exact", 2)
    demand = read(looped(loop, head="  arguments: {parameters: [{name: list}]}"))
    assert "parameter list of the workflow has no value" in (demand.peak["pods"].because or "")


def test_items_that_ask_for_different_amounts_are_read_one_by_one() -> None:
    text = """
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - name: each
        template: train
        arguments: {parameters: [{name: gpus, value: "{{item.gpus}}"}]}
        withItems: [{gpus: 1}, {gpus: 2}, {gpus: 4}, {gpus: 4}]
  - name: train
    inputs: {parameters: [{name: gpus}]}
    podSpecPatch: |
      containers:
      - {name: main, resources: {limits: {nvidia.com/gpu: "{{inputs.parameters.gpus}}"}}}
    container: {image: i, command: [run]}
"""
    demand = read(text)
    assert peak(demand, "requests.nvidia.com/gpu") == ("exact", 11)
    assert [(step.name, step.copies) for step in demand.steps] == [
        ("main.each(0)", 1),
        ("main.each(1)", 1),
        ("main.each(2)", 2),
    ]


def test_conditions_on_constants_are_decided() -> None:
    assert pods(looped("        when: '1 == 2'")) == ("exact", 0)
    assert pods(looped("        when: 'a == a && 3 > 2'")) == ("exact", 1)
    assert pods(looped("        withItems: [1, 2, 3]\n        when: '{{item}} != 2'")) == ("exact", 2)
    head = "  arguments: {parameters: [{name: big, value: 'no'}]}"
    assert pods(looped("        when: '{{workflow.parameters.big}} == yes'", head=head)) == ("exact", 0)
    params = {"big": "yes"}
    assert pods(looped("        when: '{{workflow.parameters.big}} == yes'", head=head), params=params) == ("exact", 1)


def test_a_template_that_calls_itself_is_unknown() -> None:
    text = """
spec:
  entrypoint: flip
  templates:
  - name: flip
    steps:
    - - {name: toss, template: a}
    - - {name: again, template: flip, when: "{{steps.toss.outputs.result}} == tails"}
"""
    demand = read(text + LEAF)
    assert peak(demand) == ("unknown", None)
    assert "template flip calls itself (w.yaml:11" in (demand.peak["pods"].because or "")
    assert not demand.unseen


def test_parallelism_of_the_workflow_counts_pods_and_that_of_a_template_its_children() -> None:
    wide = """
spec:
  entrypoint: main
  parallelism: 3
  templates:
  - name: main
    steps:
    - - {name: each, template: pair, withSequence: {count: 10}}
  - name: pair
    steps:
    - - {name: one, template: a}
      - {name: two, template: a}
"""
    assert pods(wide + LEAF) == ("exact", 3)
    children = wide.replace("  parallelism: 3\n", "").replace("- name: main\n", "- name: main\n    parallelism: 3\n")
    assert pods(children + LEAF) == ("exact", 6)


def test_inner_loops_are_not_held_by_the_parallelism_around_them() -> None:
    text = """
spec:
  entrypoint: main
  templates:
  - name: main
    parallelism: 2
    steps:
    - - {name: one, template: wide}
      - {name: two, template: wide}
      - {name: three, template: wide}
  - name: wide
    dag:
      tasks:
      - {name: each, template: a, withSequence: {count: 10}}
"""
    bound, value = pods(text + LEAF)
    assert bound == "at-most" and value == 30  # two of the three run at once: never more than this


def test_a_daemon_lives_until_its_template_ends() -> None:
    text = """
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: server, template: server}
    - - {name: one, template: a}
    - - {name: two, template: a}
  - name: server
    daemon: true
    container: {image: i, command: [serve]}
"""
    demand = read(text + LEAF)
    assert peak(demand) == ("exact", 2)
    tasks = """
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: before, template: a}
      - {name: server, template: server, dependencies: [before]}
      - {name: one, template: a, dependencies: [server]}
      - {name: two, template: a, dependencies: [one]}
  - name: server
    daemon: true
    container: {image: i, command: [serve]}
"""
    assert pods(tasks + LEAF) == ("exact", 2)


def test_a_daemon_is_still_ending_when_the_exit_handler_starts() -> None:
    text = """
spec:
  entrypoint: main
  onExit: clean
  templates:
  - name: main
    steps: [[{name: serve, template: server, withItems: [1, 2, 3, 4]}], [{name: ask, template: small}]]
  - name: server
    daemon: true
    container: {image: i, command: [run], resources: {limits: {nvidia.com/gpu: 2}}}
  - name: small
    container: {image: i, command: [run], resources: {limits: {nvidia.com/gpu: 1}}}
  - name: clean
    container: {image: i, command: [run], resources: {limits: {nvidia.com/gpu: 3}}}
"""
    assert peak(read(text), "requests.nvidia.com/gpu") == ("at-most", 11)
    assert peak(read(text.replace("  onExit: clean\n", "")), "requests.nvidia.com/gpu") == ("exact", 9)


def test_exit_handlers_of_copies_and_of_daemons_are_bounds() -> None:
    text = """
spec:
  entrypoint: main
  templates:
  - name: main
    steps: [[{name: each, template: small, withItems: [1, 2, 3], hooks: {exit: {template: clean}}}]]
  - name: small
    container: {image: i, command: [run]}
  - name: clean
    container: {image: i, command: [run], resources: {limits: {nvidia.com/gpu: 1}}}
"""
    assert peak(read(text), "requests.nvidia.com/gpu") == ("at-most", 3)
    alone = text.replace("withItems: [1, 2, 3], ", "")
    assert peak(read(alone), "requests.nvidia.com/gpu") == ("exact", 1)
    daemon = alone.replace("name: small\n", "name: small\n    daemon: true\n")
    assert peak(read(daemon), "requests.nvidia.com/gpu") == ("at-most", 1)
