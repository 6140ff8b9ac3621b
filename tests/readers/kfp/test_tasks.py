"""Tasks of a Kubeflow pipeline: order, groups, loops, conditions, exit tasks, and the pods of Kubeflow's own.

Tests gpuflow/formats/kfp.py, gpuflow/readers/kfp/tasks.py and gpuflow/readers/kfp/values.py.
"""

from __future__ import annotations

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand
from gpuflow.readers import Options, documents_of, foreign_in
from gpuflow.site import Site
from tests.readers.kfp.documents import (
    constant,
    container,
    given,
    group,
    loop,
    output,
    pipeline,
    platform,
    read,
    read_text,
    shown,
    task,
)

STRING = {"parameterType": "STRING"}
LIST = {"parameterType": "LIST"}
CPU = {"exec-a": container(cpuLimit=2.0)}


def test_tasks_wait_for_those_they_name_and_for_those_whose_outputs_they_read() -> None:
    reads = {"artifacts": {"m": {"taskOutputArtifact": {"producerTask": "b", "outputArtifactKey": "m"}}}}
    tasks = {
        "a": task("a"),
        "b": task("a", inputs={"x": output("a")}),
        "c": {**task("a"), "inputs": reads},
        "d": task("a", after=("c",)),
    }
    assert shown(read(pipeline(tasks)), "pods") == "exact 1"
    assert shown(read(pipeline({name: task("a") for name in "abcd"})), "pods") == "exact 4"


def test_a_task_of_a_group_is_named_by_its_path_and_placed_in_its_component() -> None:
    demand = read_text(
        """
components:
  comp-a: {executorLabel: exec-a}
  comp-sub:
    dag:
      tasks:
        inner: {componentRef: {name: comp-a}}
deploymentSpec: {executors: {exec-a: {container: {image: i}}}}
pipelineInfo: {name: p}
root:
  dag:
    tasks:
      outer: {componentRef: {name: comp-sub}}
"""
    )
    (step,) = demand.steps
    assert (step.name, step.where.line, step.where.column, step.where.file) == ("outer.inner", 7, 9, "pipeline.yaml")


@pytest.mark.parametrize(
    ("limit", "peak"),
    [(None, "exact 5"), (2, "exact 2"), (0, "exact 5"), (9, "exact 5")],
)
def test_a_loop_over_a_list_has_a_copy_for_each_item_and_a_limit(limit: int | None, peak: str) -> None:
    components = {"comp-loop": group({"a": task("a")})}
    demand = read(pipeline({"each": task("loop", **loop([1, 2, 3, 4, 5], limit=limit))}, components=components))
    assert shown(demand, "pods") == peak
    assert demand.steps[0].copies == 5


def test_a_loop_over_a_parameter_counts_its_default_and_a_value_that_is_given() -> None:
    components = {"comp-loop": group({"a": task("a")}, l=LIST)}
    tasks = {"each": task("loop", inputs={"l": given("names")}, **loop("l"))}
    document = pipeline(tasks, components=components, params={"names": {**LIST, "defaultValue": ["x", "y"]}})
    assert shown(read(document), "pods") == "exact 2"
    assert shown(read(document, params={"names": '["x", "y", "z"]'}), "pods") == "exact 3"
    job = {"pipelineSpec": document, "runtimeConfig": {"parameterValues": {"names": ["x"]}}}
    assert shown(read(job), "pods") == "exact 1"


def test_a_list_may_be_the_json_text_of_a_parameter() -> None:
    components = {"comp-loop": group({"a": task("a")}, l=STRING)}
    tasks = {"each": task("loop", inputs={"l": constant('["x", "y"]')}, **loop("l"))}
    assert shown(read(pipeline(tasks, components=components)), "pods") == "exact 2"


def test_a_loop_over_an_output_is_unknown_and_says_why_and_where() -> None:
    components = {"comp-loop": group({"a": task("a")}, l=LIST)}
    tasks = {"make": task("a"), "each": task("loop", inputs={"l": output("make")}, **loop("l"))}
    demand = read(pipeline(tasks, components=components))
    peak = demand.peak["pods"]
    assert peak.bound == "unknown"
    assert peak.because is not None
    assert 'each runs over l: it is the output "Output" of the task "make" (pipeline.yaml:1)' in peak.because
    assert demand.by_name["each.a"].copies is None


