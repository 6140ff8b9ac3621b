"""All that a target refuses of a pipeline comes in one go: whole constructs, parts of them, and pods that cannot be.

None of it needs the engine's SDK, so these run everywhere.

Tests gpuflow/targets/refusals.py and gpuflow/targets/target.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.plan import plan_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets import load_target
from gpuflow.targets.target import validation_findings
from tests.cli.commands import Gpuflow
from tests.conftest import ROOT

CLUSTER = ROOT / "gpuflow" / "demo" / "cluster"
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: 'i:1', cpu: 1, memory: 1Gi}\n"

DOCUMENTS = {
    "argo": (
        """
params: {word: {type: string, default: "{{=open"}}
steps:
  ask: {approval: "ship {{workflow.name}}?"}
  pair: {command: [x], queue_timeout: 1h, outputs: {o: {type: string, default: "{{x}}"}}}
  tagged: {command: [x], annotations: {note: "{{workflow.name}} and {{pod.name}}"}}
  loop:
    for_each: {i: ["a$(B)"]}
    pipeline:
      name: q
      steps: {maybe: {image: "i:1", command: [x], outputs: {n: int}, when: "1 > 2"}}
      outputs: {n: {output: maybe.n}}
""",
        [
            'GF301 argo does not support queue_timeout (step "pair")',
            'GF306 parameter "word": Argo would read an expression',
            'GF306 step "ask": Argo would replace the tag in the approval message',
            'GF306 step "pair": Argo would replace the tag in the default of o',
            'GF306 step "tagged": Argo would replace the tag in metadata.annotations.note',
            "GF306 step \"loop\": the item 'a$(B)' cannot be passed to a sub-pipeline",
            'GF190 the output "n" would be missing when "maybe" is skipped',
        ],
    ),
    "airflow": (
        """
