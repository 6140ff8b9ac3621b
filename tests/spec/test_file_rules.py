"""Inputs and outputs of one container: none is in the way of another or of the image, and each fault is said once."""

from __future__ import annotations

import pytest

from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.pod.build import pod_for
from gpuflow.site import Site
from gpuflow.spec.loading import loads

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\nsteps:\n"
CHECKPOINT = "checkpoint: {path: /ckpt, store: 's3://b/c'}"
FILE = "{uri: 's3://b/f', type: file}"


def findings(fields: str) -> list[Finding]:
    try:
        loads(f"{HEAD}  a: {{command: [c], {fields}}}\n", "p.yaml")
    except GpuflowError as refusal:
        return list(refusal.findings)
    return []


def outputs(*paths: str, kind: str = "directory") -> str:
    said = (f"o{number}: {{type: {kind}, uri: 's3://b/{number}', path: {path}}}" for number, path in enumerate(paths))
    return f"outputs: {{{', '.join(said)}}}"


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ("inputs: {/d: s3://b/x}, volumes: {/d/tmp: {empty_dir: 1Gi}}", "GF185", "/d has the volume at /d/tmp in it"),
        ("inputs: {/w: s3://b/x}, " + outputs("/w"), "GF185", "/w is the same path as the output o0, /w"),
        ("inputs: {/w/m/in: s3://b/x}, " + outputs("/w/m"), "GF185", "/w/m/in lies in the output o0, /w/m"),
        ("inputs: {/w: s3://b/x}, " + outputs("/w/m/"), "GF185", "/w holds the output o0, /w/m/"),
        ("inputs: {/in/x: s3://b/x, /in/x/: s3://b/y}", "GF185", "/in/x/ is the same path as the input /in/x"),
        ("inputs: {/in/x/: s3://b/x, /in/x/y: s3://b/y}", "GF185", "/in/x/y lies in the input /in/x/"),
        ("inputs: {/d/: {claim: c}}, volumes: {/d: {claim: c}}", "GF185", "is a mount of volumes: too"),
        (outputs("/w/m", "/w/m"), "GF147", "the output o1 at /w/m is the same path as the output o0"),
        (outputs("/w/m", "/w/m/n", kind="file"), "GF147", "the output o1 at /w/m/n lies in the output o0, /w/m"),
        (outputs("/w/m/n", "/w/m/", kind="file"), "GF147", "the output o1 at /w/m/ holds the output o0"),
        (outputs("/"), "GF147", "the output o0 is at /, which is all of the container"),
        (outputs("/", "/out"), "GF147", "the output o0 is at /"),
        (f"{CHECKPOINT}, {outputs('/ckpt')}", "GF147", "is the same path as the folder of the checkpoints, /ckpt"),
        ("checkpoint: {path: /w/c, store: 's3://b/c'}, " + outputs("/w"), "GF147", "holds the folder of the checkpo"),
        ("volumes: {/data: {claim: c}, /data/: {claim: d}}", "GF184", "mounts /data twice: as /data and as /data/"),
        ("shm: 1Gi, volumes: {/dev/shm/: {memory: 1Gi}}", "GF184", "mounts /dev/shm twice"),
        ("inputs: {/proc: s3://b/x}", "GF185", "lies in /proc, which is the kernel's"),
        ("inputs: {/sys/x: s3://b/x}", "GF185", "lies in /sys, which is the kernel's"),
        ("inputs: {/dev/x: {claim: c}}", "GF185", "lies in /dev, which is the kernel's"),
        ("inputs: {/dev/shm: s3://b/x}", "GF185", "lies in /dev, which is the kernel's"),
        ("inputs: {/var/run/secrets/kubernetes.io/serviceaccount: s3://b/x}", "GF185", "the pod's own credentials"),
        ("inputs: {/etc/: s3://b/x}", "GF185", "would hide what the image has there"),
        ("inputs: {/usr/local: {claim: c}}", "GF185", "would hide what the image has there"),
        (f"inputs: {{/etc/x.conf: {FILE}}}", "GF185", "is a file in /etc, and its folder becomes a volume"),
        (f"inputs: {{/usr/bin/tool: {FILE}}}", "GF185", "is a file in /usr/bin, and its folder becomes a volume"),
    ],
)
def test_what_is_in_the_way_is_said_once(fields: str, code: str, words: str) -> None:
    (finding,) = findings(fields)
    assert finding.code == code and words in finding.message and finding.where.line == 6
    assert finding.hint and finding.where.column is not None and finding.where.column > 7


