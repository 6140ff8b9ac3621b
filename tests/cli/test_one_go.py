"""validate, check and compile find the same things at once, and a file silences notes by their codes.

Tests gpuflow/cli/inputs.py and gpuflow/spec/problems.py.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

import gpuflow as library
from gpuflow.core.codes import CODES
from gpuflow.core.errors import GpuflowError
from gpuflow.spec.canonical import digest, to_yaml
from gpuflow.spec.loading import loads
from gpuflow.spec.problems import is_always_error
from tests.cli.commands import DEMO, EXAMPLES, NIGHTLY, Gpuflow
from tests.conftest import ROOT

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"
BROKEN = """steps:
  a: {command: [x, {param: missing}], cache: true, gpu: a100-80gb}
  b: {command: [x, "{{ ds }}"], topology: {same: rack}}
"""
"""A parameter that is missing, a cache, which Airflow has not, a rack without a label, and text like a template."""


def codes(err: str) -> set[str]:
    return set(re.findall(r"^\S.*?: (GF\d{3}) ", err, flags=re.MULTILINE))


def test_the_example_with_a_gang_is_refused_for_all_reasons_at_once(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "gang.yaml"
    text = (EXAMPLES / "gang.yaml").read_text().replace("same: zone", "same: rack")
    file.write_text(text.replace("    cpu: 2\n", "    cpu: 2\n    cache: true\n"))
    alone, engine = gpuflow("validate", file), gpuflow("validate", file, "--engine", "airflow")
    compiled = gpuflow("compile", file, "--target", "airflow")
    checked = gpuflow("check", file, "--cluster", DEMO / "cluster", "--namespace", "team-a", "--engine", "airflow")
    assert (alone.code, engine.code, compiled.code) == (2, 2, 2)
    assert {"GF228", "GF344"} <= codes(alone.err)
    assert "airflow (cache" in alone.err
    assert {"GF228", "GF301"} <= codes(engine.err)
    assert codes(compiled.err) >= {"GF228", "GF301"}
    assert checked.code == 2
    assert codes(checked.err) >= {"GF228", "GF301"}


@pytest.mark.parametrize("command", ["validate", "compile", "check", "demand"])
def test_a_broken_rule_hides_neither_the_engines_refusals_nor_pods_nor_remarks(
    gpuflow: Gpuflow, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + BROKEN)
    more = {
        "validate": ("--engine", "airflow"),
        "compile": ("--target", "airflow"),
        "check": ("--engine", "airflow", "--cluster", DEMO / "cluster", "--namespace", "team-a"),
        "demand": ("--engine", "airflow"),
    }[command]
    answer = gpuflow(command, file, *more)
    assert answer.code == 2
    assert codes(answer.err) == {"GF178", "GF228", "GF301", "GF341"}


OTHERS = """  b: {command: [x, "{{ ds }}"], topology: {same: rack}}
  c: {command: [x], cache: true}
  d: {command: [x, {output: a.n}], topology: {same: rack}}