schedule: "0 3 * * *"
params: {first: {type: int}, second: {type: int}}
steps:
  cached: {command: [x], cache: true}
  files: {command: [x], for_each: {i: [1, 2]}, outputs: {f: {type: file, uri: s3://m/f}}}
  read: {command: [x, {output: files.f}, {output: inner.n}]}
  inner:
    for_each: {i: [1, 2]}
    pipeline:
      name: q
      steps: {each: {image: "i:1", command: [x], for_each: {j: [1, 2]}, outputs: {n: int}}}
      outputs: {n: {output: each.n}}
  twice:
    for_each: {i: [1, 1]}
    pipeline: {name: r, steps: {a: {image: "i:1", command: [x]}}}
""",
        [
            'GF301 airflow does not support cache (step "cached")',
            'GF301 airflow starts "p" automatically, and the parameter "first" has no default',
            'GF301 airflow starts "p" automatically, and the parameter "second" has no default',
            'GF301 airflow does not support a list of lists: "each.n"',
            'GF194 step "twice" runs twice over 1 in "i"',
        ],
    ),
    "kubeflow": (
        """
params: {greeting: "{{x}}"}
steps:
  slow: {command: [x], termination_grace: 90s}
  files: {command: [x, "{{$}}"], volumes: {/a: {secret: same}, /b: {config_map: same}, /c: {secret: hub.keys}}}
  owner: {command: [x], security: {user: 5, fs_group: 7}}
""",
        [
            'GF301 kubeflow does not support termination_grace (step "slow")',
            'GF301 kubeflow: the default of "greeting" holds {{, which Argo would evaluate',
            'GF301 step "files": kubeflow cannot mount two kinds of volume named "same"',
            'GF301 step "files": kubeflow cannot mount the secret "hub.keys"',
            'GF301 step "files": kubeflow does not support the text {{$}}',
            'GF301 kubeflow: step "owner": KFP sets user and group of the container, but no fs_group',
        ],
    ),
}
OPTIONAL = {
    "does not support queue_timeout",
    "does not support gang",
    "does not support cache",
    "does not support termination_grace",
    "no fs_group",
}


@pytest.fixture(params=sorted(DOCUMENTS))
def refused(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, list[str]]:
    text, words = DOCUMENTS[request.param]
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + text)
    return request.param, path, words


def lines(err: str) -> list[str]:
    """The refusals on the console, without the place before them. Text like a template is only questioned."""
    found = [line.partition(": ")[2] for line in err.splitlines() if ": GF" in line and not line.startswith(" ")]
    return [line for line in found if not line.startswith("GF341")]


def test_all_refusals_of_a_compile_come_in_one_go(refused: tuple[str, Path, list[str]], gpuflow: Gpuflow) -> None:
    target, path, words = refused
    answer = gpuflow("compile", path, "--target", target)
    found = lines(answer.err)
    assert (answer.code, len(found)) == (2, len(words)), answer.err
    assert [line for line in words if not any(line in each for each in found)] == []
    document = gpuflow("compile", path, "--target", target, "--format", "json")
    refusals = [finding for finding in document.data["findings"] if finding["severity"] == "error"]
    messages = [f"{finding['code']} {finding['message']}" for finding in refusals]
    assert (document.code, messages, document.data["artifacts"]) == (2, found, [])


def test_what_cannot_be_left_out_is_refused_in_one_go_when_losses_are_allowed(
    refused: tuple[str, Path, list[str]], gpuflow: Gpuflow
) -> None:
    target, path, words = refused
    hard = [line for line in words if not any(part in line for part in OPTIONAL)]
    answer = gpuflow("compile", path, "--target", target, "--allow-lossy")
    found, losses = [line for line in lines(answer.err) if "GF303" not in line], answer.err.count(": GF303 ")
    assert (answer.code, len(found), losses) == (2, len(hard), len(words) - len(hard)), answer.err
    assert [line for line in hard if not any(line in each for each in found)] == []


def test_a_pipeline_that_an_engine_refuses_is_never_always_there(
    refused: tuple[str, Path, list[str]], gpuflow: Gpuflow
) -> None:
    target, path, words = refused
    check = ("check", path, "--cluster", CLUSTER, "--namespace", "team-a", "--format", "json")
    answer = gpuflow(*check, "--engine", target)
    assert (answer.code, answer.data["verdict"]) == (1, "never")
    said = [f"{finding['code']} {finding['message']}" for finding in answer.data["findings"]]
    assert [line for line in words if not any(line in each for each in said)] == []
    assert all(finding["severity"] == "error" for finding in answer.data["findings"] if finding["code"] == "GF301")
    assert "GF301" not in gpuflow(*check).out


def test_pods_that_cannot_be_made_come_in_one_go_with_the_rest(gpuflow: Gpuflow, tmp_path: Path) -> None:
    path, site = tmp_path / "p.yaml", tmp_path / "site.yaml"
    site.write_text("apiVersion: gpuflow/v1\nkind: Site\nname: s\ngpu: {only_listed: true}\n")
    path.write_text(HEAD + "steps: {a: {command: [x], gpu: l4}, b: {command: [x], gpu: h100}, c: {command: [x]}}")
    bare = lines(gpuflow("compile", path, "--target", "airflow", "--site", site).err)
    assert [line.partition(" ")[2][:8] for line in bare] == ['step "a"', 'step "b"']
    path.write_text(path.read_text().replace("c: {", "c: {cache: true, "))
    assert len(lines(gpuflow("compile", path, "--target", "airflow", "--site", site).err)) == 3


def test_every_pipeline_of_a_call_is_judged(gpuflow: Gpuflow, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(
            HEAD.replace("name: p", f"name: {name}") + "steps: {a: {command: [x], cache: true}}"
        )
    answer = gpuflow("compile", tmp_path / "one.yaml", tmp_path / "two.yaml", "--target", "airflow")
    assert (answer.code, answer.err.count("does not support cache")) == (2, 2)


def test_standalone_says_all_that_the_stock_operators_lose(gpuflow: Gpuflow, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        HEAD + "parallel: 1\nsteps: {a: {command: [x], cache: true, when: 1 > 2, retry: {interruptions: 1}}}"
    )
    for words, count in (((), 4), (("--allow-lossy",), 3)):
        answer = gpuflow("compile", path, "--target", "airflow", "--standalone", *words)
        assert (answer.code, answer.err.count("GF301")) == (2, count)
    assert "or --allow-lossy" not in answer.err


@pytest.mark.parametrize(
    "step", ["image: i, command: [c], outputs: {o: {default: '{{x}}'}}", "approval: {message: '{{x}}'}"]
)
def test_a_refusal_of_an_exit_step_points_at_the_exit_step(step: str) -> None:
    text = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: x\nsteps:\n  a: {image: i, command: [c]}\nexit:\n"
    pipeline = loads(f"{text}  e: {{{step}}}\n", "p.yaml")
    (finding,) = load_target("argo").refusals(plan_of(pipeline, Site.load("nvidia")))
    assert (finding.code, finding.where.line) == ("GF306", 7)


def test_a_pod_that_cannot_be_made_hides_no_other_finding() -> None:
    text = "steps: {a: {image: 'i:1', command: [x], memory: 10Mi, outputs: {m: {type: file, path: /m}}}}"
    pipeline = loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n{text}", "p.yaml")
    found = [each.code for each in validation_findings(pipeline, Site.load("nvidia"), "argo")]
    assert "GF327" in found and "GF307" in found and len(found) == len(set(found))