def test_a_loop_over_a_parameter_without_a_default_is_unknown() -> None:
    components = {"comp-loop": group({"a": task("a")}, l=LIST)}
    tasks = {"each": task("loop", inputs={"l": given("names")}, **loop("l"))}
    peak = read(pipeline(tasks, components=components, params={"names": LIST})).peak["pods"]
    assert peak.bound == "unknown"
    assert peak.because is not None
    assert 'the parameter "names" of the pipeline has no default' in peak.because


def test_a_loop_inside_a_loop_over_its_item_is_bounded_by_the_longest() -> None:
    components = {
        "comp-inner": group({"a": task("a")}, l=LIST),
        "comp-outer": group({"in": task("inner", inputs={"l": given("item")}, **loop("l", item="x"))}, item=LIST),
    }
    demand = read(pipeline({"out": task("outer", **loop([[1, 2, 3], [4]]))}, components=components))
    assert shown(demand, "pods") == "at-most 6"


def test_a_loop_over_artifacts_is_unknown_and_kubeflow_does_not_run_it() -> None:
    iterator = {"artifactIterator": {"items": {"inputArtifact": "m"}, "itemInput": "one"}}
    document = pipeline({"each": {**task("loop"), **iterator}}, components={"comp-loop": group({"a": task("a")})})
    demand = read(document)
    assert shown(demand, "pods") == "unknown"
    assert [(each.code, each.severity) for each in demand.refusals] == [("GF729", "warning")]
    assert [(each.code, each.severity) for each in read(document, engine="kubeflow").refusals] == [("GF729", "error")]


def test_a_loop_without_items_has_no_pods_but_its_driver() -> None:
    document = pipeline({"each": task("loop", **loop([]))}, components={"comp-loop": group({"a": task("a")})})
    assert shown(read(document), "pods") == "exact 0"
    assert shown(read(document, engine="kubeflow"), "pods") == "exact 1"


@pytest.mark.parametrize(
    ("condition", "value", "peak"),
    [
        ("inputs.parameter_values['x'] == 'yes'", constant("yes"), "exact 1"),
        ("inputs.parameter_values['x'] == 'yes'", constant("no"), "exact 0"),
        ("inputs.parameter_values['x'] == 'yes'", given("answer"), "exact 1"),
        ("!(inputs.parameter_values['x'] == 'yes') && (true)", constant("yes"), "exact 0"),
        ("int(inputs.parameter_values['x']) > 5", constant(7.0), "exact 1"),
        ("int(inputs.parameter_values['x']) > 5", constant(3.0), "exact 0"),
        ("inputs.parameter_values['x'] == 'yes' || true", given("open"), "exact 1"),
        ("inputs.artifacts['m'][0].properties['accuracy'] > 90", constant("no"), "exact 1"),
    ],
)
def test_a_condition_on_constants_is_decided_and_others_may_hold(condition: str, value: object, peak: str) -> None:
    components = {"comp-condition": group({"a": task("a")}, x=STRING if value != constant(7.0) else {})}
    tasks = {"when": task("condition", inputs={"x": value}, triggerPolicy={"condition": condition})}
    params = {"answer": {**STRING, "defaultValue": "no"}, "open": STRING}
    assert shown(read(pipeline(tasks, components=components, params=params)), "pods") == peak


def test_a_value_that_is_given_decides_a_condition_where_a_default_does_not() -> None:
    components = {"comp-condition": group({"a": task("a")}, x=STRING)}
    when = {"condition": "inputs.parameter_values['x'] == 'yes'"}
    tasks = {"when": task("condition", inputs={"x": given("answer")}, triggerPolicy=when)}
    document = pipeline(tasks, components=components, params={"answer": {**STRING, "defaultValue": "no"}})
    assert dict(read(document).conditional) == {"when": False}
    assert not read(document).steps[0].is_sure
    assert read(document, params={"answer": "no"}).steps == ()
    assert dict(read(document, params={"answer": "yes"}).conditional) == {}


