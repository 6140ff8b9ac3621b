"""Whatever a document looks like, the answer is findings with a code and a place, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.cli.main import main
from gpuflow.core.codes import CODES
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.target import findings_beside_broken_rules
from tests.spec.mutation import EXAMPLES, TEXTS, TREES, mutants

FILE = str(EXAMPLES / "mutant.yaml")
EACH = 52


def findings(raw: bytes) -> tuple[Finding, ...]:
    """What is wrong with a document, for the engine that refuses most too; empty when nothing is."""
    try:
        loads(raw, FILE)
    except GpuflowError as refusal:
        found = refusal.findings or (Finding("GF000", "an error without a finding"),)
        return *found, *(each.in_file(FILE) for each in findings_beside_broken_rules(refusal, Site.load(), "kubeflow"))
    return ()


@cache
def broken(kind: Callable[..., Any]) -> tuple[tuple[bytes, tuple[Finding, ...]], ...]:
    judged = [(raw, findings(raw)) for raw in mutants(kind, EACH)]
    return tuple((raw, found) for raw, found in judged if found)


@pytest.mark.parametrize("kind", [*TREES, *TEXTS], ids=lambda kind: kind.__name__)
def test_a_broken_document_gives_codes_and_places(kind: Callable[..., Any]) -> None:
    found = broken(kind)
    assert found, "this kind of change never breaks anything"
    for raw, problems in found:
        lines = raw.decode("utf-8", "replace").splitlines() or [""]
        for problem in problems:
            assert problem.code in CODES
            assert problem.message and "Traceback" not in problem.message
            where = problem.where
            assert where.file is not None and where.line is not None and where.column is not None
            assert Path(where.file).parent == EXAMPLES
            if where.file == FILE:
                assert 1 <= where.line <= len(lines) + 1, problem.render()
                width = len(lines[where.line - 1]) if where.line <= len(lines) else 0
                assert 1 <= where.column <= width + 2, problem.render()
            first, *rest = problem.render().split("\n")
            assert first.startswith(f"{where.file}:{where.line}:{where.column}: {problem.code} ")
            assert all(line.startswith("    ") for line in rest)


def test_there_are_several_hundred_of_them_with_many_codes() -> None:
    everything = [problems for kind in (*TREES, *TEXTS) for _, problems in broken(kind)]
    assert len(everything) >= 600
    assert len({problem.code for problems in everything for problem in problems}) >= 40


@pytest.mark.slow
def test_validate_exits_with_2_and_names_every_broken_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "finetune-eval.yaml").write_bytes((EXAMPLES / "finetune-eval.yaml").read_bytes())
    paths = []
    for kind in (*TREES, *TEXTS):
        for index, (raw, _) in enumerate(broken(kind)[:8]):
            path = tmp_path / f"{kind.__name__}-{index}.yaml"
            path.write_bytes(raw)
            paths.append(str(path))
            assert main(["validate", str(path)]) == 2
            shown = capsys.readouterr().err
            assert shown.startswith((str(path), str(tmp_path / "finetune-eval.yaml")))
    assert main(["validate", *paths]) == 2
    shown = capsys.readouterr().err
    assert [path for path in paths if path not in shown] == []


@given(st.binary(max_size=300))
def test_random_bytes_are_never_a_pipeline_and_never_a_crash(raw: bytes) -> None:
    (problem,) = findings(raw)
    assert problem.code in CODES
    assert problem.where.line is not None


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["command", "image", "needs", "gpu", "steps", "when", "for_each", "env"]), inner
            )
        ),
        max_leaves=20,
    )
)
def test_random_values_under_the_right_head_are_never_a_crash(value: Any) -> None:
    from gpuflow.core.emit import emit

    for section in ("steps", "defaults", "params", "exit", "claims", "outputs", "schedule", "labels"):
        document = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "x", "steps": {"a": {}}, section: value}
        for problem in findings(emit(document).encode("utf-8", "replace")):
            assert problem.code in CODES
            assert problem.where.line is not None


def test_of_thousands_of_errors_the_first_thousand_are_told_and_the_others_counted() -> None:
    steps = "steps: {a: {image: x, command: [y], cpu: 1}}\n"
    unknown = "".join(f"k{number}: 1\n" for number in range(5000))
    found = findings(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: many\n{steps}{unknown}".encode())
    told = [each for each in found if each.code == "GF113"]
    assert len(told) == 1001
    assert [each.message for each in (told[0], told[-1])] == [
        'unknown key "k0"',
        'unknown key "k1000", and 3,999 more are wrong',
    ]
