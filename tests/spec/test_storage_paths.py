"""Places of artifacts: what is no place, what would be lost with the pod, and which buckets a document names.

Tests gpuflow/pod/build.py and gpuflow/spec/storage_paths.py.
"""

from __future__ import annotations

from typing import Any

import pytest

import gpuflow
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.pod.build import pod_for
from gpuflow.site import Site
from gpuflow.spec.loading import loads

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
PARAMS = "params: {rel: models/x, n: {type: int, default: 3}, open: {type: string}, b: known, u: s3://unknown/x}\n"
BUCKETS = {"s3://known": {"env": {"AWS_PROFILE": "known"}}, "s3://ckpts": {"env": {"AWS_PROFILE": "ckpts"}}}


def document(*steps: str) -> str:
    """A pipeline of these steps, one on each line, the first one on line 7. What is no sub-pipeline has a command."""
    lines = (step if "pipeline:" in step else step.replace("{", "{command: [c], ", 1) for step in steps)
    return f"{HEAD}{PARAMS}defaults: {{image: i}}\nsteps:\n" + "".join(f"  {line}\n" for line in lines)


def findings(*steps: str) -> list[Finding]:
    try:
        loads(document(*steps), "p.yaml")
    except GpuflowError as refusal:
        return list(refusal.findings)
    return []


def site(**runtime: Any) -> Site:
    return Site.model_validate({"apiVersion": "gpuflow/v1", "kind": "Site", "name": "s", "runtime": runtime})


def refusal(name: str, where: Site, *steps: str) -> Finding:
    pipeline = loads(document(*steps), "p.yaml")
    with pytest.raises(GpuflowError) as caught:
        pod_for(pipeline, name, where)
    (finding,) = caught.value.findings
    return finding


def profile(name: str, where: Site, *steps: str) -> Any:
    """The credentials that a step has."""
    pipeline = loads(document(*steps), "p.yaml")
    (main,) = pod_for(pipeline, name, where)["spec"]["containers"]
    return [variable["value"] for variable in main.get("env", ()) if variable["name"] == "AWS_PROFILE"]


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("models/x", "'models/x', which is no place"),
        ("'https://x/y'", "'https://x/y', which is no place"),
        ("'s3://b/../x'", "'s3://b/../x', and a place has no .."),
        ("{join: ['s3://b/', {run: id}, '/..']}", "and a place has no .."),
        ("/data/../x", "and a place has no .."),
        ("'s3://'", "'s3://', which names no bucket"),
        ("'s3:///x'", "which names no bucket"),
        ("'file://host/x'", "which names a machine"),
        ("''", "'', which is no place"),
        ("{param: rel}", "'models/x', which is no place"),
        ("{param: n}", "the parameter n, which is of type int and no place"),
        ("{join: [{param: rel}, /x]}", "'models/x/x', which is no place"),
    ],
)
def test_what_is_no_place(uri: str, words: str) -> None:
    (kept,) = findings(f"a: {{outputs: {{m: {{type: directory, uri: {uri}}}}}}}")
    assert (kept.code, kept.where.line) == ("GF350", 7)
    assert words in kept.message and "the output m" in kept.message and kept.hint
    (read,) = findings(f"a: {{inputs: {{/in: {{uri: {uri}}}}}}}")
    assert (read.code, read.where.line) == ("GF185", 7)
    assert words in read.message and "the input /in" in read.message and read.hint


@pytest.mark.parametrize(
    "uri",
    [
        "'s3://b'",
        "'gs://b/x..y/'",
        "'az://b/...'",
        "{param: open}",
        "{join: ['s3://', {param: open}, /x]}",
        "{join: ['s3://b/', {param: open}, '..']}",
        "{join: ['s3://', {param: b}, '/', {run: id}]}",
    ],
)
def test_what_is_a_place(uri: str) -> None:
    assert findings(f"a: {{inputs: {{/in: {{uri: {uri}}}}}, outputs: {{m: {{type: directory, uri: {uri}}}}}}}") == []


def test_items_that_are_no_places_are_found_and_what_follows_the_bucket_is_not_multiplied() -> None:
    fan = "a: {for_each: {i: ['s3://b/x', y]}, inputs: {/in: {uri: {item: i}}}}"
    (finding,) = findings(fan)
    assert "'y', which is no place" in finding.message and "the items of i" in str(finding.hint)
    many = ", ".join(map(str, range(200)))
    uri = "{join: ['s3://b/', {item: i}, '/', {item: j}, '/', {item: k}]}"
    assert findings(f"a: {{for_each: {{i: [{many}], j: [a, b], k: [c, d]}}, inputs: {{/in: {{uri: {uri}}}}}}}") == []


