"""The inputs of a step in its pod: mounts, options of the supervisor, room on the node, and credentials.

Tests gpuflow/pod/supervision.py and gpuflow/pod/volumes.py.
"""

from __future__ import annotations

from typing import Any

import pytest

import gpuflow
from gpuflow.core.errors import GpuflowError
from gpuflow.pod.build import pod_for
from gpuflow.site import Site
from gpuflow.spec.loading import loads

HEAD = (
    "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nparams: {d: s3://open/x}\n"
    'defaults: {image: "i:1", cpu: 1, memory: 1Gi}\n'
)
MAKE = "make: {command: [m], outputs: {f: {type: file}, d: {type: directory, size: 2Gi}}}"
EACH = "each: {command: [m], for_each: {i: [a, b, c]}, outputs: {f: {type: file, size: 1Gi}}}"


def site(**runtime: Any) -> Site:
    return Site.model_validate(
        {"apiVersion": "gpuflow/v1", "kind": "Site", "name": "s", "runtime": {"artifacts": "s3://b/a", **runtime}}
    )


def pod(fields: str, where: Site | None = None) -> dict[str, Any]:
    pipeline = loads(HEAD + f"steps: {{{MAKE}, {EACH}, read: {{command: [r], {fields}}}}}", "p.yaml")
    return pod_for(pipeline, "read", where or site())["spec"]


def main(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec["containers"][0]
    return found


def option(spec: dict[str, Any], name: str) -> list[str]:
    prefix = f"--{name}="
    return [word.removeprefix(prefix) for word in main(spec)["command"] if word.startswith(prefix)]


def mounts(spec: dict[str, Any]) -> dict[str, Any]:
    sources = {volume.pop("name"): volume for volume in map(dict, spec["volumes"])}
    return {mount["mountPath"]: sources[mount["name"]] for mount in main(spec)["volumeMounts"]}


def test_a_directory_gets_scratch_space_at_its_path_and_a_file_in_its_folder() -> None:
    spec = pod("inputs: {/in/d: {output: make.d}, /etc/x/f.json: {output: make.f}}")
    assert mounts(spec) == {"/in/d": {"emptyDir": {}}, "/etc/x": {"emptyDir": {}}}
    assert option(spec, "input") == ["/in/d=<output make.d>", "/etc/x/f.json=<output make.f>"]
    assert option(spec, "artifacts") == ["s3://b/a"]


def test_an_input_in_a_folder_of_another_needs_no_space_of_its_own() -> None:
    assert list(mounts(pod("inputs: {/in/f: {output: make.f}, /in/d: {output: make.d}}"))) == ["/in"]


def test_a_volume_of_the_step_holds_its_inputs() -> None:
    spec = pod("volumes: {/data: {claim: c}}, inputs: {/data/d: {output: make.d}}")
    assert mounts(spec) == {"/data": {"persistentVolumeClaim": {"claimName": "c"}}}
    assert "ephemeral-storage" not in main(spec)["resources"]["requests"]


def test_a_claim_is_mounted_and_nothing_is_fetched() -> None:
    spec = pod("inputs: {/in/c: {claim: datasets, path: a/b}}")
    assert main(spec)["volumeMounts"] == [
        {"name": "claim-datasets", "mountPath": "/in/c", "subPath": "a/b", "readOnly": True}
    ]
    assert main(spec)["command"] == ["r"]  # no supervisor


def test_data_from_outside() -> None:
    digest = "sha256:" + "0" * 64
    spec = pod(f'inputs: {{/in/f: {{uri: "s3://b/f", type: file, digest: "{digest}"}}, /in/g: {{param: d}}}}')
    assert option(spec, "input") == ["/in/f=s3://b/f", "/in/g=<param d>"]
    assert option(spec, "input-type") == ["/in/f=file"]
    assert option(spec, "input-digest") == [f"/in/f={digest}"]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ("inputs: {/in/d: {output: make.d}}", "2Gi"),
        ("inputs: {/in/all: {output: each.f}}", "3Gi"),
        ("inputs: {/in/d: {output: make.d, size: 7Gi}}, outputs: {o: {type: file, size: 1Gi}}", "8Gi"),
        ("inputs: {/in/d: {output: make.d}}, ephemeral_storage: 10Gi", "10Gi"),
        ("inputs: {/in/d: {output: make.d}}, checkpoint: {path: /c, store: 's3://b/c', scratch: 1Gi}", "3Gi"),
        ("inputs: {/in/f: {output: make.f}}", None),
    ],
)
def test_sizes_are_asked_of_the_nodes_disk(fields: str, asked: str | None) -> None:
    assert main(pod(fields))["resources"]["requests"].get("ephemeral-storage") == asked