"""


ALWAYS = {"GF228", "GF341"}


@pytest.mark.parametrize(
    ("misshapen", "shape", "cached", "of_steps"),
    [
        ("steps:\n  a: {command: [x], comand: [y]}\n", "GF113", 'step "c"', ALWAYS),
        (
            "steps:\n  a: {command: [x], cpu: [1], cache: true}\n",
            "GF116",
            'steps "a", "c"',
            {"GF181", "GF228", "GF341"},
        ),
        ("deadline: soon\nsteps:\n  a: {command: [x]}\n", "GF123", 'step "c"', set[str]()),
        ("shedule: daily\nsteps:\n  a: {command: [x]}\n", "GF113", 'step "c"', set[str]()),
    ],
)
def test_a_wrong_shape_hides_no_refusal_of_the_engine(
    gpuflow: Gpuflow, tmp_path: Path, misshapen: str, shape: str, cached: str, of_steps: set[str]
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + misshapen + OTHERS)
    answer = gpuflow("validate", file, "--engine", "airflow")
    assert answer.code == 2
    assert codes(answer.err) == {shape, "GF301"} | of_steps
    assert f"airflow does not support cache ({cached}): " in answer.err
    assert 'step "d": topology' not in answer.err, "a step whose references lead nowhere is not judged further"
    compiled = gpuflow("compile", file, "--target", "airflow")
    assert compiled.err == answer.err


def test_no_refusal_is_placed_by_the_number_of_a_word_that_moved(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + "steps:\n  a: {command: [x, {run: no}, {run: attempt}], args: [{run: date}]}\n")
    answer = gpuflow("validate", file, "--engine", "kubeflow")
    assert "run.attempt" not in answer.err
    assert "p.yaml:6:55: GF301 kubeflow does not support run.date" in answer.err


def test_from_python_too(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + BROKEN)
    with pytest.raises(GpuflowError) as refusal:
        library.compile(file, "airflow")
    assert {each.code for each in refusal.value.findings} == {"GF178", "GF228", "GF301", "GF341"}


def test_validate_with_an_engine_says_what_compile_says(gpuflow: Gpuflow) -> None:
    validated = gpuflow("validate", NIGHTLY, "--engine", "airflow")
    compiled = gpuflow("compile", NIGHTLY, "--target", "airflow")
    assert (validated.code, compiled.code) == (0, 0)
    assert sorted(validated.err.splitlines()) == sorted(compiled.err.splitlines())


def test_argo_refuses_on_data_by_name_and_its_guide_has_the_two_manifests(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + "on_data: [s3://lake/reviews]\nsteps: {a: {command: [x]}}\n")
    answer = gpuflow("validate", file, "--engine", "argo")
    assert (answer.code, "GF301" in codes(answer.err)) == (2, True)
    assert "argo does not support on_data: Argo Workflows cannot start on new data" in answer.err
    title = "Start on new data"
    assert title in answer.err
    section = (ROOT / "docs" / "guides" / "argo.md").read_text(encoding="utf-8").split(f"## {title}\n")[1]
    manifests = list(yaml.safe_load_all(section.split("```yaml\n")[1].split("```")[0]))
    assert [each["kind"] for each in manifests] == ["EventSource", "Sensor"]
    (dependency,) = manifests[1]["spec"]["dependencies"]
    assert dependency["eventSourceName"] == manifests[0]["metadata"]["name"]
    assert dependency["eventName"] in manifests[0]["spec"]["minio"]


def test_a_quota_and_nothing_else_is_not_enough_to_say_always(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(HEAD + "steps: {a: {command: [x], cpu: 1, memory: 1Gi}}\n")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "team-a"}}
    quota |= {"spec": {"hard": {"pods": "9"}}, "status": {"hard": {"pods": "9"}, "used": {"pods": "0"}}}
    (tmp_path / "q.yaml").write_text(yaml.safe_dump(quota))
    words = ("--cluster", tmp_path / "q.yaml", "--namespace", "team-a", "--format", "json")
    report = gpuflow("check", tmp_path / "p.yaml", *words).data
    assert report["verdict"] == "unknown"
    assert "GF536" in {each["code"] for each in report["findings"]}


def silencing(tmp_path: Path, *silenced: str) -> Path:
    file = tmp_path / "nightly.yaml"
    text = Path(NIGHTLY).read_text().replace("kind: Pipeline\n", f"kind: Pipeline\nsilence: [{', '.join(silenced)}]\n")
    file.write_text(text)
    return file


def test_silenced_notes_are_counted_in_one_line_and_the_compiled_file_is_the_same(
    gpuflow: Gpuflow, tmp_path: Path
) -> None:
    loud = gpuflow("compile", NIGHTLY, "--target", "airflow")
    file = silencing(tmp_path, "GF307", "GF305")
    quiet = gpuflow("compile", file, "--target", "airflow")
    assert "GF307" in codes(loud.err)
    assert codes(quiet.err) == codes(loud.err) - {"GF307", "GF305"} | {"GF343"}
    assert "silenced here: " in quiet.err
    assert quiet.out == loud.out
    assert quiet.code == loud.code == 0
    assert codes(gpuflow("compile", silencing(tmp_path, "GF307", "GF305", "GF343"), "--target", "airflow").err) == (
        codes(loud.err) - {"GF307", "GF305"}
    )


def test_check_and_python_hear_the_same(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + 'steps: {a: {command: [x, "{{ ds }}"], cpu: 1, memory: 1Gi}}\n')
    words = ("--cluster", DEMO / "cluster", "--namespace", "team-a", "--format", "json")
    before = {each["code"] for each in gpuflow("check", file, *words).data["findings"]}
    file.write_text(file.read_text().replace("kind: Pipeline\n", "kind: Pipeline\nsilence: GF341\n"))
    after = {each["code"] for each in gpuflow("check", file, *words).data["findings"]}
    assert "GF341" in before
    assert after == before - {"GF341"} | {"GF343"}
    assert [each.code for each in library.compile(file, "airflow").findings] == ["GF343"]
    assert codes(gpuflow("demand", file).err) == {"GF343"}
    assert json.loads(gpuflow("validate", file, "--format", "json").out)[0]["findings"][-1]["code"] == "GF343"


def test_together_only_what_every_file_silences_is_silenced(gpuflow: Gpuflow, tmp_path: Path) -> None:
    def found(*silenced: str) -> list[str]:
        files = []
        for name, line in zip("ab", silenced, strict=True):
            file = tmp_path / f"{name}.yaml"
            file.write_text(HEAD.replace("name: p", f"name: {name}\n{line}") + "steps: {s: {command: [x], cpu: 1}}\n")
            files.append(file)
        words = ("--cluster", DEMO / "cluster", "--namespace", "nowhere", "--together", "--format", "json")
        return [each["code"] for each in gpuflow("check", *files, *words).data[-1]["together"]["findings"]]

    loud = found("", "")
    code = next(each for each in loud if not is_always_error(each))
    assert found(f"silence: {code}", "") == loud
    assert found(f"silence: {code}", f"silence: [{code}]") == [*(each for each in loud if each != code), "GF343"]
    both = f"silence: [{code}, GF343]"
    assert found(both, both) == [each for each in loud if each != code]


def test_a_site_silences_for_every_pipeline_and_the_compiled_file_is_the_same(gpuflow: Gpuflow, tmp_path: Path) -> None:
    compiling = ("compile", NIGHTLY, "--target", "airflow", "--namespace", "nlp")
    loud = gpuflow(*compiling)
    noted = sorted(set(re.findall(r"GF[0-9]{3}", loud.err)))
    assert noted
    site = tmp_path / "site.yaml"
    site.write_text(
        f"apiVersion: gpuflow/v1\nkind: Site\nname: nvidia\nextends: nvidia\nsilence: [{', '.join(noted)}]\n"
    )
    quiet = gpuflow(*compiling, "--site", site)
    assert (quiet.code, loud.out) == (0, quiet.out)
    (line,) = [line for line in quiet.err.splitlines() if "GF343" in line]
    assert line.startswith(f"{site}:5:10: ") and all(code in line for code in noted)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("GF308x", "is not a code"),
        ("GF101", 'GF101 ("Not valid YAML") is an error, which cannot be silenced'),
        ("GF301", "is an error, which cannot be silenced"),
        ("7", "is not a code"),
    ],
)
def test_an_error_or_an_unknown_code_cannot_be_silenced(
    gpuflow: Gpuflow, tmp_path: Path, code: str, words: str
) -> None:
    answer = gpuflow("validate", silencing(tmp_path, code))
    assert answer.code == 2
    assert "nightly.yaml:4:11: GF342" in answer.err
    assert words in answer.err


def test_silence_is_in_the_canonical_document_and_no_part_of_the_meaning() -> None:
    one = loads(HEAD + "steps: {a: {command: [x]}}\n")
    other = loads(HEAD + "silence: [GF307, GF317]\nsteps: {a: {command: [x]}}\n")
    assert loads(to_yaml(other)) == other
    assert digest(one) == digest(other)


@pytest.mark.slow
def test_every_code_that_is_said_as_a_note_or_a_warning_can_be_silenced() -> None:
    said = set()
    for path in (ROOT / "gpuflow").rglob("*.py"):
        if path.is_relative_to(ROOT / "gpuflow" / "runs"):
            continue  # about a run on an engine, and no document's
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = getattr(node.func, "id", None) if isinstance(node, ast.Call) else None
            if function in ("Finding", "warning", "rule", "check_rule"):
                words = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                codes = words & CODES.keys()
                # A rule with several codes yields whole findings: each says how severe it is.
                alone = function in ("rule", "check_rule") and len(codes) == 1 and "error" not in words
                if alone or function == "warning" or (function == "Finding" and words & {"note", "warning"}):
                    said |= codes
    assert {"GF307", "GF341", "GF536"} <= said
    assert [code for code in sorted(said) if is_always_error(code)] == []