@pytest.mark.parametrize(
    ("uri", "volumes", "is_lost"),
    [
        ("/data/x", "{}", True),
        ("'file:///data/x'", "{}", True),
        ("/data/x", "{/data: {empty_dir: 1Gi}}", True),
        ("/data/x", "{/data: {memory: 1Gi}}", True),
        ("/data/x", "{/data: {ephemeral: {size: 1Gi}}}", True),
        ("/data/x", "{/data: {claim: c, read_only: true}}", True),
        ("/data/x", "{/data/x/y: {claim: c}}", True),
        ("/datax", "{/data: {claim: c}}", True),
        ("{join: [/data/, {run: id}]}", "{/other: {claim: c}}", True),
        ("/data/x", "{/data: {claim: c}}", False),
        ("'file:///data/x'", "{/data/: {claim: c}}", False),
        ("/data/x", "{/data: {nfs: {server: s, path: /e}}}", False),
        ("/data/x", "{/data: {host_path: /mnt}}", False),
        ("/data/x", "{/data: {csi: {driver: gcsfuse.csi.storage.gke.io}}}", False),
        ("{join: [/data/, {run: id}]}", "{/data: {claim: c}}", False),
        ("{join: [/, {param: open}]}", "{/data: {claim: c}}", False),
    ],
)
def test_a_path_needs_a_volume_that_outlives_the_pod(uri: str, volumes: str, is_lost: bool) -> None:
    found = findings(f"a: {{volumes: {volumes}, outputs: {{m: {{type: directory, uri: {uri}}}}}}}")
    assert [each.code for each in found] == ["GF350"] * is_lost
    assert all("be lost with the pod" in each.message and each.where.line == 7 for each in found)


def test_a_volume_of_a_patch_counts() -> None:
    mounts = "{name: main, volumeMounts: [{name: v, mountPath: /data}]}"
    patch = f"{{spec: {{volumes: [{{name: v, nfs: {{server: s, path: /e}}}}], containers: [{mounts}]}}}}"
    assert findings(f"a: {{kubernetes: {{merge: {patch}}}, outputs: {{m: {{type: file, uri: /data/x}}}}}}") == []


WRITER = "a: {volumes: {/data: {claim: c}}, outputs: {m: {type: directory, uri: /data/x}}}"


@pytest.mark.parametrize(
    "fields",
    ["volumes: {/data: {claim: c, read_only: true}}, inputs: {", "inputs: {/data: {claim: c}, "],
)
def test_a_reader_mounts_the_volume_too(fields: str) -> None:
    (finding,) = findings(WRITER, "b: {inputs: {/in: {output: a.m}}}")
    assert (finding.code, finding.where.line, finding.where.step) == ("GF350", 8, "b")
    assert "the input /in is kept at /data/x, and the step has no volume there" in finding.message
    assert "a.m" in str(finding.hint)
    assert findings(WRITER, f"b: {{{fields}/in: {{output: a.m}}}}}}") == []


def test_a_root_that_is_a_path_is_on_a_volume_of_each_step_that_uses_it() -> None:
    where, writes, reads = site(artifacts="/mnt/art"), "outputs: {m: directory}", "inputs: {/in: {output: a.m}}"
    steps = f"a: {{{writes}}}", f"b: {{{reads}}}"
    assert refusal("a", where, *steps).code == refusal("b", where, *steps).code == "GF350"
    assert "/mnt/art, and be lost with the pod" in refusal("a", where, *steps).message
    assert "/mnt/art, and the step has no volume there" in refusal("b", where, *steps).message
    volume = "volumes: {/mnt: {claim: c}}"
    mounted = loads(document(f"a: {{{writes}, {volume}}}", f"b: {{{reads}, {volume}}}"), "p.yaml")
    assert all(pod_for(mounted, name, where) for name in "ab")


@pytest.mark.parametrize("root", ["models/x", "https://x/y", "s3://", "s3://b/../x"])
def test_a_root_that_is_no_place_is_refused_in_the_site(root: str) -> None:
    with pytest.raises(Exception, match="cannot be a root for artifacts"):
        site(artifacts=root)


def test_a_reader_gets_the_credentials_of_the_store_that_its_input_is_kept_in() -> None:
    steps = (
        "a: {checkpoint: {path: /c, store: s3://ckpts/x}, outputs: {m: directory}}",
        "b: {inputs: {/in: {output: a.m}}}",
    )
    assert profile("a", site(buckets=BUCKETS), *steps) == profile("b", site(buckets=BUCKETS), *steps) == ["ckpts"]


