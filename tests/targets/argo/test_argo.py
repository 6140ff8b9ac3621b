"""What people who keep Argo YAML in Git get from a pipeline.

Tests gpuflow/targets/argo/graph.py and gpuflow/targets/argo/workflow.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuflow.cli.main import main
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import load, loads
from gpuflow.targets.argo import target
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.constructs import VOCABULARY
from gpuflow.targets.target import Request, compile_with
from tests.targets.argo.manifests import HEAD, artifact, compiled, schema_errors, task, template
from tools.files_that_run import files_apart

HERE = Path(__file__).parent
DEMO = HERE.parents[2] / "gpuflow" / "demo"


def test_the_demo_pipeline_compiles_to_the_committed_golden(golden: Callable[[Path, str], None]) -> None:
    request = Request(load(DEMO / "nightly.yaml"), Site.load(str(DEMO / "site.yaml")), "team-a", "nightly.yaml")
    compiled = compile_with(target, request, allow_lossy=False)
    assert compiled.losses == ()
    golden(HERE / "golden" / compiled.artifact.name, compiled.artifact.text)


def test_every_construct_has_an_answer() -> None:
    assert set(target.capabilities) == set(VOCABULARY)


def test_compiled_manifests_satisfy_argos_own_schema(corpora: Path) -> None:
    for text, options in ((CONSTRUCTS, {}), (CONSTRUCTS, {"kind": "Workflow"}), (SCHEDULED, {})):
        assert schema_errors(compiled(text, **options), corpora) == []


SCHEDULED = """
schedule: {cron: "0 3 * * *", timezone: Europe/Berlin, concurrency: replace, suspended: true}
steps: {a: {command: [x]}}
"""
CONSTRUCTS = """
description: everything Argo can say
params:
  n: {type: int, default: 3, enum: [1, 2, 3], description: how many}
  go: {type: bool, default: true}
  items: {type: json, default: [a, b]}
parallel: 7
deadline: 2h
claims: {work: {size: 10Gi, storage_class: fast}}
steps:
  first:
    command: [x, {param: n}, {run: id}]
    env: {A: b, S: {secret: s, key: k}, C: {config_map: c, key: k}}
    env_from: [{secret: s2, prefix: P_}]
    volumes:
      /a: {claim: data, read_only: true, sub_path: sub}
      /b: {new_claim: work}
      /c: {config_map: cm}
      /d: {secret: sec}
      /e: {empty_dir: 1Gi}
      /f: {memory: 1Gi}
    shm: 1Gi
    working_dir: /w
    image_pull_policy: Always
    image_pull_secrets: [regcred]
    service_account: robot
    annotations: {example.com/a: "yes"}
    termination_grace: 2m
    ephemeral_storage: 1Gi
    timeout: 10m
    outputs: {rows: {type: int, default: 0}, names: json}
    init_containers: [{name: get, image: g, command: [get]}]
    sidecars: [{name: proxy, image: q, command: [serve], ports: [80], probes: {readiness: {tcp: 80}}}]
    probes: {liveness: {command: [ok]}, startup: {http: {port: 80}}}
    security: {user: 5, read_only_root: true}
    priority: {pod: high, queue: urgent}
    queue: research
    spot: never
    topology: {spread: zone}
    kubernetes:
      resources: {rdma/hca: 1}
      node_selector: {a: b}
      tolerations: [{key: k, operator: Exists}]
      scheduler: volcano
      runtime_class: kata
      host_ipc: true
    retry: {failures: 2, interruptions: 3, backoff: 10s, final_exit_codes: [3]}
  each:
    for_each: {x: {param: items}}
    parallel: 2
    command: [y, {item: x}, {output: first.rows}]
    outputs: {score: float}
    mig: 1g.10gb of a100-80gb
  grid:
    for_each: {a: [1, 2], b: {range: 3}}
    command: [z, {item: a}, {item: b}]
    gpu: {memory: 40Gi}
  dynamic:
    for_each: {name: {output: first.names}}
    command: [d, {item: name}]
    device_claim: {template: gpus}
  ask: {needs: [each], approval: may I?}
  gate:
    needs: [ask]
    when: steps.first.rows > 2 and (params.go or not params.n in [1, 2])
    if_skipped: run
    script: {interpreter: [python3], run: "print('hi')"}
  inner:
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: sub
      defaults: {image: j}
      params: {k: {type: int}}
      steps:
        one: {command: [o, {param: k}], outputs: {v: int}}
      outputs: {v: {output: one.v}}
    params: {k: {param: n}}
  after: {command: [p, {output: inner.v}], security: {run_as_root: true}}