def branches(no: str) -> Demand:
    components = {"comp-yes": group({"a": task("a")}, x=STRING), "comp-no": group({"a": task("a")}, x=STRING)}
    same = {"x": given("answer")}
    tasks = {
        "yes": task("yes", inputs=same, triggerPolicy={"condition": "inputs.parameter_values['x'] == 'y'"}),
        "no": task("no", inputs=same, triggerPolicy={"condition": no}),
    }
    return read(pipeline(tasks, components=components, params={"answer": STRING}))


@pytest.mark.parametrize("no", ["!(inputs.parameter_values['x'] == 'y')", "inputs.parameter_values['x'] == \"z\""])
def test_branches_that_exclude_each_other_never_meet(no: str) -> None:
    assert shown(branches(no), "pods") == "exact 1"


@pytest.mark.parametrize("no", ["inputs.parameter_values['x'] != 'z'", "inputs.parameter_values['x'] == 'y'", "1 == 1"])
def test_branches_that_may_not_exclude_each_other_are_a_bound(no: str) -> None:
    assert shown(branches(no), "pods") in ("at-most 2", "exact 2")


def test_the_default_of_a_parameter_that_a_loop_runs_over_is_said() -> None:
    xs = {"xs": {"parameterType": "LIST", "defaultValue": [1, 2, 3]}}
    components = {"comp-loop": group({"a": task("a")}, item=STRING)}
    document = pipeline(
        {"each": task("loop", inputs={"x": given("xs")}, **loop("x"))}, components=components, params=xs
    )
    (note,) = [each for each in read(document).refusals if each.code == "GF529"]
    assert "counted with 3 items, its default" in note.message and note.severity == "note"
    assert not [each for each in read(document, params={"xs": "[1]"}).refusals if each.code == "GF529"]


def test_amounts_that_are_defaults_of_parameters_are_said() -> None:
    gpus = {"gpus": {**STRING, "defaultValue": "2"}, "cpu": {**STRING, "defaultValue": "4"}}
    wanted = container(
        resourceCpuLimit="{{$.inputs.parameters['cpu']}}",
        resourceMemoryLimit="1Gi",
        accelerator={"resourceType": "nvidia.com/gpu", "resourceCount": "{{$.inputs.parameters['gpus']}}"},
    )
    tasks = {"a": task("a", inputs={"gpus": given("gpus"), "cpu": given("cpu")})}
    components = {
        "comp-a": {"executorLabel": "exec-a", "inputDefinitions": {"parameters": {"gpus": STRING, "cpu": STRING}}}
    }
    document = pipeline(tasks, components=components, executors={"exec-a": wanted}, params=gpus)
    notes = [each for each in read(document).refusals if each.code == "GF529"]
    assert [each.message for each in notes] == [
        'task "a": resourceCpuLimit is 4, the default of a parameter that a run may set',
        'task "a": accelerator.resourceCount is 2, the default of a parameter that a run may set',
    ]
    assert {each.severity for each in notes} == {"note"}
    (left,) = [each for each in read(document, params={"gpus": "8"}).refusals if each.code == "GF529"]
    assert "resourceCpuLimit" in left.message


def test_a_condition_on_the_item_of_a_loop_may_leave_items_out() -> None:
    components = {
        "comp-loop": group(
            {
                "when": task(
                    "if",
                    inputs={"x": given("item")},
                    triggerPolicy={"condition": "inputs.parameter_values['x'] == 'a'"},
                )
            },
            item=STRING,
        ),
        "comp-if": group({"a": task("a")}, x=STRING),
    }
    demand = read(pipeline({"each": task("loop", **loop(["a", "b"]))}, components=components))
    assert dict(demand.conditional) == {"each.when": True}
    assert shown(demand, "pods") == "at-most 2"


def test_an_exit_task_runs_when_its_group_has_ended() -> None:
    at_the_end = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    tasks = {"main": task("sub"), "clean": task("a", after=("main",), triggerPolicy=at_the_end)}
    demand = read(pipeline(tasks, components={"comp-sub": group({"x": task("a"), "y": task("a")})}))
    assert shown(demand, "pods") == "exact 2"
    assert {step.name: step.is_exit for step in demand.steps} == {"main.x": False, "main.y": False, "clean": True}