@pytest.mark.parametrize(
    ("known", "unknown"),
    [
        ("inputs: {/in: {uri: {join: ['s3://', {param: b}, /data]}}}", "{join: ['s3://un', {param: b}, /data]}"),
        ("for_each: {i: [s3://known/a, s3://known/b]}, inputs: {/in: {item: i}}", "{param: u}"),
        ("for_each: {i: [known]}, inputs: {/in: {join: ['s3://', {item: i}, /x]}}", "{join: [{param: u}, /y]}"),
    ],
)
def test_the_bucket_is_looked_up_wherever_the_document_names_it(known: str, unknown: str) -> None:
    assert profile("a", site(buckets=BUCKETS), f"a: {{{known}}}") == ["known"]
    finding = refusal("a", site(buckets=BUCKETS), f"a: {{inputs: {{/in: {{uri: {unknown}}}}}}}")
    assert finding.code == "GF328" and "s3://un" in finding.message


INNER = "{name: q, params: {base: {type: string}}, steps: {t: {image: i, command: [c], inputs: {/in: {param: base}}}}}"


def test_every_item_is_looked_up() -> None:
    fan = "a: {for_each: {i: [s3://known/a, s3://other/b]}, inputs: {/in: {item: i}}}"
    assert "s3://other" in refusal("a", site(buckets=BUCKETS), fan).message


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ("params: {base: s3://known/x}", "known"),
        ("params: {base: {item: i}}, for_each: {i: [s3://known/x]}", "known"),
        ("params: {base: {param: u}}", "unknown"),
    ],
)
def test_what_a_sub_pipeline_is_handed_is_looked_up(fields: str, place: str) -> None:
    pipeline = loads(document(f"s: {{{fields}, pipeline: {INNER}}}"), "p.yaml")
    inside = pipeline.steps["s"].pipeline
    assert inside is not None
    if place == "known":
        (main,) = pod_for(inside, "t", site(buckets=BUCKETS))["spec"]["containers"]
        assert main["env"] == [{"name": "AWS_PROFILE", "value": "known"}]
    else:
        with pytest.raises(GpuflowError, match=r"GF328.*s3://unknown"):
            pod_for(inside, "t", site(buckets=BUCKETS))


def test_a_sub_pipeline_that_is_handed_no_place_is_refused() -> None:
    (finding,) = findings(f"s: {{params: {{base: models/x}}, pipeline: {INNER}}}")
    assert finding.code == "GF185" and "'models/x', which is no place" in finding.message


@pytest.mark.parametrize(
    ("bucket", "hint"),
    [
        ("s3://other", "add it under runtime.buckets of the site; it has s3://ckpts, s3://known"),
        ("s3://knwon", 'did you mean "s3://known"?'),
        ("gs://ckpt", 'did you mean "s3://ckpts"?'),
    ],
)
def test_only_the_name_of_a_bucket_is_compared(bucket: str, hint: str) -> None:
    finding = refusal("a", site(buckets=BUCKETS), f"a: {{inputs: {{/in: '{bucket}/x'}}}}")
    assert (finding.code, finding.hint) == ("GF328", hint)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ("outputs:\n      m: directory", "GF327"),
        ("outputs:\n      m: {type: directory, uri: s3://other/x}", "GF328"),
        ("inputs:\n      /in: s3://other/x", "GF328"),
        ("checkpoint:\n      {path: /c, store: s3://other/x}", "GF328"),
        ("ephemeral_storage: {limit: 1Gi}\n    inputs: {/in: {uri: s3://known/x, size: 2Gi}}", "GF323"),
    ],
)
def test_a_refusal_of_a_pod_stands_at_the_line_that_says_it(fields: str, code: str) -> None:
    text = f"{HEAD}steps:\n  a:\n    image: i\n    command: [c]\n    {fields}\n"
    with pytest.raises(GpuflowError) as caught:
        pod_for(loads(text, "p.yaml"), "a", site(buckets=BUCKETS))
    (finding,) = caught.value.findings
    assert (finding.code, finding.where.line) == (code, 8 if code == "GF323" else 9)
    assert finding.message.startswith('step "a": ') and finding.where.step == "a"


def test_a_refusal_of_a_pod_names_its_step_once_where_no_line_is_known() -> None:
    pipeline = gpuflow.Pipeline.model_validate(
        {"name": "p", "steps": {"a": {"image": "i", "command": ["c"], "inputs": {"/in": "s3://other/x"}}}}
    )
    with pytest.raises(GpuflowError) as caught:
        pod_for(pipeline, "a", site(buckets=BUCKETS))
    assert caught.value.findings[0].message.count('step "a": ') == 1
