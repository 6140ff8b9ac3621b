"""Everything the spec can say and Argo carries: by its schema, by its own linter, for 3.7 and for 4.x.

Tests gpuflow/targets/argo/graph.py, gpuflow/targets/argo/refusals.py and gpuflow/targets/constructs.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import load, loads
from gpuflow.targets.argo import target
from gpuflow.targets.capabilities import NoSupport
from gpuflow.targets.constructs import VOCABULARY, uses
from gpuflow.targets.target import Request, compile_with
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import HEAD, SCHEMA, artifact, compiled, schema_errors, template
from tests.targets.argo.test_argo import CONSTRUCTS, SCHEDULED

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES, DEMO = ROOT / "docs" / "examples", ROOT / "gpuflow" / "demo"
MORE = """
notify:
- slack: {channel: "#ml", authorization: {secret: s, key: k}}
- webhook: {url: "https://alerts.example.com/x", headers: {X-Team: nlp, Authorization: {secret: s, key: k}}}
  on: [failure, success]
params:
  xs: {type: json, default: [a, b]}
  ys: {type: json, default: [1, 2]}
  least: {type: int, default: 1, min: 0}
steps:
  make:
    command: [m]
    cache: true
    outputs: {names: json, rows: {type: int, default: 0}, note: {type: string, default: "{none}"}}
  train:
    command: [t, {output: make.note}]
    gpu: l4 x 2
    memory: 16Gi
    spot: {mode: prefer, fallback_after: 2}
    retry: {failures: 2, interruptions: 9, other_node: true, more_memory: {factor: 1.5, max: 64Gi}}
    checkpoint: {path: /c, store: s3://b/c, grace: 30s, scratch: 5Gi}
    termination_grace: 1m
    outputs: {loss: float}
  grid:
    for_each: {x: {param: xs}, n: {output: make.names}, z: [1, 2]}
    command: [g, {item: x}, {item: n}, {item: z}]
    gpu: l4
  some:
    for_each: {x: [1, 2, 3]}
    when: item.x > params.least and steps.make.rows > 0
    parallel: 2
    command: [s, {item: x}]
    outputs: {score: {type: float, default: 0}}
  few:
    for_each: {y: {param: ys}, x: [p, q]}
    when: item.x != 'p'
    command: [f, {item: x}]
    shared_gpu: {model: t4, by: time-slicing}
  sum: {if_skipped: skip, command: [u, {output: some.score}]}
  root: {command: [r, "{{x}}"], retry: 2, security: {run_as_root: true, add_capabilities: [IPC_LOCK]}}
  bare: {command: [r], security: {privileged: true}, topology: {same: zone}, gpu: {any_of: [l4, t4]}}
  wide: {command: [r], kubernetes: {host_network: true, affinity: {podAntiAffinity: {}}}}
  only: {command: [r], retry: {failures: 1, retryable_exit_codes: [4]}}
  kept: {command: [k], outputs: {model: {type: file, path: /m, uri: s3://b/m, size: 1Gi}}}
  fed:
    command: [k]
    inputs: {/in/model/m: {output: kept.model}, /in/test: {uri: s3://b/t/, size: 2Gi}, /in/ref: {claim: c, path: r}}
exit:
  tell: {on: failure, when: steps.make.rows > 1, command: [e, {output: make.note}, {output: some.score}]}
"""
FACTS = """
schedule: {cron: "0 3 * * *", timezone: Europe/Berlin, start: 2026-01-31}
steps:
  a:
    command: [x, {run: name}, {run: logical_date}, {run: interval_start}, {run: interval_end, timezone: Asia/Tokyo}]
    env: {A: {run: attempt}, D: {run: date}, J: {run: date, format: "day %j, {{%d}}"}}
    retry: 1
    cache: true
  b:
    needs: [a]
    pipeline: {name: q, steps: {c: {image: i, command: [x], for_each: {i: [1]}, env: {D: {run: interval_start}}}}}
exit: {z: {command: [z, {run: date}]}}
"""
OWN_WORDS = """
engines: {airflow: {owner: nlp}, argo: {ttl: {success: 1d}}, kubeflow: {display_name: Nightly}}
deadline: 1h
notify:
- {slack: {channel: "#ml", authorization: {secret: s, key: k}}}
- {webhook: {url: "https://example.com/hook"}}
steps:
  a: {command: [x], engines: {argo: {archive_logs: true}}}
  b: {command: [x], needs: [a]}
"""
OF_THE_POD = """
steps:
  together: {image: i, command: [x], gang: {workers: 2, rendezvous: {framework: torchrun}}}
  a:
    command: [x]
    gpu: a100-80gb sxm
    lifecycle: {pre_stop: {command: [sh, -c, flush]}}
    volumes:
      /csi: {csi: {driver: csi.example.com, attributes: {a: b}}}
      /new: {ephemeral: {size: 1Gi, storage_class: fast}}
      /disk: {host_path: /mnt/nvme}
      /nfs: {nfs: {server: nfs.internal, path: /export}}
      /tokens: {projected: [{token: {path: token, audience: sts}}]}
      /config: {config_map: c, items: {k: a/b}, default_mode: "0440"}
    kubernetes:
      dns_policy: None
      dns_config: {nameservers: [10.0.0.2], options: {ndots: "2"}}
      host_aliases: {10.0.0.7: [models.internal]}
      topology_spread: [{topology_key: kubernetes.io/hostname}]
      merge:
        metadata: {labels: {l: m}, annotations: {example.com/n: o}}
        spec:
          nodeSelector: {k: v}
          volumes: [{name: n, emptyDir: {}}]
          containers: [{name: main, volumeMounts: [{name: n, mountPath: /n}]}]
  b: {command: [x], needs: [a], gpu: 2}
"""
SITE = Site.load("gke")
ONLY_IN_4 = {
    "Artifact.plugin", "ArtifactLocation.plugin", "ArtifactPaths.plugin", "ArtifactRepository.plugin", "Link.target",
    "NodeStatus.failedPodRestarts", "NodeStatus.restartingPodUID", "Template.resourceClaims", "Template.podResources",
    "Template.pendingTimeout", "WorkflowSpec.resourceClaims", "WorkflowSpec.podResources",
}  # fmt: skip
"""Fields of 4.x that 3.7 does not have."""
GONE_IN_4 = {"CronWorkflowSpec.schedule", "Synchronization.mutex", "Synchronization.semaphore", "Template.podPriority"}
"""Fields of 3.7 that 4.x no longer has."""


def cases() -> Iterator[tuple[str, str | Site, dict[str, str]]]:
    yield MORE, SITE, {"semaphores": "gpus"}
    yield MORE, SITE, {"kind": "Workflow"}
    yield MORE, SITE, {"kind": "ClusterWorkflowTemplate"}
    yield CONSTRUCTS, "nvidia", {"semaphores": "gpus"}
    yield SCHEDULED, "nvidia", {}
    yield OWN_WORDS, "nvidia", {}
    yield OF_THE_POD, "nvidia", {}
    yield FACTS, "nvidia", {}
    yield FACTS, "nvidia", {"kind": "WorkflowTemplate"}


def test_the_pipelines_here_use_every_construct_that_argo_carries() -> None:
    used = {
        use.construct
        for text in (MORE, CONSTRUCTS, SCHEDULED, FACTS, OWN_WORDS, OF_THE_POD)
        for use in uses(loads(HEAD + text, "p.yaml"))
    }
    carried = {construct for construct in VOCABULARY if not isinstance(target.capabilities[construct], NoSupport)}
    assert sorted(carried - used) == []


def test_every_construct_satisfies_argos_full_schema(corpora: Path) -> None:
    for text, site, options in cases():
        assert schema_errors(compiled(text, site, **options), corpora) == []


@pytest.mark.go
def test_every_construct_and_every_example_passes_argos_own_validation() -> None:
    texts = [artifact(text, site, **options) for text, site, options in cases()]
    texts += [text for _, text in examples("4.0")]
    with Oracle("argo", "lint") as oracle:
        answers = oracle.ask([{"text": text} for text in texts])
    assert [answer["errors"] for answer in answers if answer["errors"]] == []


def examples(version: str) -> Iterator[tuple[str, str]]:
    """Each example that Argo carries whole, compiled for a site with that Argo."""
    for path in sorted(EXAMPLES.glob("*.yaml")):
        try:
            pipeline = load(path)
            site = at_version(version, str(DEMO / "site.yaml"))
            request = Request(pipeline, site, "ns", path.name)
            yield path.name, compile_with(target, request, allow_lossy=False).artifact.text
        except GpuflowError:
            continue


def at_version(version: str, preset: str = "nvidia") -> Site:
    site = Site.load(preset)
    argo = site.engine("argo").model_copy(update={"version": version})
    return site.model_copy(update={"engines": {**site.engines, "argo": argo}})


def test_one_artifact_serves_3_7_and_4_x_but_for_the_key_of_a_cache(corpora: Path) -> None:
    assert list(examples("3.7")) == list(examples("4.0")) != []
    cached = "steps: {a: {command: [x], cache: true}}"
    older, newer = (template(compiled(cached, at_version(said)), "a")["memoize"]["cache"] for said in ("3.7", "4.0"))
    assert older == {"configMap": {**newer["configMap"], "key": ""}}
    schema = json.loads((corpora / "schemas" / "argo-workflows-jsonschema.json").read_text())["definitions"]
    for text, site, options in cases():
        manifest = compiled(text, site, **options)
        fields = set(used_fields(manifest, f"{SCHEMA}{manifest['kind']}", schema))
        assert {"Template.container", "DAGTask.depends"} <= fields or "CronWorkflowSpec.schedules" in fields
        assert fields & (ONLY_IN_4 | GONE_IN_4) == set()


def used_fields(value: Any, kind: str, schema: dict[str, Any]) -> Iterator[str]:
    """Every field of Argo's own types that stands in a manifest, as Type.field."""
    for name, field in (schema.get(kind, {}).get("properties", {}) if isinstance(value, dict) else {}).items():
        if name in value:
            yield f"{kind.removeprefix(SCHEMA)}.{name}"
            inner = field.get("$ref") or field.get("items", {}).get("$ref", "")
            for one in value[name] if isinstance(value[name], list) else [value[name]]:
                yield from used_fields(one, inner.rpartition("/")[2], schema)


@pytest.mark.parametrize("version", ["3.6", "v3.5.12", "latest"])
def test_an_argo_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(GpuflowError, match="GF308"):
        artifact("steps: {a: {command: [x]}}", at_version(version))


@pytest.mark.parametrize("version", ["3.7", "v3.7.15", "4.0", "4.1.4", "v5.0-rc1"])
def test_newer_argos_are_accepted(version: str) -> None:
    assert "kind: WorkflowTemplate" in artifact("steps: {a: {command: [x]}}", at_version(version))


def notes(step: str, site: str | Site = "gke") -> list[str]:
    pipeline = loads(f"{HEAD}steps: {{a: {{command: [x], {step}}}}}", "p.yaml")
    where = site if isinstance(site, Site) else Site.load(site)
    found = [note for note in target.notes(Request(pipeline, where, None, "p.yaml")) if note.code == "GF305"]
    assert all(note.severity == "note" and note.hint for note in found)
    return [note.message for note in found]


def test_two_budgets_that_nobody_counts_are_named_as_one_count() -> None:
    (note,) = notes("retry: {failures: 1, interruptions: 3}")
    assert note.startswith('step "a": Argo counts one number of retries')
    assert notes("retry: {failures: 2}") == notes("retry: {interruptions: 2}") == []
    assert notes("retry: {failures: 1, interruptions: 3}, checkpoint: {path: /c, store: s3://b/c}") == []


def test_falling_back_is_exact_only_without_failures() -> None:
    assert notes("spot: {mode: prefer, fallback_after: 2}, retry: {interruptions: 5}") == []
    messages = notes("spot: {mode: prefer, fallback_after: 2}, retry: {failures: 1, interruptions: 5}")
    assert [text for text in messages if "fallback_after counts every retry" in text]
    (note,) = notes("spot: {mode: prefer, fallback_after: 9}, retry: {interruptions: 5}")
    assert "never reached" in note


def test_memory_that_cannot_grow_is_said() -> None:
    (note,) = notes("retry: {failures: 1, more_memory: {max: 8Gi}}")
    assert "more_memory has no effect" in note
    assert notes("memory: 1Gi, retry: {failures: 1, more_memory: {max: 8Gi}}") == []
