"""validate, show, demand, schema, explain, site and gpus: what they print for people and for programs.

Tests gpuflow/cli/demand.py, gpuflow/cli/explain.py, gpuflow/cli/gpus.py, gpuflow/cli/schema.py, gpuflow/cli/show.py,
gpuflow/cli/site.py, gpuflow/cli/validate.py and gpuflow/report/graph_drawing.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from gpuflow import load, loads
from gpuflow.core import yaml_tree
from gpuflow.core.codes import CODES
from gpuflow.quantity import Quantity
from gpuflow.site import presets
from tests.cli.commands import DEMO, EXAMPLES, FINETUNE, NIGHTLY, Gpuflow

BROKEN = """apiVersion: gpuflow/v1
kind: Pipeline
name: p
steps:
  a: {image: i, comand: [x]}
  b: {image: i, command: [x], gpu: a1000}
"""


def test_validate_says_ok_for_each_file(gpuflow: Gpuflow) -> None:
    answer = gpuflow("validate", NIGHTLY, FINETUNE)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"{NIGHTLY}: ok, pipeline nightly, 7 steps\n{FINETUNE}: ok, pipeline finetune, 15 steps\n"


def test_validate_prints_every_finding_of_every_file_and_exits_with_2(gpuflow: Gpuflow, tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text(BROKEN)
    other.write_text("[")
    answer = gpuflow("validate", one, NIGHTLY, other)
    assert answer.code == 2
    places = [line for line in answer.err.splitlines() if not line.startswith(" ")]
    assert [re.sub(r"(GF\d+) .*", r"\1", line) for line in places] == [
        f"{one}:5:17: GF113",
        f"{one}:6:36: GF201",
        f"{other}:2:1: GF101",
    ]
    assert answer.out == f"{NIGHTLY}: ok, pipeline nightly, 7 steps\n"


def test_validate_in_json_gives_the_findings_per_file(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(BROKEN)
    answer = gpuflow("validate", file, NIGHTLY, "--format", "json")
    assert answer.code == 2
    broken, fine = answer.data
    assert (broken["file"], broken["pipeline"], fine["findings"]) == (str(file), None, [])
    for finding in broken["findings"]:
        assert set(finding) == {"code", "severity", "where", "message", "hint", "kubernetes"}
        assert finding["where"]["file"] == str(file)
        assert finding["where"]["line"] in (5, 6)


def test_validate_also_asks_the_site(gpuflow: Gpuflow, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("apiVersion: gpuflow/v1\nkind: Site\nname: bare\n")
    answer = gpuflow("validate", NIGHTLY, "--site", site)
    assert answer.code == 2
    assert f'{NIGHTLY}:28:3: GF221 step "train": site "bare" does not say which nodes have a100-80gb' in answer.err
    assert "GF224" in answer.err


def test_show_yaml_is_canonical_and_the_same_for_yaml_and_python(gpuflow: Gpuflow) -> None:
    for name in ("nightly", "finetune"):
        one = gpuflow("show", EXAMPLES / f"{name}.yaml", "--format", "yaml")
        other = gpuflow("show", EXAMPLES / f"{name}.py", "--format", "yaml")
        assert one == other
        assert loads(one.out, str(EXAMPLES / "x.yaml")) == load(EXAMPLES / f"{name}.yaml")


def test_show_json_is_the_same_document(gpuflow: Gpuflow) -> None:
    document = gpuflow("show", NIGHTLY, "--format", "json").data
    assert loads(json.dumps(document)) == load(NIGHTLY)


def test_show_draws_gpus_budgets_and_queue_per_step(gpuflow: Gpuflow) -> None:
    drawn = gpuflow("show", FINETUNE).out
    (train,) = [line for line in drawn.splitlines() if "● train" in line]
    for fact in ("8× a100-80gb", "mem 800Gi", "retry 1 failures, 20 interruptions", "queue research", "spot prefer"):
        assert fact in train
    assert "at the end notify (always)" in drawn
    for name in load(FINETUNE).steps:
        assert re.search(rf"● ?[│ ]*{name} ", drawn)


def test_show_draws_a_diamond_with_lines_that_meet(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    step = "{image: i, command: [x], needs: [%s]}"
    steps = {"a": "", "b": "a", "c": "a", "d": "a", "e": "b, c, d"}
    lines = [f"  {name}: {step % needs}" for name, needs in steps.items()]
    file.write_text("\n".join(["apiVersion: gpuflow/v1", "kind: Pipeline", "name: p", "steps:", *lines]))
    assert gpuflow("show", file).out.splitlines()[2:] == [
        "● a",
        "├─┬─╮",
        "● │ │ b",
        "│ ● │ c",
        "├─╯ │",
        "│   ● d",
        "├───╯",
        "● e",
    ]


@pytest.mark.parametrize("name", ["nightly", "finetune"])
def test_mermaid_and_dot_hold_every_step_and_every_edge(name: str, gpuflow: Gpuflow) -> None:
    from gpuflow.spec.references import upstream

    pipeline = load(EXAMPLES / f"{name}.yaml")
    edges = sum(map(len, upstream(pipeline).values()))
    mermaid = gpuflow("show", EXAMPLES / f"{name}.yaml", "--format", "mermaid").out
    assert mermaid.startswith("flowchart TD\n")
    assert mermaid.count(" --> ") == edges
    dot = gpuflow("show", EXAMPLES / f"{name}.yaml", "--format", "dot").out
    assert dot.count(" -> ") - dot.count("[style=dashed]") == edges
    for step in (*pipeline.steps, *pipeline.exit):
        assert f"<b>{step}</b>" in mermaid
        assert f'"{step}" [label=' in dot


def test_a_parameter_from_the_command_line_becomes_the_default(gpuflow: Gpuflow) -> None:
    shown = gpuflow("show", NIGHTLY, "--format", "json", "--param", "lr=0.5", "--param", 'suites=["one"]').data
    assert shown["params"]["lr"]["default"] == 0.5
    assert gpuflow("demand", NIGHTLY, "--format", "json", "--param", 'suites=["one"]').data["steps"][3]["copies"] == 1


def test_demand_json_has_the_contracts_shape(gpuflow: Gpuflow) -> None:
    data = gpuflow("demand", FINETUNE, "--format", "json").data
    assert set(data) == {"file", "pipeline", "engine", "peak", "overhead", "steps"}
    assert (data["file"], data["pipeline"], data["engine"], data["overhead"]) == (FINETUNE, "finetune", "none", {})
    assert {"pods", "requests.cpu", "limits.memory", "requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.10gb",
            "requests.storage", "persistentvolumeclaims"} <= set(data["peak"])  # fmt: skip
    for bound in data["peak"].values():
        assert set(bound) == {"bound", "value", "because", "witness"}
        assert bound["bound"] in ("exact", "at-most", "unknown")
        assert bound["value"] is None or str(Quantity(bound["value"])) == bound["value"]
    assert data["peak"]["requests.nvidia.com/gpu"] == {
        "bound": "exact",
        "value": "8",
        "because": None,
        "witness": ["train"],
    }
    for step in data["steps"]:
        assert set(step) == {"name", "copies", "pod_sets", "requests", "limits"}
        assert all(set(each) == {"name", "count"} and each["count"] >= 1 for each in step["pod_sets"])


def test_demand_of_several_files_is_an_array_and_of_one_an_object(gpuflow: Gpuflow) -> None:
    both = gpuflow("demand", NIGHTLY, FINETUNE, "--format", "json").data
    assert [data["pipeline"] for data in both] == ["nightly", "finetune"]
    assert gpuflow("demand", NIGHTLY, "--format", "json").data == both[0]


def test_the_pods_of_a_gang_are_told_apart(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
        "steps: {train: {image: i, command: [x], gang: 4, memory: 1Gi}, other: {image: i, command: [x], cpu: 2}}\n"
    )
    said = gpuflow("demand", tmp_path / "p.yaml", "--engine", "argo").out
    assert "train       1  worker × 4: memory 1Gi; launcher: cpu 50m, memory 128Mi\n" in said
    assert "other       1  cpu 2\n" in said


def test_demand_with_an_engine_lists_what_the_engine_adds_apart(gpuflow: Gpuflow) -> None:
    words = ("demand", NIGHTLY, "--site", DEMO / "site.yaml", "--format", "json")
    bare, on_argo = gpuflow(*words).data, gpuflow(*words, "--engine", "argo").data
    assert (on_argo["engine"], set(on_argo["overhead"])) == (
        "argo",
        {"requests.cpu", "requests.memory", "limits.cpu", "limits.memory"},
    )
    for key, extra in on_argo["overhead"].items():
        assert Quantity(extra["value"]) > Quantity("0")
        assert Quantity(on_argo["peak"][key]["value"]) > Quantity(bare["peak"][key]["value"])


def test_demand_for_a_person_names_the_steps_of_the_worst_moment(gpuflow: Gpuflow) -> None:
    shown = gpuflow("demand", NIGHTLY).out
    assert re.search(r"requests.nvidia.com/gpu +2 +train", shown)
    assert re.search(r"evaluate +3 ", shown)


@pytest.mark.parametrize("name", ["pipeline", "site"])
def test_schema_is_a_schema_that_accepts_the_examples(name: str, gpuflow: Gpuflow) -> None:
    check = jsonschema.Draft202012Validator(gpuflow("schema", name).data)
    check.check_schema(check.schema)
    files = sorted(EXAMPLES.glob("*.yaml")) if name == "pipeline" else [EXAMPLES.parents[1] / "gpuflow/demo/site.yaml"]
    for file in files:
        document = yaml_tree.parse(file.read_bytes(), str(file))
        assert check.is_valid(document)
        document["naem"] = document.pop("name")
        assert not check.is_valid(document)


@pytest.mark.parametrize("code", CODES)
def test_explain_prints_the_long_form_of_every_code(code: str, gpuflow: Gpuflow) -> None:
    answer = gpuflow("explain", code.lower())
    assert answer.code == 0
    assert answer.out.startswith(f"{code} {CODES[code].title}\n")
    assert "Way out: " in answer.out
    assert gpuflow("explain", code, "--format", "json").data == CODES[code]._asdict()


def test_explain_names_the_rule_where_a_code_has_one(gpuflow: Gpuflow) -> None:
    assert gpuflow("explain", "GF551").out.splitlines()[-1].startswith("Rule: gpuflow/checker/rules/pods.py:")
    assert gpuflow("explain", "GF551").out.splitlines()[-1].endswith(" best_effort")
    assert "Rule: " not in gpuflow("explain", "GF177").out and not gpuflow("explain", "GF177").out.endswith("\n\n")


def test_explain_alone_prints_the_table(gpuflow: Gpuflow) -> None:
    shown = gpuflow("explain").out
    assert [code for code in CODES if f"{code}  {CODES[code].title}" not in shown] == []
    assert len(gpuflow("explain", "--format", "json").data) == len(CODES)


@pytest.mark.parametrize("name", presets())
def test_site_show_prints_a_whole_site(name: str, gpuflow: Gpuflow, tmp_path: Path) -> None:
    shown = gpuflow("site", "show", name)
    file = tmp_path / "site.yaml"
    file.write_text(shown.out)
    assert gpuflow("site", "show", file) == shown
    assert gpuflow("site", "show", name, "--format", "json").data["name"] == name


def test_site_presets_lists_them_and_site_runtime_writes_a_config_map(gpuflow: Gpuflow) -> None:
    listed = gpuflow("site", "presets").out
    assert [name for name in presets() if name not in listed] == []
    assert "GF904" in gpuflow("site", "runtime").err
    made = yaml_tree.parse(gpuflow("site", "runtime", "--namespace", "team-a").out, "out")
    assert (made["kind"], made["metadata"]["namespace"]) == ("ConfigMap", "team-a")


def test_site_executor_writes_the_account_that_the_site_names(gpuflow: Gpuflow, tmp_path: Path) -> None:
    assert "GF318" in gpuflow("site", "executor").err
    site = tmp_path / "site.yaml"
    account = "engines: {argo: {executor: {service_account: runner, token_secret: runner-token}}}"
    site.write_text(f"apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\nnamespace: nlp\n{account}\n")
    made = list(yaml.safe_load_all(gpuflow("site", "executor", site).out))
    assert [each["kind"] for each in made] == ["ServiceAccount", "Secret", "Role", "RoleBinding"]
    assert {each["metadata"]["namespace"] for each in made} == {"nlp"}
    assert made[0]["metadata"]["annotations"] == {"workflows.argoproj.io/service-account-token.name": "runner-token"}
    assert made[1]["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "runner"}
    assert made[1]["metadata"]["name"] == "runner-token"


def test_gpus_lists_filters_and_refuses(gpuflow: Gpuflow) -> None:
    everything = gpuflow("gpus", "list", "--format", "json").data
    large = gpuflow("gpus", "list", "--memory", "70Gi", "--mig", "--format", "json").data
    assert 0 < len(large) < len(everything)
    assert gpuflow("gpus", "--format", "json").data == everything
    nothing = gpuflow("gpus", "list", "--memory", "900Gi")
    assert (nothing.code, "GF203" in nothing.err) == (2, True)
    for words, code in (
        (("show", "a1000"), "GF201"),
        (("mig", "a100-80gb", "1g.11gb"), "GF202"),
        (("fit", "24GB"), "GF121"),
    ):
        answer = gpuflow("gpus", *words)
        assert (answer.code, code in answer.err) == (2, True)


def test_gpus_mig_says_legal_or_why_not_and_draws_the_placement(gpuflow: Gpuflow) -> None:
    legal = gpuflow("gpus", "mig", "a100-80gb", "3g.40gb", "2g.20gb", "1g.10gb")
    assert legal.code == 0
    assert "3g.40gb" in legal.out
    illegal = gpuflow("gpus", "mig", "a100-80gb", "4g.40gb", "4g.40gb")
    assert illegal.code == 1
    data = gpuflow("gpus", "mig", "a100-80gb", "4g.40gb", "4g.40gb", "--format", "json").data
    assert (data["legal"], bool(data["reasons"])) == (False, True)