@pytest.mark.parametrize(
    ("volume", "asked"),
    [
        ("empty_dir: 5Gi", "2Gi"),
        ("claim: c", None),
        ("memory: 5Gi", None),
        ("ephemeral: {size: 5Gi}", None),
        ("host_path: /x", None),
    ],
)
def test_only_what_lies_on_the_nodes_disk_is_asked_of_it(volume: str, asked: str | None) -> None:
    fields = f"volumes: {{/v: {{{volume}}}}}, memory: 4Gi, "
    read = pod(fields + "inputs: {/v/d: {output: make.d}}")
    written = pod(fields + "outputs: {o: {type: directory, path: /v/o, size: 2Gi}}")
    assert [main(spec)["resources"]["requests"].get("ephemeral-storage") for spec in (read, written)] == [asked, asked]


def test_what_is_written_to_shared_memory_is_not_asked_of_the_disk() -> None:
    spec = pod("shm: 1Gi, memory: 4Gi, outputs: {o: {type: file, path: /dev/shm/o, size: 1Gi}}")
    assert "ephemeral-storage" not in main(spec)["resources"]["requests"]


INNER = (
    "{name: inner, defaults: {image: 'i:1', cpu: 1}, params: {base: {type: string}}, steps: "
    "{t: {command: [t], inputs: {/in: {uri: {param: base}}}}, "
    "deep: {params: {base: {param: base}}, pipeline: {name: deep, defaults: {image: 'i:1', cpu: 1}, "
    "params: {base: {type: string}}, steps: {t: {command: [t], inputs: {/in: {uri: {param: base}}}}}}}}}"
)
CALLS = {
    "{base: {output: make.d}}": "2Gi",
    "{base: {output: make.f}}": None,  # nobody says how large it is
    "{base: 's3://b/x'}": None,
    "{base: {param: d}}": None,
    "{base: {output: each.f}}": None,  # a list
    "{base: {item: x}}, for_each: {x: {output: each.f}}": "1Gi",
    "{base: {item: x}}, for_each: {x: ['s3://b/1', 's3://b/2']}": None,
}


@pytest.mark.parametrize("labels", ["", "labels: {team: a}\n"])
@pytest.mark.parametrize("engine", ["argo", "airflow"])
def test_sizes_are_passed_into_sub_pipelines(engine: str, labels: str) -> None:
    calls = "".join(f", sub{n}: {{params: {call}, pipeline: {INNER}}}" for n, call in enumerate(CALLS))
    pipeline = loads(HEAD + labels + f"steps: {{{MAKE}, {EACH}{calls}}}", "p.yaml")
    demand = gpuflow.demand(pipeline, site=site(), engine=engine)
    asked = {
        step.name: main(step.pod_sets[0].pod["spec"])["resources"]["requests"].get("ephemeral-storage")
        for step in demand.steps
        if step.name.startswith("sub")
    }
    expected = {f"sub{n}{end}": size for n, size in enumerate(CALLS.values()) for end in (".t", ".deep.t")}
    assert asked == expected


def test_two_steps_may_pass_different_things_into_one_sub_pipeline() -> None:
    whole = loads(
        HEAD + f"steps: {{{MAKE}, sub: {{params: {{base: {{output: make.d}}}}, pipeline: {INNER}}}}}", "p.yaml"
    )
    first = whole.steps["sub"]
    second = first.model_copy(update={"params": {"base": "s3://b/x"}})
    both = whole.model_copy(update={"steps": {**whole.steps, "other": second}})
    sizes = [both.effective(name).pipeline for name in ("sub", "other")]
    assert [str(each.passed_sizes.get("base")) for each in sizes if each is not None] == ["2Gi", "None"]


def test_more_than_the_limit_of_the_disk_is_refused() -> None:
    with pytest.raises(GpuflowError, match="GF323"):
        pod("inputs: {/in/d: {output: make.d}}, ephemeral_storage: {request: 1Gi, limit: 1Gi}")


BUCKETS = {
    "s3://b": {"env": {"AWS_ACCESS_KEY_ID": {"secret": "s", "key": "id"}, "AWS_ENDPOINT_URL": "http://one"}},
    "s3://other": {"env": {"AWS_ENDPOINT_URL": "http://two"}},
    "s3://open": {},
}