def test_what_waits_beside_an_exit_task_makes_the_peak_a_bound() -> None:
    at_the_end = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    tasks = {"a": task("a"), "clean": task("a", after=("a",), triggerPolicy=at_the_end), "b": task("a", after=("a",))}
    assert shown(read(pipeline(tasks)), "pods") == "at-most 2"


def test_an_exit_task_of_two_tasks_runs_once_after_each() -> None:
    at_the_end = {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    tasks = {"a": task("a"), "b": task("a"), "clean": task("a", after=("a", "b"), triggerPolicy=at_the_end)}
    demand = read(pipeline(tasks))
    assert demand.by_name["clean"].copies == 2
    assert demand.peak["pods"].bound == "at-most"


def test_what_waits_for_a_group_that_never_runs_never_runs_either() -> None:
    never = {"condition": "inputs.parameter_values['x'] == 'a'"}
    tasks = {
        "if": task("if", inputs={"x": constant("b")}, triggerPolicy=never),
        "then": task("a", after=("if",)),
        "later": task("a", after=("then",)),
        "other": task("a"),
    }
    components = {"comp-if": group({"a": task("a")}, x=STRING)}
    assert [step.name for step in read(pipeline(tasks, components=components)).steps] == ["other"]
    # A loop with such a condition succeeds without an item.
    tasks["if"] = {**tasks["if"], **loop([1, 2])}
    steps = read(pipeline(tasks, components=components)).steps
    assert [step.name for step in steps] == ["then", "later", "other"]


def test_retries_are_the_tasks_own_or_those_of_the_group_around_it() -> None:
    components = {"comp-sub": group({"x": task("a"), "y": task("a", retryPolicy={"maxRetryCount": 1})})}
    demand = read(pipeline({"s": task("sub", retryPolicy={"maxRetryCount": "3"})}, components=components))
    assert {step.name: step.tries for step in demand.steps} == {"s.x": 4, "s.y": 2}


def test_a_cached_task_is_counted_and_a_note_says_what_that_means() -> None:
    demand = read(pipeline({"a": task("a", cachingOptions={"enableCache": True}), "b": task("a", cachingOptions={})}))
    assert shown(demand, "pods") == "exact 2"
    assert [(each.code, each.severity) for each in demand.refusals] == [("GF734", "note")]
    assert {step.name: step.is_sure for step in demand.steps} == {"a": False, "b": True}


def test_what_waits_for_a_skipped_group_is_not_sure_to_run() -> None:
    components = {"comp-if": group({"a": task("a")}, x=STRING)}
    when = {"condition": "inputs.parameter_values['x'] == 'a'"}
    tasks = {
        "if": task("if", inputs={"x": given("answer")}, triggerPolicy=when),
        "then": task("a", after=("if",)),
        "other": task("a"),
    }
    demand = read(pipeline(tasks, components=components, params={"answer": STRING}))
    assert {step.name: step.is_sure for step in demand.steps} == {"if.a": False, "then": False, "other": True}


def test_a_component_that_contains_itself_is_unknown_and_reading_ends() -> None:
    components = {"comp-again": group({"a": task("a"), "once-more": task("again")})}
    demand = read(pipeline({"start": task("again")}, components=components))
    assert shown(demand, "pods") == "unknown"
    (part,) = demand.unseen
    assert part.step == "start.once-more"
    assert 'the component "comp-again" contains itself' in part.because
    assert part.where.line == 1


def test_groups_that_nest_without_end_are_unknown() -> None:
    components = {f"comp-{n}": group({"in": task(str(n + 1))}) for n in range(90)}
    demand = read(pipeline({"start": task("0")}, components={**components, "comp-90": group({"a": task("a")})}))
    assert "nested deeper than 50 levels" in (demand.peak["pods"].because or "")


def test_components_that_multiply_are_counted_and_not_read() -> None:
    components = {f"comp-{n}": group({"x": task(str(n + 1)), "y": task(str(n + 1))}) for n in range(40)}
    demand = read(pipeline({"start": task("0")}, components={**components, "comp-40": group({"a": task("a")})}))
    assert demand.steps == ()
    assert "more than 20,000 tasks" in (demand.peak["pods"].because or "")


def test_loops_in_loops_in_loops_are_counted_without_being_run_through() -> None:
    components = {f"comp-{n}": group({"in": task(str(n + 1), **loop(list(range(1000))))}) for n in range(12)}
    demand = read(pipeline({"start": task("0")}, components={**components, "comp-12": group({"a": task("a")})}))
    assert demand.steps[0].copies == 1000**12
    assert demand.peak["pods"].value is not None
    assert demand.peak["pods"].value.value == 1000**12


@pytest.mark.parametrize(
    ("tasks", "code", "words"),
    [
        ({"a": {"componentRef": {"name": "comp-gone"}}}, "GF727", 'task "a" refers to the component "comp-gone"'),
        ({"a": task("a", after=("gone",))}, "GF727", 'task "a" waits for "gone", which is no task beside it'),
        ({"a": task("a", inputs={"x": output("gone")})}, "GF727", 'task "a" waits for "gone"'),
        (
            {"a": task("a", after=("b",)), "b": task("a", after=("a",))},
            "GF728",
            "tasks wait for each other: a -> b -> a",
        ),
        ({"a": task("a", after=("a",))}, "GF728", "tasks wait for each other: a -> a"),
        (
            {"a": {**task("a"), "dependentTasks": "b"}},
            "GF726",
            "root.dag.tasks.a.dependentTasks is a text; it should be a list",
        ),
        ({"a": 3}, "GF726", "root.dag.tasks.a is the number 3; it should be a mapping"),
        ({"a": task("a", **loop(3))}, "GF730", None),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tasks: object, code: str, words: str | None) -> None:
    document = pipeline({"a": task("a")})
    document["root"]["dag"]["tasks"] = tasks
    with pytest.raises(GpuflowError) as refusal:
        read(document)
    (finding,) = refusal.value.findings
    assert finding.code == code
    assert finding.where.line == 1
    assert finding.where.column
    assert finding.where.column > 1
    assert finding.hint or code == "GF727"
    assert words is None or words in finding.message


def test_a_component_without_its_executor_is_said() -> None:
    document = pipeline({"a": task("a")})
    document["components"]["comp-a"] = {"executorLabel": "exec-gone"}
    with pytest.raises(GpuflowError, match='GF727 the component "comp-a" names the executor "exec-gone"'):
        read(document)
    document["components"]["comp-a"] = {}
    with pytest.raises(GpuflowError, match='GF727 the component "comp-a" has neither dag nor executor'):
        read(document)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"naem": "x"}, '"naem" is not a parameter of the pipeline'),
        ({"count": "many"}, 'the parameter "count" is a NUMBER_INTEGER, and "many" is not'),
        ({"count": "1.5"}, 'the parameter "count" is a NUMBER_INTEGER, and "1.5" is not'),
        ({"list": "{}"}, 'the parameter "list" is a LIST'),
    ],
)
def test_a_parameter_that_the_pipeline_does_not_have_is_refused(params: dict[str, str], words: str) -> None:
    known = {"name": STRING, "count": {"parameterType": "NUMBER_INTEGER"}, "list": LIST}
    with pytest.raises(GpuflowError, match="GF733") as refusal:
        read(pipeline({"a": task("a")}, params=known), params=params)
    assert words in refusal.value.findings[0].message


