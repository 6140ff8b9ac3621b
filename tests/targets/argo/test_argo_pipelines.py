"""Pipelines of every shape, as people write them: Argo's schema and Argo's own validation take each, as every kind."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuflow.site import Site
from tests.targets.argo.manifests import artifact, schema_errors

SITE = """
apiVersion: gpuflow/v1
kind: Site
name: stage
extends: nvidia
spot: {labels: {example.com/spot: "true"}}
"""
INSIDE = """
    pipeline:
      name: inside
      defaults: {image: i}
      params: {x: {type: string}, n: {type: int, default: 2}}
      steps:
        list: {command: [list, {param: x}], outputs: {files: json}}
        read: {command: [read, {item: one}], for_each: {one: {output: list.files}}, when: params.n > 1, parallel: 2}
      outputs: {files: {output: list.files}}
"""
PIPELINES = {
    "every pair of a list": """
params: {names: {type: json, default: [a, b]}}
steps:
  pair: {command: [pair, {item: l}, {item: r}, {param: names}], for_each: {l: {param: names}, r: {param: names}}}
""",
    "combinations of a parameter and an output": """
params: {names: {type: json, default: [a, b]}}
steps:
  list: {command: [list], outputs: {files: json}}
  cell: {command: [cell, {item: a}, {item: b}], for_each: {a: {param: names}, b: {output: list.files}}, parallel: 3}
""",
    "a sub-pipeline for each item, and all it gave": f"""
params: {{names: {{type: json, default: [a]}}}}
steps:
  each:
    for_each: {{name: {{param: names}}}}
    parallel: 2
    params: {{x: {{item: name}}, n: 3}}{INSIDE}
  sum: {{command: [sum, {{output: each.files}}]}}
""",
    "a sub-pipeline twice, once under a condition": f"""
params: {{go: true, word: "{{{{x}}}}"}}
steps:
  first:
    when: params.go
    params: {{x: {{param: word}}}}{INSIDE}
  second:
    needs: [first]
    if_skipped: run
    params: {{x: fixed}}{INSIDE}
""",
    "exit steps that read outputs of steps and loops": """
params: {channel: ops}
steps:
  count: {command: [count], outputs: {rows: {type: int, default: 0}}}
  each: {command: [each, {item: x}], for_each: {x: [1, 2]}, outputs: {word: {type: string, default: ""}}}
exit:
  tell: {command: [tell, {output: count.rows}, {output: each.word}], on: failure, when: params.channel == 'ops'}
  cheer: {command: [cheer], on: success}
  keep: {command: [keep], env: {ROWS: {output: count.rows}}}
""",
    "conditions on every type": """