def test_a_step_gets_the_variables_of_the_buckets_that_it_uses() -> None:
    where = site(buckets=BUCKETS)
    spec = pod("inputs: {/in/d: {output: make.d}, /in/o: 's3://open/x'}", where)
    assert main(spec)["env"] == [
        {"name": "AWS_ACCESS_KEY_ID", "valueFrom": {"secretKeyRef": {"name": "s", "key": "id"}}},
        {"name": "AWS_ENDPOINT_URL", "value": "http://one"},
    ]
    assert "env" not in main(pod("inputs: {/in/o: 's3://open/x'}", where))
    own = pod("inputs: {/in/d: {output: make.d}}, env: {AWS_ENDPOINT_URL: mine}", where)
    assert {"name": "AWS_ENDPOINT_URL", "value": "mine"} in main(own)["env"]
    assert len(main(own)["env"]) == 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ("inputs: {/in/o: 's3://unknown/x'}", "GF328"),
        ("checkpoint: {path: /c, store: 's3://unknown/x'}", "GF328"),
        ("outputs: {o: {type: file, uri: 's3://opem/x'}}", "GF328"),
        ("inputs: {/in/d: {output: make.d}, /in/o: 's3://other/x'}", "GF329"),
    ],
)
def test_buckets_and_credentials_are_looked_at_before_the_run(fields: str, code: str) -> None:
    with pytest.raises(GpuflowError, match=code):
        pod(fields, site(buckets=BUCKETS))


@pytest.mark.parametrize("uri", ["{param: d}", "{join: [{param: d}, /x]}"])
def test_the_default_of_a_parameter_says_which_bucket_is_meant(uri: str) -> None:
    head = HEAD.replace("s3://open/x", "%s")
    text = f"steps: {{read: {{command: [r], inputs: {{/in: {{uri: {uri}}}}}}}}}"
    spec = pod_for(loads(head % "s3://other" + text, "p.yaml"), "read", site(buckets=BUCKETS))["spec"]
    assert {"name": "AWS_ENDPOINT_URL", "value": "http://two"} in main(spec)["env"]
    with pytest.raises(GpuflowError, match=r"GF328.*the input /in is in s3://unknown"):
        pod_for(loads(head % "s3://unknown" + text, "p.yaml"), "read", site(buckets=BUCKETS))


def test_two_buckets_may_disagree_where_the_step_decides() -> None:
    fields = "inputs: {/in/d: {output: make.d}, /in/o: 's3://other/x'}, env: {AWS_ENDPOINT_URL: mine}"
    assert {"name": "AWS_ENDPOINT_URL", "value": "mine"} in main(pod(fields, site(buckets=BUCKETS)))["env"]


def test_an_artifact_needs_a_place() -> None:
    with pytest.raises(GpuflowError, match="GF327"):
        pod("outputs: {o: directory}", site(artifacts=None))
    pod("outputs: {o: directory}, checkpoint: {path: /c, store: 's3://b/c'}", site(artifacts=None))  # beside them


@pytest.mark.parametrize(
    "fields",
    [
        "inputs: {/in: {output: make.d}, /in/f: {output: make.f}}",
        "inputs: {/f.json: {output: make.f}}",
        "inputs: {/gpuflow/x: {output: make.d}}",
        "inputs: {/c/x: {output: make.d}}, checkpoint: {path: /c, store: 's3://b'}",
        "inputs: {'/in/a=b': {output: make.d}}",
        "inputs: {/in/../x: {output: make.d}}",
        "inputs: {/v/x: {output: make.d}}, volumes: {/v: {claim: c, read_only: true}}",
        "inputs: {/v/x: {output: make.d}}, volumes: {/v: {config_map: c}}",
        "inputs: {/v: {claim: d}}, volumes: {/v: {claim: c}}",
        "inputs: {/in: {output: make.d, type: file}}",
        "inputs: {/in: {uri: 's3://b/x', path: y}}",
        "inputs: {/in: {uri: 's3://b/x', digest: 'sha256:12'}}",
        "inputs: {/in: {claim: c, size: 1Gi}}",
        "inputs: {/in: public/data}",
        "inputs: {/in: make.d}",
        "inputs: {/in: 'https://example.com/model'}",
        f"inputs: {{/in: {{output: each.f, digest: 'sha256:{'0' * 64}'}}}}",
    ],
)
def test_what_cannot_be_an_input(fields: str) -> None:
    with pytest.raises(GpuflowError, match="GF185"):
        pod(fields)


def test_two_outputs_are_not_kept_at_one_place() -> None:
    with pytest.raises(GpuflowError, match=r"GF147.*the outputs o and p are kept at the same uri"):
        pod("outputs: {o: {type: file, uri: 's3://b/x'}, p: {type: file, uri: 's3://b/x/'}}")


@pytest.mark.parametrize(("engine", "counted"), [("argo", True), ("airflow", True), ("kubeflow", False)])
def test_what_an_engine_does_not_request_is_not_counted(engine: str, counted: bool) -> None:
    text = HEAD + f"steps: {{{MAKE}, read: {{command: [r], inputs: {{/in/d: {{output: make.d}}}}}}}}"
    demand = gpuflow.demand(loads(text, "p.yaml"), site=site(), engine=engine)
    (read,) = [step for step in demand.steps if step.name == "read"]
    spec = read.pod_sets[0].pod["spec"]
    assert ("ephemeral-storage" in main(spec)["resources"]["requests"]) is counted
