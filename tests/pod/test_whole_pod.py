"""Volumes of every kind, hooks, DNS and patches: the pod that comes of them.

Tests gpuflow/kubernetes/pod_fields.py, gpuflow/pod/notes.py, gpuflow/pod/patch.py, gpuflow/pod/volumes.py and
gpuflow/spec/volumes.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.plan import plan_of
from gpuflow.pod import pod_for, pod_notes
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: 'i:1', cpu: 1, memory: 1Gi}\n"
SITE = Site.load("nvidia")


def pipeline(fields: str) -> Pipeline:
    return loads(HEAD + f"steps: {{a: {{command: [x], {fields}}}}}", "p.yaml")


def spec(fields: str) -> dict[str, Any]:
    found: dict[str, Any] = pod_for(pipeline(fields), "a", SITE)["spec"]
    return found


@pytest.mark.parametrize(
    ("volume", "source"),
    [
        ("host_path: /mnt/nvme", {"hostPath": {"path": "/mnt/nvme"}}),
        ("host_path: {path: /x, type: File}", {"hostPath": {"path": "/x", "type": "File"}}),
        ("nfs: {server: s, path: /e}", {"nfs": {"server": "s", "path": "/e"}}),
        (
            "csi: {driver: d, attributes: {a: b}, fs_type: ext4, secret: s}",
            {
                "csi": {
                    "driver": "d",
                    "volumeAttributes": {"a": "b"},
                    "fsType": "ext4",
                    "nodePublishSecretRef": {"name": "s"},
                }
            },
        ),
        (
            "ephemeral: {size: 1Gi, storage_class: fast, labels: {l: m}}",
            {
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": {"l": "m"}},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                            "storageClassName": "fast",
                        },
                    }
                }
            },
        ),
        (
            'config_map: c, items: {k: p, j: {path: q, mode: "0400"}}, default_mode: "440", optional: true',
            {
                "configMap": {
                    "name": "c",
                    "items": [{"key": "k", "path": "p"}, {"key": "j", "path": "q", "mode": 0o400}],
                    "defaultMode": 0o440,
                    "optional": True,
                }
            },
        ),
        (
            "projected: [{token: {path: t, audience: a, expires: 1h}}, {secret: s}, "
            "{downward_api: {l: metadata.labels, c: limits.cpu}}]",
            {
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "t", "audience": "a", "expirationSeconds": 3600}},
                        {"secret": {"name": "s"}},
                        {
                            "downwardAPI": {
                                "items": [
                                    {"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}},
                                    {
                                        "path": "c",
                                        "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"},
                                    },
                                ]
                            }
                        },
                    ]
                }
            },
        ),
    ],
)
def test_a_volume_becomes_its_source(volume: str, source: dict[str, Any]) -> None:
    made = spec(f"volumes: {{/d: {{{volume}}}}}")
    (listed,) = made["volumes"]
    (mount,) = made["containers"][0]["volumeMounts"]
    assert {key: value for key, value in listed.items() if key != "name"} == source
    assert mount == {"name": listed["name"], "mountPath": "/d"}


@pytest.mark.parametrize(
    ("volume", "code"),
    [
        ("host_path: data", "GF133"),
        ("host_path: /a/../b", "GF133"),
        ("claim: c, host_path: /x", "GF128"),
        ("claim: c, items: {k: p}", "GF128"),
        ("claim: c, default_mode: '0440'", "GF128"),
        ("secret: s, default_mode: '0999'", "GF375"),
        ("secret: s, items: {k: ../p}", "GF133"),
        ("projected: []", "GF128"),
        ("projected: [{token: {path: t, expires: 1m}}]", "GF127"),
        ("projected: [{downward_api: {x: status.phase}}]", "GF128"),
        ("ephemeral: {size: 0}", "GF127"),
    ],
)
def test_a_volume_that_kubernetes_would_refuse_is_refused_here(volume: str, code: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        pipeline(f"volumes: {{/d: {{{volume}}}}}")
    assert [finding.code for finding in refusal.value.findings] == [code]


def test_a_hook_that_sleeps_is_counted_into_the_grace_period() -> None:
    assert "terminationGracePeriodSeconds" not in spec("outputs: {o: int}")
    assert spec("lifecycle: {pre_stop: {sleep: 20s}}")["terminationGracePeriodSeconds"] == 50
    kept = "checkpoint: {path: /c, store: 's3://b', grace: 60s}, lifecycle: {pre_stop: {sleep: 20s}}"
    assert spec(kept)["terminationGracePeriodSeconds"] == 60 + 10 + 20
    given = spec(f"{kept}, termination_grace: 60s")
    assert given["terminationGracePeriodSeconds"] == 60
    assert "--grace=30s" in given["containers"][0]["command"]


def test_a_hook_of_unknown_length_is_noted_where_a_supervisor_needs_the_time() -> None:
    hook = "lifecycle: {pre_stop: {command: [flush]}}"
    assert [each.code for each in pod_notes(plan_of(pipeline(f"{hook}, outputs: {{o: int}}"), SITE))] == ["GF377"]
    assert list(pod_notes(plan_of(pipeline(hook), SITE))) == []


def test_helpers_take_whole_secrets_and_hooks() -> None:
    helper = "{name: s, image: j, command: [y], env_from: [{secret: k}], lifecycle: {pre_stop: {sleep: 5s}}}"
    (made,) = spec(f"sidecars: [{helper}]")["initContainers"]
    assert made["envFrom"] == [{"secretRef": {"name": "k"}}]
    assert made["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}


def merge(patch: str, more: str = "") -> dict[str, Any]:
    return spec(f"kubernetes: {{merge: {patch}}}{more}")


def test_a_patch_is_merged_by_kubernetes_keys() -> None:
    made = merge(
        "{spec: {hostPID: true, containers: [{name: main, env: [{name: A, value: z}, {name: B, value: $(A)}]}]}}",
        ", env: {A: a, C: c}",
    )
    assert made["hostPID"] is True
    assert made["containers"][0]["env"] == [
        {"name": "A", "value": "z"},
        {"name": "B", "value": "$(A)"},
        {"name": "C", "value": "c"},
    ]


def test_a_patch_of_one_container_leaves_the_others_alone() -> None:
    helper = ", sidecars: [{name: s, image: j, command: [y]}]"
    made = merge("{spec: {containers: [{name: main, securityContext: {runAsUser: 5}}]}}", helper)
    assert made["containers"][0]["securityContext"]["runAsUser"] == 5
    assert "runAsUser" not in made["initContainers"][0]["securityContext"]


def test_an_init_container_may_be_added_and_needs_a_command() -> None:
    made = merge("{spec: {initContainers: [{name: warm, image: j, command: [w]}]}}")
    assert [each["name"] for each in made["initContainers"]] == ["warm"]
    with pytest.raises(GpuflowError, match="warm has no image or no command"):
        merge("{spec: {initContainers: [{name: warm, image: j}]}}")


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("{spec: {containers: [{$patch: replace}]}}", "the list of containers"),
        ("{spec: {containers: [{name: main, $patch: delete}]}}", "the list of containers"),
        ("{spec: {$patch: replace}}", "the list of containers"),
        ("{spec: {containers: [{name: main, $retainKeys: [name]}]}}", "command of main"),
        ("{metadata: {labels: {$patch: delete}}}", "the label gpuflow.dev/pipeline"),
        (
            "{spec: {containers: [{name: main, volumeMounts: [{mountPath: /gpuflow/outputs, name: x}]}]}}",
            "the files of the supervisor",
        ),
    ],
)
def test_directives_take_nothing_away_that_the_spec_promises(patch: str, said: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        merge(patch, ", outputs: {o: int}")
    (finding,) = refusal.value.findings
    assert finding.code == "GF372"
    assert said in finding.message
    assert finding.where.step == "a"


def test_what_a_patch_overrides_is_named() -> None:
    patch = "{metadata: {annotations: {x: y}}, spec: {securityContext: {runAsUser: 5}, tolerations: []}}"
    made = pipeline(f"gpu: l4, annotations: {{x: z}}, kubernetes: {{merge: {patch}}}")
    (note,) = pod_notes(plan_of(made, SITE))
    assert (note.code, note.severity) == ("GF373", "note")
    assert note.message == (
        'step "a": kubernetes.merge overrides metadata.annotations.x, spec.securityContext.runAsUser, spec.tolerations'
    )


def test_patches_that_override_the_same_are_one_note() -> None:
    patch = "kubernetes: {merge: {spec: {securityContext: null}}}"
    steps = "".join(f"  {name}: {{image: i, command: [x], {patch}}}\n" for name in "abc")
    made = loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n{steps}")
    (note,) = pod_notes(plan_of(made, SITE))
    assert note.message == 'steps "a", "b", "c": kubernetes.merge overrides spec.securityContext'


def test_a_patch_that_only_adds_is_not_noted() -> None:
    made = pipeline("kubernetes: {merge: {metadata: {labels: {l: m}}, spec: {hostPID: true}}}")
    assert list(pod_notes(plan_of(made, SITE))) == []


def test_a_patch_in_the_defaults_counts_for_every_step() -> None:
    text = HEAD.replace("cpu: 1", "kubernetes: {merge: {spec: {hostPID: true}}}") + "steps: {a: {command: [x]}}"
    assert pod_for(loads(text), "a", SITE)["spec"]["hostPID"] is True


def test_a_patch_that_mounts_a_volume_that_is_not_there_is_refused() -> None:
    with pytest.raises(GpuflowError, match='mounts the volume "n", which the pod does not have') as refusal:
        merge("{spec: {containers: [{name: main, volumeMounts: [{name: n, mountPath: /n}]}]}}")
    assert refusal.value.findings[0].code == "GF376"
    mounts = "containers: [{name: main, volumeMounts: [{name: n, mountPath: /n}]}]"
    merge(f"{{spec: {{{mounts}, volumes: [{{name: n, emptyDir: {{}}}}]}}}}")