@pytest.mark.parametrize(
    "fields",
    [
        outputs("/w/m", "/w/m/n"),
        outputs("/w/m/n", "/w/m/"),
        f"{CHECKPOINT}, {outputs('/ckpt/last')}",
        f"inputs: {{/w/in.bin: {FILE}}}, " + outputs("/w/out.bin", kind="file"),
        f"inputs: {{/etc/app/x.conf: {FILE}, /usr/share/app: s3://b/x}}",
        f"inputs: {{/etc/x.conf: {FILE}}}, volumes: {{/etc: {{claim: c}}}}",
        "inputs: {/dev/shm/data: s3://b/x}, volumes: {/dev/shm: {memory: 1Gi}}",
        "inputs: {/data: {claim: c}}, volumes: {/data/tmp: {empty_dir: 1Gi}}",
        f"{CHECKPOINT}, {outputs('/ckpt2', '/out/m', '/out/mm')}",
        "volumes: {/data: {claim: c}, /data/x: {claim: d}}",
    ],
)
def test_what_is_in_nobodys_way(fields: str) -> None:
    assert findings(fields) == []


def test_a_slash_at_the_end_makes_no_second_mount() -> None:
    text = f"{HEAD}  a: {{command: [c], volumes: {{/data: {{empty_dir: 1Gi}}}}, inputs: {{/data/: s3://b/x}}}}\n"
    site = Site.model_validate({"apiVersion": "gpuflow/v1", "kind": "Site", "name": "s"})
    (main,) = pod_for(loads(text, "p.yaml"), "a", site)["spec"]["containers"]
    assert [mount["mountPath"] for mount in main["volumeMounts"]] == ["/data"]


@pytest.mark.parametrize("kind", ["metrics", "classification-metrics", "html", "markdown"])
def test_what_kubeflow_shows_is_one_file(kind: str) -> None:
    (finding,) = findings(f"outputs: {{o: {{type: directory, kind: {kind}, uri: s3://b/o}}}}")
    assert finding.code == "GF147" and f"shows {kind} from one file" in finding.message
    assert finding.hint == "use type: file, or kind: artifact for a directory"
    assert findings(f"outputs: {{o: {{type: file, kind: {kind}, uri: s3://b/o}}}}") == []


@pytest.mark.parametrize("kind", ["artifact", "dataset", "model"])
def test_other_kinds_may_be_directories(kind: str) -> None:
    assert findings(f"outputs: {{o: {{type: directory, kind: {kind}, uri: s3://b/o}}}}") == []


@pytest.mark.parametrize(
    ("fields", "code", "hint"),
    [
        ("inputs: {/in: null}", "GF185", "write a uri, {output: step.name} or {claim: name}, or remove the line"),
        ("inputs: {/in: {output: b.m, uri: s3://b/x}}", "GF128", "keep output or uri"),
        ("inputs: {/in: {}}", "GF128", "give one of them, for example output: …"),
        ("topology: {}", "GF128", "write same: … or spread: …"),
        ("lifecycle: {}", "GF128", "give one, or remove lifecycle"),
    ],
)
def test_the_way_out_of_a_field_without_a_value(fields: str, code: str, hint: str) -> None:
    (finding,) = findings(fields)
    assert (finding.code, finding.hint) == (code, hint)


def test_an_output_in_the_place_of_a_uri_is_recognized() -> None:
    text = f"{HEAD}  a: {{command: [c], outputs: {{m: {{type: file, uri: s3://b/m}}}}}}\n"
    for word, hint in (("a.m", "write {output: a.m}"), ("a.n", "write s3://…, gs://…, az://… or an absolute path")):
        with pytest.raises(GpuflowError) as caught:
            loads(f"{text}  b: {{command: [c], inputs: {{/in: {word}}}}}\n", "p.yaml")
        (finding,) = caught.value.findings
        assert (finding.code, finding.hint) == ("GF185", hint)


def test_the_article_of_a_name() -> None:
    (finding,) = findings("outputs: {a-b: int}")
    assert "'a-b' is not an output name that every engine accepts" in finding.message


def test_a_step_may_tune_its_transfers_and_nothing_else_of_the_supervisor() -> None:
    tuned = "env: {GPUFLOW_RUN_STORAGE_TIMEOUT: 5m, GPUFLOW_TRANSFER_PROCESSES: '0'}"
    assert findings(tuned) == []
    (finding,) = findings("env: {GPUFLOW_RUN_STATE: /x}")
    assert finding.code == "GF137"