@pytest.mark.parametrize("kind", ["resolver", "customJob"])
def test_executors_that_kubeflow_does_not_run_are_unknown_and_refused(kind: str) -> None:
    document = pipeline({"a": task("a")}, executors={"exec-a": {kind: {"x": {}}}})
    demand = read(document, engine="kubeflow")
    assert [(each.code, each.severity) for each in demand.refusals] == [("GF729", "error")]
    assert shown(demand, "pods") == "unknown"


def test_a_component_that_was_compiled_alone_is_one_step() -> None:
    document = pipeline({"a": task("a")}, executors=CPU)
    document["root"] = {"executorLabel": "exec-a"}
    demand = read(document)
    assert [step.name for step in demand.steps] == ["a"]
    assert shown(demand, "limits.cpu") == "exact 2"


def test_a_version_of_a_pipeline_in_the_cluster_is_read_with_its_platform() -> None:
    document = pipeline({"a": task("a")}, executors=CPU)
    settings = {
        "platforms": {
            "kubernetes": {"deploymentSpec": {"executors": {"exec-a": {"nodeSelector": {"labels": {"k": "v"}}}}}}
        }
    }
    version = {
        "apiVersion": "pipelines.kubeflow.org/v2beta1",
        "kind": "PipelineVersion",
        "metadata": {"name": "mine-v1"},
        "spec": {"pipelineName": "mine", "pipelineSpec": document, "platformSpec": settings},
    }
    demand = read(version)
    assert demand.name == "mine-v1"
    assert shown(demand, "limits.cpu") == "exact 2"
    assert demand.steps[0].pod["spec"]["nodeSelector"] == {"k": "v"}


