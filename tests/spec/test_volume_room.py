"""Sizes of inputs and outputs against the limits of the volumes that they are put into."""

from __future__ import annotations

import pytest

from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.spec.loading import loads
from gpuflow.spec.rules.remarks import remarks_on

HEAD = (
    "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
    'claims: {big: {size: 100Gi}, small: {size: 5Gi}}\ndefaults: {image: "i:1", cpu: 1, memory: 4Gi%s}\nsteps:\n'
    "  make: {command: [m], outputs: {f: {type: file, size: 2Gi}, d: {type: directory, size: 10Gi}}}\n"
    "  each: {command: [m], for_each: {i: [a, b, c]}, outputs: {f: {type: file, size: 1Gi}}}\n"
)


def document(step: str, defaults: str = "") -> str:
    return HEAD % defaults + f"  read: {{command: [r], {step}}}\n"


def refused(text: str) -> list[Finding]:
    with pytest.raises(GpuflowError) as refusal:
        loads(text, "p.yaml")
    return list(refusal.value.findings)


@pytest.mark.parametrize(
    ("step", "said", "way_out"),
    [
        (
            "volumes: {/v: {empty_dir: 1Gi}}, inputs: {/v/d: {output: make.d}}",
            "the input /v/d takes 10Gi, and the volume at /v holds 1Gi",
            "raise empty_dir of the volume to 10Gi or more",
        ),
        (
            "volumes: {/v: {memory: 1Gi}}, inputs: {/v: {output: make.d}}",
            "the input /v takes 10Gi, and the volume at /v holds 1Gi",
            "counts toward the memory of the step",
        ),
        (
            "volumes: {/v: {empty_dir: 1Gi}}, inputs: {/v/d: {uri: 's3://b/d', size: 2Gi}}",
            "the input /v/d takes 2Gi, and the volume at /v holds 1Gi",
            "2Gi or more",
        ),
        (
            "volumes: {/v: {empty_dir: 2Gi}}, inputs: {/v/all: {output: each.f}}",
            "the input /v/all takes 3Gi, and the volume at /v holds 2Gi",
            "3Gi or more",
        ),
        (
            "volumes: {/v: {empty_dir: 12Gi}}, inputs: {/v/d: {output: make.d}}, "
            "outputs: {o: {type: file, path: /v/o, size: 3Gi}}",
            "the input /v/d (10Gi) and the output o (3Gi) take 13Gi, and the volume at /v holds 12Gi",
            "13Gi or more",
        ),
        (
            "volumes: {/v: {claim: c}, /v/in: {empty_dir: 1Gi}}, inputs: {/v/in/f: {output: make.f}}",
            "the input /v/in/f takes 2Gi, and the volume at /v/in holds 1Gi",
            "2Gi or more",
        ),
        (
            "shm: 1Gi, outputs: {o: {type: file, path: /dev/shm/o, size: 3Gi}}",
            "the output o takes 3Gi, and the volume at /dev/shm holds 1Gi",
            "raise shm to 3Gi or more",
        ),
        (
            "checkpoint: {path: /c, store: 's3://b', scratch: 1Gi}, outputs: {o: {type: file, path: /c/o, size: 3Gi}}",
            "the output o takes 3Gi, and the volume at /c holds 1Gi",
            "raise checkpoint.scratch to 3Gi or more",
        ),
        (
            "volumes: {/v: {memory: 20Gi}}, inputs: {/v/d: {output: make.d}}",
            "the input /v/d takes 10Gi of memory, and the limit of memory is 4Gi",
            "raise memory above 10Gi",
        ),
        (
            "volumes: {/v: {memory: 3Gi}, /w: {memory: 3Gi}}, "
            "inputs: {/v/f: {output: make.f}, /w/all: {output: each.f}}",
            "the input /v/f (2Gi) and the input /w/all (3Gi) take 5Gi of memory, and the limit of memory is 4Gi",
            "raise memory above 5Gi",
        ),
        (
            "volumes: {/v: {memory: 1Gi}, /w: {memory: 9Gi}}, inputs: {/v/f: {output: make.f}}, "
            "outputs: {o: {type: file, path: /w/o, size: 5Gi}}",
            "the input /v/f takes 2Gi, and the volume at /v holds 1Gi",
            "so that needs as much more",
        ),
    ],
)
def test_more_than_a_volume_holds_is_refused(step: str, said: str, way_out: str) -> None:
    (finding,) = refused(document(step))
    assert (finding.code, finding.message) == ("GF359", f'step "read": {said}')
    assert way_out in (finding.hint or "")
    assert finding.where.line is not None