exit:
  bye: {command: [bye]}
  sad: {on: failure, command: [sad]}
  glad: {on: success, command: [glad]}
"""


def test_a_pipeline_becomes_a_workflow_template_and_a_schedule_a_cron_workflow() -> None:
    assert compiled("steps: {a: {command: [x]}}")["kind"] == "WorkflowTemplate"
    cron = compiled(SCHEDULED)
    assert cron["kind"] == "CronWorkflow"
    assert cron["spec"]["schedules"] == ["0 3 * * *"]
    assert cron["spec"]["timezone"] == "Europe/Berlin"
    assert cron["spec"]["concurrencyPolicy"] == "Replace"
    assert cron["spec"]["suspend"] is True


def test_a_workflow_gets_a_generated_name() -> None:
    metadata = compiled("steps: {a: {command: [x]}}", kind="Workflow")["metadata"]
    assert metadata["generateName"] == "p-" and "name" not in metadata


@pytest.mark.parametrize("kind", ["WorkflowTemplate", "ClusterWorkflowTemplate", "Workflow", "CronWorkflow"])
def test_a_run_has_the_pipelines_labels_whatever_it_was_started_from(kind: str) -> None:
    manifest = compiled(f"labels: {{team: nlp}}\n{SCHEDULED}", kind=kind)
    # A run of a template or of a schedule is another object; a Workflow is the run itself.
    run = manifest["metadata"] if kind == "Workflow" else manifest["spec"]["workflowMetadata"]
    assert run["labels"] == {"team": "nlp", "gpuflow.dev/pipeline": "p"} == manifest["metadata"]["labels"]
    assert kind != "Workflow" or "workflowMetadata" not in manifest["spec"]


def test_a_schedule_whose_runs_would_lack_a_parameter_is_refused() -> None:
    text = f"params: {{day: {{type: string}}}}\n{SCHEDULED}"
    with pytest.raises(GpuflowError, match='argo starts "p" automatically, and the parameter "day" has no default'):
        compiled(text)
    assert compiled(text, kind="WorkflowTemplate")["kind"] == "WorkflowTemplate"


CRONS = {
    "0 0 * * 7": "0 0 * * 0",
    "5 4 * * sat-7": "5 4 * * 0,6",
    "0 0 * * 0-7": "0 0 * * 0,1,2,3,4,5,6",
    "0 0 * * 1-07/2,tue": "0 0 * * 0,1,3,5,tue",
    "*/5 0-6 7 7 mon-fri": "*/5 0-6 7 7 mon-fri",
    "0 0 1,15 * *": "0 0 1,15 * *",
}


@pytest.mark.parametrize("cron", CRONS)
def test_sunday_is_written_as_argo_reads_it(cron: str) -> None:
    manifest = compiled(f'schedule: "{cron}"\nsteps: {{a: {{command: [x]}}}}')
    assert manifest["spec"]["schedules"] == [CRONS[cron]]


def test_another_kind_is_refused_with_a_suggestion() -> None:
    with pytest.raises(GpuflowError, match="did you mean"):
        compiled("steps: {a: {command: [x]}}", kind="Workflowtemplate")


def test_a_reference_to_an_output_is_a_dependency_and_an_argument() -> None:
    found = task(compiled(CONSTRUCTS), "after")
    assert found["depends"] == "inner.Succeeded"
    (given,) = found["arguments"]["parameters"]
    assert given["name"] == "inner-v"
    assert given["value"].startswith("{{=(tasks['inner'].outputs.parameters['v'] matches ")


def test_a_skipped_need_does_not_count_as_done_unless_the_step_says_so() -> None:
    manifest = compiled(CONSTRUCTS)
    assert task(manifest, "ask")["depends"] == "each.Succeeded"
    assert "ask.Skipped" in task(manifest, "gate")["depends"]


def test_conditions_read_every_value_as_its_type() -> None:
    assert task(compiled(CONSTRUCTS), "gate")["when"] == (
        "{{=(asInt(tasks['first'].outputs.parameters['rows']) > 2) && "
        "(((workflow.parameters['go'] == 'true')) || (!(asInt(workflow.parameters['n']) in [1, 2])))}}"
    )


def test_a_capped_fan_out_stands_in_a_template_of_its_own() -> None:
    manifest = compiled(CONSTRUCTS)
    loop = template(manifest, "each-loop")
    assert loop["parallelism"] == 2
    assert loop["dag"]["tasks"][0]["withParam"] == "{{inputs.parameters.items}}"
    assert "workflow.parameters['items']" in task(manifest, "each")["arguments"]["parameters"][1]["value"]
    assert loop["outputs"]["parameters"][0]["valueFrom"]["parameter"] == "{{tasks.each.outputs.parameters.score}}"
    assert task(manifest, "each")["template"] == "each-loop"


def test_combinations_are_written_out() -> None:
    items = task(compiled(CONSTRUCTS), "grid")["withItems"]
    assert len(items) == 6
    assert items[0] == {"a": "1", "b": "0"}


def test_exit_steps_run_by_how_the_run_ended() -> None:
    manifest = compiled(CONSTRUCTS)
    assert manifest["spec"]["onExit"] == "exit"
    assert "when" not in task(manifest, "bye", "exit")
    assert task(manifest, "sad", "exit")["when"] == "{{workflow.status}} != Succeeded"
    assert task(manifest, "glad", "exit")["when"] == "{{workflow.status}} == Succeeded"


def test_what_a_template_has_no_field_for_is_patched_into_the_pod() -> None:
    patch = json.loads(template(compiled(CONSTRUCTS), "first")["podSpecPatch"])
    assert sorted(patch) == [
        "hostIPC",
        "imagePullSecrets",
        "runtimeClassName",
        "terminationGracePeriodSeconds",
        "topologySpreadConstraints",
    ]
    assert json.loads(template(compiled(CONSTRUCTS), "dynamic")["podSpecPatch"]) == {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    }


def test_claims_are_made_for_each_run_and_mounted_by_name() -> None:
    manifest = compiled(CONSTRUCTS)
    (claim,) = manifest["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "run-work"
    first = template(manifest, "first")
    assert {"name": "run-work", "mountPath": "/b"} in first["container"]["volumeMounts"]
    assert "run-work" not in [volume["name"] for volume in first["volumes"]]


def retry(text: str) -> dict[str, Any]:
    found: dict[str, Any] = template(compiled(f"steps: {{a: {{command: [x], {text}}}}}"), "a")["retryStrategy"]
    return found


def test_a_checkpointed_step_lets_the_supervisor_count() -> None:
    strategy = retry("checkpoint: {path: /c, store: s3://b/c}, retry: {failures: 1, interruptions: 20}")
    assert strategy == {"limit": "22", "retryPolicy": "Always", "expression": "asInt(lastRetry.exitCode) != 79"}


def test_the_limit_has_room_for_a_last_look_only_where_a_supervisor_counts_and_any_node_will_do() -> None:
    """The pod of the last attempt may go after its program has ended well: the next one finds the success marker."""
    kept, budgets = "checkpoint: {path: /c, store: s3://b/c}", "failures: 1, interruptions: 20"
    assert retry(f"{kept}, retry: {{{budgets}}}")["limit"] == "22"
    assert retry(f"{kept}, retry: {{{budgets}, other_node: true}}")["limit"] == "21"
    assert retry(f"retry: {{{budgets}}}")["limit"] == "21"
    assert retry(f"{kept}, retry: 21")["limit"] == "21"


def test_backoff_has_whole_seconds_and_never_a_max_duration() -> None:
    strategy = retry("retry: {failures: 2, backoff: {start: 1m, factor: 3, max: 10m}}")
    assert strategy["backoff"] == {"duration": "60s", "factor": "3", "cap": "600s"}


@pytest.mark.parametrize(
    ("construct", "text"),
    [
        ("on_data", "on_data: s3://b/x\nsteps: {a: {command: [x]}}"),
        ("schedule.catch_up", 'schedule: {cron: "0 0 * * *", catch_up: true}\nsteps: {a: {command: [x]}}'),
        ("queue_timeout", "steps: {a: {command: [x], queue_timeout: 1h}}"),
        ("approval.timeout", "steps: {a: {approval: {message: m, timeout: 1h}}}"),
    ],
)
def test_what_argo_cannot_say_is_refused_by_name(construct: str, text: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        compiled(text)
    (finding,) = refusal.value.findings
    assert finding.code == "GF301"
    assert construct in finding.message
    assert "--allow-lossy" in (finding.hint or "")


def test_losses_are_written_into_the_artifact_when_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "p.yaml"
    source.write_text(HEAD + "steps: {a: {command: [x], queue_timeout: 1h}, b: {command: [y], queue_timeout: 1h}}")
    assert main(["compile", str(source), "--target", "argo", "--allow-lossy"]) == 0
    out, err = capsys.readouterr()
    assert '# LOST: argo does not support queue_timeout (steps "a", "b")' in out
    assert "GF303" in err


def test_hera_users_get_hera_objects() -> None:
    import gpuflow.argo

    workflow = gpuflow.argo.to_hera(loads(HEAD + CONSTRUCTS, "p.yaml"), "nvidia", namespace="team-a")
    assert type(workflow).__name__ == "WorkflowTemplate"
    assert workflow.to_dict()["metadata"]["name"] == "p"


@pytest.mark.go
def test_argos_own_validation_accepts_every_construct() -> None:
    from tests.differential.oracle import Oracle

    texts = [
        compile_with(
            target,
            Request(loads(HEAD + text, "p.yaml"), Site.load("nvidia"), "team-a", "p.yaml", (), ArgoOptions(**options)),
            allow_lossy=False,
        ).artifact.text
        for text, options in ((CONSTRUCTS, {}), (CONSTRUCTS, {"kind": "Workflow"}), (SCHEDULED, {}))
    ]
    texts += [artifact(f'schedule: "{cron}"\nsteps: {{a: {{command: [x]}}}}') for cron in CRONS]
    texts.append((HERE / "golden" / "nightly.yaml").read_text(encoding="utf-8"))
    with Oracle("argo", "lint") as oracle:
        assert [answer["errors"] for answer in oracle.ask([{"text": text} for text in texts])] == [[] for _ in texts]


@pytest.mark.parametrize(("outer", "inner"), [("timeout: 1h, ", ""), ("", "deadline: 1h, ")])
def test_a_time_limit_of_a_sub_pipeline_is_refused_by_name(outer: str, inner: str) -> None:
    text = f"steps: {{sub: {{{outer}pipeline: {{name: q, {inner}steps: {{a: {{image: i, command: [x]}}}}}}}}}}"
    with pytest.raises(GpuflowError, match=r"GF301 argo does not support pipeline\.(timeout|deadline)"):
        compiled(text)


def test_few_files_run_for_the_compile_of_the_readme() -> None:
    assert len(files_apart("compile")["executed"]) <= 190