def test_drivers_are_counted_only_with_the_engine() -> None:
    components = {"comp-loop": group({"a": task("a"), "b": task("a")})}
    document = pipeline({"each": task("loop", **loop([1, 2, 3])), "alone": task("a")}, components=components)
    assert read(document).driver is None
    demand = read(document, engine="kubeflow")
    # The run, the loop, its three items, six containers in them, and the container beside it.
    assert demand.driver_pods is not None
    assert (demand.driver_pods.at_most, demand.driver_pods.at_least) == (12, 12)
    assert demand.driver is not None
    assert demand.driver.amounts.requests["cpu"].milli == 100
    assert shown(demand, "requests.cpu") == "exact 700m"
    assert shown(demand, "requests.memory") == "exact 1792Mi"
    assert [each["name"] for each in demand.steps[0].pod["spec"]["initContainers"]] == ["init", "kfp-launcher"]


def test_an_importer_has_a_pod_of_kubeflow_s_own() -> None:
    document = pipeline(
        {"get": task("get"), "use": task("a", after=("get",))}, executors={"exec-get": {"importer": {}}}
    )
    assert [step.name for step in read(document).steps] == ["use"]
    demand = read(document, engine="kubeflow")
    assert [step.name for step in demand.steps] == ["get", "use"]
    assert demand.by_name["get"].overhead == demand.by_name["get"].usage
    assert demand.driver_pods is not None
    assert demand.driver_pods.at_most == 2


def test_a_model_in_an_image_is_a_container_beside_the_step() -> None:
    uri = {"importer": {"artifactUri": {"constant": "oci://registry.example.com/model:1"}}}
    read_model = {"artifacts": {"m": {"taskOutputArtifact": {"producerTask": "get", "outputArtifactKey": "artifact"}}}}
    components = {
        "comp-get": {"executorLabel": "exec-get", "outputDefinitions": {"artifacts": {"artifact": {}}}},
    }
    tasks = {"get": task("get"), "use": {**task("a"), "inputs": read_model}}
    demand = read(pipeline(tasks, components=components, executors={"exec-get": uri}))
    spec = demand.by_name["use"].pod["spec"]
    assert [each["name"] for each in spec["containers"]] == ["main", "oci-0"]
    assert [each["name"] for each in spec["initContainers"]] == ["oci-prepull-0"]
    assert spec["containers"][1]["image"] == "registry.example.com/model:1"


def test_two_pipelines_in_one_file_have_the_platform_documents_that_follow_them() -> None:
    trees = [
        pipeline({"a": task("a")}),
        platform(a={"nodeSelector": {"labels": {"n": "1"}}}),
        pipeline({"a": task("a")}),
        platform(a={"nodeSelector": {"labels": {"n": "2"}}}),
    ]
    foreign, _ = foreign_in(documents_of(trees, "both.yaml"))
    demands = [each.demand(Options(Site.load("nvidia"))) for each in foreign]
    selectors = [each.steps[0].pod["spec"]["nodeSelector"] for each in demands if isinstance(each, Demand)]
    assert selectors == [{"n": "1"}, {"n": "2"}]


def test_a_platform_document_is_read_with_its_pipeline_and_alone_starts_nothing() -> None:
    both = documents_of([pipeline({"a": task("a")}), platform(a={})], "both.yaml")
    assert [len(each) for each in foreign_in(both)] == [1, 0]
    alone = documents_of([platform(a={})], "alone.yaml")
    assert [len(each) for each in foreign_in(alone)] == [0, 1]
