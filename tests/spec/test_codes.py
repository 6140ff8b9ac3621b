"""Every code about documents can be provoked, by the document that stands beside it here.

Tests gpuflow/core/codes.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.core import yaml_tree
from gpuflow.core.codes import _ROWS, CODES
from gpuflow.core.errors import GpuflowError
from gpuflow.pod import pod_for
from gpuflow.site import Site
from gpuflow.spec.loading import load
from tests.conftest import ROOT

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
SITE_HEAD = "apiVersion: gpuflow/v1\nkind: Site\nname: s\n"


def step(fields: str) -> str:
    """A pipeline of one step with these fields; they stand on line 5, from column 31."""
    return f"{HEAD}steps:\n  a: {{image: i, command: [c], {fields}}}\n"


def bare(fields: str) -> str:
    """A pipeline of one step with these fields and nothing else; they stand on line 5, from column 7."""
    return f"{HEAD}steps:\n  a: {{{fields}}}\n"


def two(first: str, second: str) -> str:
    """Two steps, a (line 5) and b (line 6), fields from column 31."""
    return step(first).replace("}\n", "}\n  b: {image: i, command: [c], " + second + "}\n")


def with_params(fields: str) -> str:
    return f"{HEAD}params: {{{fields}}}\nsteps:\n  a: {{image: i, command: [c]}}\n"


def top(line: str) -> str:
    return f"{HEAD}{line}\nsteps:\n  a: {{image: i, command: [c]}}\n"


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(f"k{i}: &a [{','.join(['*a'] * 10)}]\n" for i in range(7))
INNER = "{apiVersion: gpuflow/v1, kind: Pipeline, name: q, %s, steps: {s: {image: i, command: [c]}}}"

# code: (document, line, column)
PIPELINES: dict[str, tuple[str | bytes, int, int]] = {
    "GF101": ("a: [1\n", 2, 1),
    "GF102": (b"a: " + b"x" * 2000, 1, 1),
    "GF103": (HEAD + "description: \x01\n", 4, 14),
    "GF104": (HEAD + "steps:\n\ta: 1\n", 5, 1),
    "GF105": (HEAD + "description: " + "[" * 200, 4, 113),
    "GF106": (HEAD + "description: !Ref x\n", 4, 14),
    "GF107": (HEAD + "? [a]\n: b\n", 4, 3),
    "GF108": (HEAD + "---\nx: 1\n", 4, 1),
    "GF109": (HEAD + "name: q\n", 4, 1),
    "GF110": (HEAD + "description: *x\n", 4, 14),
    "GF111": (BOMB, 6, 9),
    "GF112": (step("memory: {request: 112Gi, limit: 96Gi}"), 5, 39),
    "GF113": (step("gpus: l4"), 5, 31),
    "GF114": ("apiVersion: gpuflow/v1\nkind: Pipeline\nsteps: {}\n", 1, 1),
    "GF115": (step("spot: maybe"), 5, 37),
    "GF116": (step("checkpoint: 5"), 5, 43),
    "GF117": (step("args: x"), 5, 37),
    "GF118": (with_params("x: {type: int, min: low}"), 4, 30),
    "GF119": (step("kubernetes: {affinity: {nodeAffinity: 5}}"), 5, 69),
    "GF120": (HEAD.replace("Pipeline", "Deployment"), 2, 7),
    "GF121": (step("memory: 16GB"), 5, 39),
    "GF122": (step("memory: -1Gi"), 5, 39),
    "GF123": (step("timeout: soon"), 5, 40),
    "GF124": (step("cache: yes"), 5, 38),
    "GF125": (step("parallel: 1.5"), 5, 41),
    "GF126": (step("description: true"), 5, 44),
    "GF127": (step("for_each: {x: [1]}, parallel: 0"), 5, 61),
    "GF128": (step("volumes: {/a: {claim: a, secret: b}}"), 5, 45),
    "GF131": (HEAD + "steps:\n  Bad_Name: {image: i, command: [c]}\n", 5, 3),
    "GF132": (with_params("bad-name: 1"), 4, 10),
    "GF133": (step("working_dir: here"), 5, 44),
    "GF134": (step("labels: {-x: y}"), 5, 40),
    "GF135": (step("labels: {x: 5}"), 5, 43),
    "GF136": (step("env: {A-B: x}"), 5, 37),
    "GF137": (step("env: {GPUFLOW_X: x}"), 5, 37),
    "GF138": (step("service_account: A_B"), 5, 48),
    "GF139": (step("labels: {gpuflow.dev/step: mine}"), 5, 40),
    "GF141": (step(r'args: ["\0"]'), 5, 38),
    "GF142": (step("args: [{parm: x}]"), 5, 38),
    "GF143": (with_params("x: {type: json, default: [.inf]}"), 4, 36),
    "GF144": (with_params("x: {type: int, default: five}"), 4, 34),
    "GF145": (with_params("x: {type: int, min: 5, max: 2}"), 4, 30),
    "GF146": (with_params("x: {type: int, default: 5, max: 2}"), 4, 34),
    "GF147": (step("outputs: {x: {type: int, size: 1Gi}}"), 5, 62),
    "GF151": (step("cpu: {}"), 5, 36),
    "GF152": (step("gpu: a100 and more"), 5, 36),
    "GF153": (step("mig: 1g.10gb"), 5, 36),
    "GF154": (step("security: {user: 0}"), 5, 48),
    "GF155": (step("sidecars: [{name: s, image: i}]"), 5, 42),
    "GF156": (step("sidecars: [{name: main, image: i, command: [c]}]"), 5, 49),
    "GF157": (step("retry: {backoff: {start: 10m, max: 1m}}"), 5, 66),
    "GF158": (step("retry: {final_exit_codes: [75]}"), 5, 58),
    "GF159": (step("spot: {mode: allow, fallback_after: 3}"), 5, 67),
    "GF160": (step("kubernetes: {resources: {cpu: 1}}"), 5, 61),
    "GF161": (step("when: accuracy > 1"), 5, 37),
    "GF162": (step("when: 1 < 'a'"), 5, 37),
    "GF163": (step("for_each: {x: []}"), 5, 45),
    "GF164": (bare("image: i"), 5, 6),
    "GF165": (step("gpu: l4, mig: 1g.10gb of a100-80gb"), 5, 45),
    "GF166": (step("parallel: 3"), 5, 41),
    "GF167": (top('schedule: "every day"'), 4, 11),
    "GF168": (top('schedule: {cron: "0 0 * * *", timezone: Berlin}'), 4, 41),
    "GF170": (HEAD + "steps: {}\n", 4, 8),
    "GF172": (two("needs: [b]", "needs: [a]"), 5, 38),
    "GF173": (top("outputs: {x: five}"), 4, 14),
    "GF174": (step("on: failure"), 5, 31),
    "GF175": (step("env: {A: {output: a.x}}, outputs: {x: int}"), 5, 40),
    "GF176": (bare("command: [c]"), 5, 3),
    "GF177": (step("needs: [b]"), 5, 39),
    "GF178": (step("env: {A: {param: lr}}"), 5, 40),
    "GF179": (step("env: {A: {item: seed}}"), 5, 40),
    "GF180": (step("env: {A: {output: b.x}}"), 5, 40),
    "GF181": (two("outputs: {x: int}", "args: [{output: a.y}]"), 6, 38),
    "GF182": (two("outputs: {x: int}", "for_each: {i: {output: a.x}}"), 6, 45),
    "GF183": (step("volumes: {/a: {new_claim: c}}"), 5, 57),
    "GF184": (step("shm: 1Gi, volumes: {/dev/shm: {memory: 1Gi}}"), 5, 61),
    "GF185": (two("outputs: {x: int}", "inputs: {/in: {output: a.x}}"), 6, 45),
    "GF186": (step("checkpoint: {path: /c, store: /c}"), 5, 61),
    "GF187": (bare("pipeline: " + INNER % 'schedule: "0 0 * * *"'), 5, 67),
    "GF188": (bare("pipeline: " + INNER % "params: {x: {type: int}}"), 5, 6),
    "GF189": (step("outputs: {x: int}") + "exit:\n  z: {image: i, command: [c, {output: a.x}]}\n", 7, 30),
    "GF190": (two("when: 'true', outputs: {x: int}", "args: [{output: a.x}]"), 6, 38),
    "GF194": (step("for_each: {x: [1, 2, 1]}, retry: {interruptions: 2}"), 5, 45),
    "GF195": (step("memory: 64Gi, retry: {failures: 1, more_memory: {max: 12Gi}}"), 5, 85),
    "GF201": (step("gpu: a100-81gb"), 5, 36),
    "GF202": (step("mig: 1g.11gb of a100-80gb"), 5, 36),
}


@pytest.mark.parametrize("code", PIPELINES)
def test_a_pipeline_gives_this_code_at_this_place(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document, line, column = PIPELINES[code]
    if code == "GF102":
        monkeypatch.setattr(yaml_tree, "MAX_BYTES", 1000)
    path = tmp_path / "p.yaml"
    path.write_bytes(document if isinstance(document, bytes) else document.encode())
    with pytest.raises(GpuflowError) as caught:
        load(path)
    found = [(finding.code, finding.where.line, finding.where.column) for finding in caught.value.findings]
    assert (code, line, column) in found, caught.value
    assert {finding.where.file for finding in caught.value.findings} == {str(path)}
    assert all(finding.message and (finding.hint is None or finding.hint) for finding in caught.value.findings)


OPENING = "from gpuflow import Pipeline\nwith Pipeline('p') as p:\n"
PYTHON: dict[str, tuple[str, int]] = {
    "GF191": ("from gpuflow import Pipeline\np = Pipeline('p')\np.step('a', ['x'])\n", 3),
    "GF192": ("x = 1\ny = x / 0\n", 2),
    "GF193": ("from gpuflow import Pipeline\n", 1),
    "GF109": (
        OPENING + "    p.step('a', ['x'], image='i')\n    p.step('a', ['x'])\n",
        4,
    ),
    "GF113": (OPENING + "    p.step('a', ['x'], image='i', gpus=1)\n", 3),
    "GF178": (
        OPENING + "    p.step('a', [{'param': 'x'}], image='i')\n",
        3,
    ),
    "GF128": ("import gpuflow\n\ngpuflow.gpu('l4', memory='1Gi')\n", 3),
    "GF141": (
        OPENING + "    p.step('a', ['\\ud800'], image='i')\n",
        3,
    ),
}


@pytest.mark.parametrize("code", PYTHON)
def test_a_python_file_gives_this_code_at_the_line_of_the_call(code: str, tmp_path: Path) -> None:
    text, line = PYTHON[code]
    path = tmp_path / "p.py"
    path.write_text(text)
    with pytest.raises(GpuflowError) as caught:
        load(path)
    found = [(finding.code, finding.where.file, finding.where.line) for finding in caught.value.findings]
    assert found == [(code, str(path), line)]


SITES: dict[str, tuple[str, int, int]] = {
    "GF113": (SITE_HEAD + "gpu: {resources: x}\n", 4, 7),
    "GF120": (SITE_HEAD.replace("Site", "Pipeline"), 2, 7),
    "GF201": (SITE_HEAD + "gpu: {models: {a100-81gb: {labels: {a: b}}}}\n", 4, 16),
    "GF204": (SITE_HEAD + "gpu: {models: {h100: {forms: {nvl: {a: b}}}}}\n", 4, 31),
    "GF211": (SITE_HEAD + "identity: {user: 0}\n", 4, 11),
    "GF212": (SITE_HEAD + "extends: gkee\n", 4, 10),
}


@pytest.mark.parametrize("code", SITES)
def test_a_site_gives_this_code_at_this_place(code: str, tmp_path: Path) -> None:
    document, line, column = SITES[code]
    path = tmp_path / "s.yaml"
    path.write_text(document)
    with pytest.raises(GpuflowError) as caught:
        Site.load(str(path))
    places = [(found.code, found.where.file, found.where.line, found.where.column) for found in caught.value.findings]
    assert places == [(code, str(path), line, column)]


EMPTY_SITE = SITE_HEAD
PODS: dict[str, tuple[str, str]] = {
    "GF165": (step("gpu: l4, kubernetes: {resources: {nvidia.com/gpu: 1}}"), SITE_HEAD + "extends: nvidia\n"),
    "GF205": (step("gpu: a100-80gb sxm"), SITE_HEAD + "gpu: {models: {a100-80gb: {labels: {a: b}}}}\n"),
    "GF206": (step("gpu: 1"), SITE_HEAD + "sharing: {offered: [mps]}\n"),
    "GF221": (step("gpu: l4"), EMPTY_SITE),
    "GF222": (step("mig: 1g.10gb+me of a100-80gb"), SITE_HEAD + "extends: gke\n"),
    "GF223": (step("gpu: {memory: 900Gi}"), SITE_HEAD + "extends: nvidia\n"),
    "GF224": (step("mig: 1g.10gb of a100-80gb"), EMPTY_SITE),
    "GF225": (step("shared_gpu: l4"), EMPTY_SITE),
    "GF226": (step("shared_gpu: {count: 2}"), SITE_HEAD + "extends: nvidia\n"),
    "GF227": (step("spot: require"), EMPTY_SITE),
    "GF228": (step("topology: {same: rack}"), EMPTY_SITE),
}


@pytest.mark.parametrize("code", PODS)
def test_a_site_without_a_word_for_it_gives_this_code_at_the_step(code: str, tmp_path: Path) -> None:
    document, site = PODS[code]
    (tmp_path / "p.yaml").write_text(document)
    (tmp_path / "s.yaml").write_text(site)
    pipeline = load(tmp_path / "p.yaml")
    with pytest.raises(GpuflowError) as caught:
        pod_for(pipeline, "a", Site.load(str(tmp_path / "s.yaml")))
    (finding,) = caught.value.findings
    assert (finding.code, finding.where.line, finding.where.step) == (code, 5, "a")
    assert finding.message.startswith('step "a": ')
    assert finding.hint


def test_a_missing_file_is_named_with_one_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("x")
    for path, word in ((tmp_path / "pipelin.yaml", "does not exist"), (tmp_path, "is a directory")):
        with pytest.raises(GpuflowError) as caught:
            load(path)
        assert (caught.value.findings[0].code, word in caught.value.findings[0].message) == ("GF100", True)
    with pytest.raises(GpuflowError, match=rf'did you mean "{re.escape(str(tmp_path))}/pipeline\.yaml"'):
        load(tmp_path / "pipelin.yaml")


ELSEWHERE = {
    "GF100": "a file that is not there, above",
    "GF129": "a file name, in tests/cli/test_hostile_names.py",
    "GF140": "a file outside the repository, in tests/test_files.py",
    "GF196": "a Python pipeline where none is allowed, in tests/test_files.py",
    "GF210": "a warning, in tests/spec/test_remarks_idle_retries.py",
    "GF203": "a filter of `gpuflow gpus`, in tests/cli",
}


def test_every_code_about_documents_is_provoked_here() -> None:
    provoked = {*PIPELINES, *PYTHON, *SITES, *PODS, *ELSEWHERE}
    assert {code for code in CODES if code[:3] in ("GF1", "GF2")} == provoked


def test_every_code_in_the_source_is_in_the_table_and_the_other_way_round() -> None:
    said = set()
    for path in (ROOT / "gpuflow").rglob("*.py"):
        if path.name != "codes.py":
            said |= set(re.findall(r'"(GF\d{3})"', path.read_text(encoding="utf-8")))
    assert said == set(CODES)


def test_every_code_is_named_by_a_test() -> None:
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "GF" in text:
            named |= {code for words in texts_of(ast.parse(text)) for code in re.findall(r"GF\d{3}", words)}
    assert sorted(set(CODES) - named) == []


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Every text in the code of a test; a docstring names a code without testing it."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, holders) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def test_every_code_has_a_title_a_meaning_and_a_way_out() -> None:
    for code in CODES.values():
        assert re.fullmatch(r"GF[1-9]\d\d", code.id)
        assert all(text and text == text.strip() for text in code)
        assert code.meaning.endswith((".", "yet.")) and not code.title.endswith(".")
    assert list(CODES) == sorted(CODES)


def test_no_code_stands_for_two_things() -> None:
    codes = [row[0] for row in _ROWS]
    assert codes == sorted(set(codes))