params: {i: 3, f: {type: float, default: 1.0e-05}, b: true, s: it's}
steps:
  a: {command: [a], outputs: {i: int, f: float, b: bool, s: string}}
  b:
    command: [b]
    when: >-
      params.i >= 2.5 and (params.f < 1 or not params.b) and params.s != 'x}} {{y'
      and steps.a.s not in ['p', '#'] and steps.a.b and steps.a.i in [1, 2]
  c: {command: [c, {item: k}], for_each: {k: {range: {start: 1, stop: 9, step: 3}}}, when: item.k != 4 and params.b}
""",
    "files and variables from everywhere": """
claims: {work: {size: 1Gi}}
steps:
  a:
    command: [a]
    working_dir: /with space
    image_pull_policy: Always
    image_pull_secrets: [registry]
    shm: 8Gi
    env:
      TOKEN: {secret: hub.token, key: k, optional: true}
      LEVEL: {config_map: settings, key: k}
      TEXT: "{{=1}} $(TOKEN) $$"
      RUN: {run: id}
    env_from: [{secret: all, prefix: P_, optional: true}, {config_map: settings}]
    volumes:
      /data: {claim: data.v1, sub_path: train, read_only: true}
      /more: {claim: data.v1}
      /keys: {secret: hub.keys}
      /settings: {config_map: settings, sub_path: one}
      /fast: {memory: 1Gi}
      /scratch: {empty_dir: 1Gi}
      /work: {new_claim: work}
""",
    "placement and identity": """
steps:
  a:
    command: [a]
    queue: research
    priority: {pod: high, queue: low}
    labels: {cost: "1e3"}
    annotations: {note: "yes 🚀"}
    topology: {spread: zone}
    security: {user: 5, group: 6, fs_group: 7, read_only_root: true, add_capabilities: [NET_BIND_SERVICE]}
    service_account: trainer
    termination_grace: 5m
    ephemeral_storage: 5Gi
    kubernetes:
      node_selector: {zone: "1"}
      tolerations: [{operator: Exists}]
      scheduler: volcano
      runtime_class: nvidia
      host_ipc: true
      host_network: true
      resources: {rdma/hca: 1}
""",
    "every form of retry": """
steps:
  a: {command: [a], retry: 1}
  b: {command: [b], retry: {interruptions: 3}, timeout: 2h}
  c:
    command: [c]
    retry:
      {failures: 2, interruptions: 5, backoff: {start: 10s, factor: 3, max: 5m}, retryable_exit_codes: [3, 137]}
  d:
    command: [d]
    memory: 1Gi
    retry: {failures: 3, more_memory: {max: 6Gi}, final_exit_codes: [2], other_node: true}
  e:
    command: [e]
    memory: {request: 1Gi, limit: 2Gi}
    retry: {failures: 3, more_memory: {factor: 1.5, max: 4Gi}}
    checkpoint: {path: /c, store: s3://models}
""",
    "containers beside and before, with probes": """
params: {p: "{{workflow.name}}"}
steps:
  a:
    command: [a]
    init_containers: [{name: i, image: j, command: [x, "{{y}}", {param: p}], env: {Q: {param: p}}}]
    sidecars: [{name: s, image: j, command: [y], ports: [80], probes: {liveness: {http: {port: 80}}}}]
    probes: {readiness: {tcp: 80, period: 5s}, startup: {command: [test, "{{"]}}
""",
    "an approval under a condition": """
params: {go: true}
steps:
  a: {command: [a]}
  ask: {approval: ship it?, needs: [a], when: params.go}
  b: {command: [b], needs: [ask]}
""",
    "text that looks like something else": """
params: {t: "a'b\\"c {{x}} $HOME $(date) 🚀 1e3 null", yes: "yes", seven: "007", nothing: ""}
steps:
  a: {script: {run: "echo '{{workflow.name}}' $$\\n{{=1+1}}", interpreter: [bash, -eu]}, env: {T: {param: t}}}
  b: {command: [b], args: [{param: t}, {param: yes}, {param: seven}, {param: nothing}, "", "{{item}}"]}
  c: {command: [c, {item: z}], for_each: {z: ["{{item}}", it's, $(A), "", 5, 0.5, true, null, [1], {a: b}]}}
  d: {command: [d, {item: p}, {item: q}], for_each: {p: ["{{", '"', "a\\nb"], q: ["}}", é]}}
""",
    "cached steps with bounds": """
parallel: 3
deadline: 1d
description: "a: b # c"
labels: {team: x}
steps:
  a: {command: [a], cache: true, outputs: {v: int}}
  b: {command: [b, {output: a.v}], cache: true}
""",
    "devices, on spot nodes until they are taken away": """
steps:
  a:
    command: [a]
    gpu: a100-80gb x 2
    spot: {mode: prefer, fallback_after: 2}
    retry: {interruptions: 4, failures: 1}
  b: {command: [b], mig: 1g.10gb of a100-80gb, spot: require}
  c: {command: [c], gpu: {any_of: [l4, a10]}}
  d: {command: [d], gpu: {memory: 40Gi}}
""",
    "names that meet those of templates": """
steps:
  main: {command: [a]}
  exit: {command: [a], needs: [main]}
  s-loop: {command: [a]}
  s: {command: [s, {item: x}], for_each: {x: [1, 2]}, parallel: 1}
  a-b: {pipeline: {name: q, defaults: {image: i}, steps: {c: {command: [x]}}}}
  a: {pipeline: {name: r, defaults: {image: i}, steps: {b-c: {command: [y]}, main: {command: [z]}}}}
""",
    "who reads what was skipped": """
params: {go: false, names: {type: json, default: []}}
steps:
  a: {command: [a], when: params.go, outputs: {v: {type: int, default: 3}, t: {type: string, default: '{"a": "}}"}'}}}
  b: {command: [b, {output: a.v}, {output: a.t}], if_skipped: run}
  c: {command: [c, {item: x}], for_each: {x: {param: names}}, outputs: {o: int}}
  d: {command: [d, {output: c.o}], if_skipped: run}
  e: {command: [e, {item: y}], for_each: {y: {output: c.o}}, if_skipped: run, when: item.y != '2'}
""",
}
SCHEDULE = 'schedule: {cron: "*/5 0-6 * * mon-fri", timezone: America/New_York, concurrency: allow}\n'


def artifacts(name: str, folder: Path) -> dict[str, str]:
    """What the pipeline compiles to, by kind."""
    (folder / "site.yaml").write_text(SITE)
    site = Site.load(str(folder / "site.yaml"))
    kinds = ("WorkflowTemplate", "ClusterWorkflowTemplate", "Workflow", "CronWorkflow")
    text = SCHEDULE + PIPELINES[name].lstrip()
    return {kind: artifact(text, site, kind=kind) for kind in kinds}


@pytest.mark.parametrize("name", PIPELINES)
def test_argos_schema_takes_it_as_every_kind(name: str, tmp_path: Path, corpora: Path) -> None:
    found = {kind: schema_errors(yaml.safe_load(text), corpora) for kind, text in artifacts(name, tmp_path).items()}
    assert {kind: errors for kind, errors in found.items() if errors} == {}


@pytest.mark.go
def test_argos_own_validation_takes_all_of_them_as_every_kind(tmp_path: Path) -> None:
    from tests.differential.oracle import Oracle

    texts = {(name, kind): text for name in PIPELINES for kind, text in artifacts(name, tmp_path).items()}
    with Oracle("argo", "lint") as oracle:
        answers = oracle.ask([{"text": text} for text in texts.values()])
    assert {key: answer["errors"] for key, answer in zip(texts, answers, strict=True) if answer["errors"]} == {}