@pytest.mark.parametrize(
    "step",
    [
        "volumes: {/v: {empty_dir: 10Gi}}, inputs: {/v/d: {output: make.d}}",
        "volumes: {/v: {empty_dir: 1Gi}}, inputs: {/in/d: {output: make.d}}",
        "volumes: {/v: {empty_dir: 1Gi}, /v/in: {claim: c}}, inputs: {/v/in/d: {output: make.d}}",
        "volumes: {/v: {empty_dir: 2Gi}, /w: {empty_dir: 10Gi}}, "
        "inputs: {/v/f: {output: make.f}, /w: {output: make.d}}",
        "volumes: {/v: {empty_dir: 1Gi}}, inputs: {/v/x: 's3://b/of-unknown-size'}",
        "volumes: {/v: {empty_dir: 1Gi}}, outputs: {o: {type: file, size: 3Gi}}",
        "volumes: {/v: {nfs: {server: s, path: /x}}}, inputs: {/v/d: {output: make.d}}",
        "volumes: {/v: {memory: 2Gi}}, inputs: {/v/f: {output: make.f}}",
        "volumes: {/v: {memory: 20Gi}}, inputs: {/v/d: {output: make.d}}, memory: {request: 12Gi}",
        "volumes: {/v: {memory: 20Gi}}, inputs: {/v/d: {output: make.d}}, "
        "retry: {any: 2, more_memory: {factor: 2, max: 16Gi}}",
        "shm: 1Gi, inputs: {/dev/shm/d: {output: make.d}}",  # it gets a volume of its own
    ],
)
def test_what_fits_or_has_no_limit_is_taken(step: str) -> None:
    assert "GF360" not in {finding.code for finding in remarks_on(loads(document(step), "p.yaml"))}


def test_the_place_is_where_the_limit_stands() -> None:
    text = document("inputs: {/v/d: {output: make.d}}", ", volumes: {/v: {empty_dir: 1Gi}}")
    (finding,) = refused(text)
    assert (finding.where.line, text.splitlines()[4][: finding.where.column].count("empty_dir")) == (5, 1)
    (finding,) = refused(document("volumes: {/v: {empty_dir: 1Gi}}, inputs: {/v/d: {output: make.d}}"))
    assert finding.where.line == 9


def test_a_leader_with_less_memory_is_looked_at_too() -> None:
    step = "volumes: {/v: {memory: 3Gi}}, inputs: {/v/f: {output: make.f}}, gang: {workers: 2, leader: {memory: 1Gi}}"
    (finding,) = refused(document(step))
    assert finding.message == (
        'step "read": the leader: the input /v/f takes 2Gi of memory, and the limit of memory is 1Gi'
    )


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "volumes: {/v: {new_claim: small}}, inputs: {/v/d: {output: make.d}}",
            'the claim "small" asks for 5Gi, and the input /v/d takes 10Gi',
        ),
        (
            "volumes: {/v: {ephemeral: {size: 1Gi}}}, inputs: {/v/d: {output: make.d}}",
            "the claim at /v asks for 1Gi, and the input /v/d takes 10Gi",
        ),
        (
            "volumes: {/v: {new_claim: small, sub_path: a}, /w: {new_claim: small, sub_path: b}}, "
            "inputs: {/v/f: {output: make.f}}, outputs: {o: {type: file, path: /w/o, size: 4Gi}}",
            'the claim "small" asks for 5Gi, and the input /v/f (2Gi) and the output o (4Gi) take 6Gi',
        ),
        ("volumes: {/v: {new_claim: big}}, inputs: {/v/d: {output: make.d}}", None),
    ],
)
def test_a_claim_that_asks_for_less_gets_a_warning(step: str, said: str | None) -> None:
    text = document(step)
    found = [each for each in remarks_on(loads(text, "p.yaml")) if each.code == "GF360"]
    assert [(each.message, each.severity) for each in found] == ([(f'step "read": {said}', "warning")] if said else [])
    assert all(each.where.line is not None for each in found)


INNER = (
    "{name: inner, defaults: {image: 'i:1'}, params: {base: {type: string}}, steps: {t: {command: [t], "
    "volumes: {/v: {empty_dir: 4Gi}}, inputs: {/v/base: {uri: {param: base}}}}}}"
)


def test_a_size_that_is_passed_into_a_sub_pipeline_counts_there() -> None:
    head = HEAD % ""
    loads(head + f"  sub: {{pipeline: {INNER}, params: {{base: {{output: make.f}}}}}}\n", "p.yaml")
    (finding,) = refused(head + f"  sub: {{pipeline: {INNER}, params: {{base: {{output: make.d}}}}}}\n")
    assert finding.message == ('step "sub": step "t": the input /v/base takes 10Gi, and the volume at /v holds 4Gi')
    assert finding.where.line == 9


def test_remarks_inside_keep_their_place_where_sizes_are_passed() -> None:
    inner = INNER.replace("command: [t],", "command: [t], retry: {backoff: 1s},").replace("4Gi", "20Gi")
    for labels in ("", "labels: {team: a}\n"):
        text = (HEAD % "").replace("steps:", labels + "steps:")
        text += f"  sub: {{pipeline: {inner}, params: {{base: {{output: make.d}}}}}}\n"
        text += f"  two: {{pipeline: {inner}, params: {{base: 's3://b/x'}}}}\n"
        found = [each.where.line for each in remarks_on(loads(text, "p.yaml")) if each.code == "GF210"]
        assert found == [9 + bool(labels), 10 + bool(labels)]
