"""What is normalized means the same to every reader of YAML, whatever stood there.

Tests gpuflow/cli/normalize.py and gpuflow/importing/normalize.py.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError
from gpuflow.importing.normalize import normalize
from tests.cli.commands import Answer
from tests.cli.conftest import gpuflow  # noqa: F401  # a fixture

Run = Callable[..., Answer]
WORKFLOW = """# a comment
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: hello-, labels: {on: yes, "no": "true", build: 007}}
spec:
  surprise: {anything: [1, 1.50, 1e3, 0o17, 0x1F, ~, 2024-01-02, 12:30:45, '1e3', "null", !!str 5, !!float 3]}
  templates:
  - &first
    name: first
    script:
      source: |
        echo "{{inputs.parameters.x}}"

        exit 0
  - <<: *first
    name: second
"""


def read_by_pyyaml(text: str) -> list[Any]:
    """YAML 1.1, with no dates for numbers that are none: they compare as dates do."""
    return list(yaml.safe_load_all(text))


def read_by_libyaml(text: str) -> list[Any]:
    """The same by PyYAML's C reader, for many files: the one in Python takes ten times as long."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def same(one: Any, other: Any) -> bool:
    """Equal, types included: true is not 1, and not-a-number is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return [*one] == [*other] and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def plain(tree: Any) -> Any:
    """Our own reader's tree as plain data, numbers with their spelling."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [plain(value) for value in tree]
    return (type(tree).__name__, tree.text) if hasattr(tree, "text") else tree


def assert_equal_in_content(text: str) -> str:
    written = normalize(text, "x.yaml")
    assert same(plain(yaml_tree.parse_all(written, "y")), plain(yaml_tree.parse_all(text, "x")))
    assert same(read_by_pyyaml(written), read_by_pyyaml(text))
    assert normalize(written, "y.yaml") == written
    return written


def test_a_workflow_keeps_every_field_every_spelling_and_its_order() -> None:
    written = assert_equal_in_content(WORKFLOW)
    assert 'labels:\n    on: yes\n    "no": "true"\n    build: 007\n' in written
    for line in ("- 1.50", "- 1e3", "- 0o17", "- 0x1F", "- ~", "- 2024-01-02", '- "1e3"', '- "null"', '- "5"'):
        assert f"    {line}\n" in written
    assert '      source: |\n        echo "{{inputs.parameters.x}}"\n\n        exit 0\n' in written
    assert "- name: second\n" in written


def test_all_documents_of_a_stream_are_written_empty_ones_too() -> None:
    assert normalize("a: 1\n---\n---\n- b\n...\n", "x") == "a: 1\n---\nnull\n---\n- b\n"
    assert normalize("", "x") == ""


words = st.sampled_from(
    [
        "on",
        "No",
        "y",
        "~",
        "null",
        "TRUE",
        "1e3",
        "1_000",
        "0o7",
        "017",
        "0b11",
        ".5",
        "+.inf",
        ".NaN",
        "12:30",
        "<<",
        "=",
    ]
) | st.sampled_from(
    [
        "2024-01-02",
        "1.",
        "-",
        "...",
        "---",
        "#a",
        "?",
        "%x",
        "@x",
        "2001-12-14 21:59:43.10 -5",
        "a: b",
        "a #b",
        "- a",
        "",
    ]
)
texts = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=12)
lines = st.lists(st.text("ab \t:#-'\"{}é\u200b", max_size=6), max_size=4).map("\n".join)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words | texts | lines
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | texts | lines, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(trees, max_size=3), st.sampled_from([True, False, None]), st.sampled_from([None, '"', "'", "|"]))
def test_any_tree_is_the_same_tree_whoever_reads_it(documents: list[Any], flow: bool | None, style: str | None) -> None:
    """However PyYAML lays it out: blocks, brackets, quotes of each kind."""
    text = yaml.safe_dump_all(documents, default_flow_style=flow, default_style=style, allow_unicode=True)
    try:
        read = read_by_pyyaml(text), yaml_tree.parse_all(text, "x")
    except (yaml.YAMLError, GpuflowError):
        return  # not every tree that can be written can be read: keys that are equal, "=" alone
    assert all(part is not None for part in read)
    assert_equal_in_content(text)


@given(st.lists(words | st.text("0123456789+-.:_eEox ", min_size=1, max_size=8), min_size=1, max_size=5))
@example(["1:"])
@example(["-"])
def test_what_stands_bare_between_brackets_is_what_it_was(found: list[str]) -> None:
    text = f"a: [{', '.join(found)}]\n"
    try:
        read_by_pyyaml(text), yaml_tree.parse_all(text, "x")
    except (yaml.YAMLError, GpuflowError, ValueError):
        return
    assert_equal_in_content(text)


def corpus_files(corpora: Path) -> list[Path]:
    return sorted(path for path in corpora.rglob("*") if path.suffix in (".yaml", ".yml"))


@pytest.mark.slow
def test_every_file_of_the_corpora_is_equal_in_content(corpora: Path) -> None:
    refused = []
    for path in corpus_files(corpora):
        text = path.read_text(encoding="utf-8")
        try:
            yaml_tree.parse_all(text, str(path))
        except GpuflowError as refusal:
            refused.append((path.name, refusal.findings[0].code))
            continue
        written = normalize(text, str(path))
        assert same(plain(yaml_tree.parse_all(written, "y")), plain(yaml_tree.parse_all(text, "x"))), path
        if len(text) < 100_000:
            assert same(read_by_libyaml(written), read_by_libyaml(text)), path
        assert normalize(written, "y.yaml") == written, path
    assert refused == [("k8s-patch-json-workflow.yaml", "GF109")]  # Kubernetes refuses a key that stands twice as well


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (BOMB, "GF111"),
        ("a: &a " + "x" * 1_000_000 + "\nb: [" + ", ".join(["*a"] * 1000) + "]\n", "GF785"),
        ("[" * 100_000, "GF105"),
        ("a: &a [*a]\n", "GF110"),
        ("a: !secret x\n", "GF106"),
    ],
)
def test_bombs_are_refused_at_once(text: str, code: str) -> None:
    with pytest.raises(GpuflowError) as caught:
        normalize(text, "x.yaml")
    assert [finding.code for finding in caught.value.findings] == [code]


def test_the_command_prints_writes_and_compares(gpuflow: Run, tmp_path: Path) -> None:  # noqa: F811  # the fixture that is imported
    file, other = tmp_path / "w.yaml", tmp_path / "n.yaml"
    file.write_text(WORKFLOW)
    printed = gpuflow("normalize", file)
    assert (printed.code, printed.out) == (0, normalize(WORKFLOW, "x"))
    assert gpuflow("normalize", file, "-o", other).code == 0
    assert other.read_text() == printed.out
    assert gpuflow("normalize", file, "-o", other, "--check") == Answer(0, "", "")
    stale = gpuflow("normalize", file, "-o", file, "--check")
    assert stale.code == 1
    assert "(normalized now)" in stale.out
    assert file.read_text() == WORKFLOW


def test_standard_input_and_misuse(gpuflow: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811  # the fixture that is imported
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a:   1")))
    assert gpuflow("normalize", "-").out == "a: 1\n"
    assert gpuflow("normalize", "x.yaml", "--check").err.startswith("gpuflow normalize: GF903")
    missing = gpuflow("normalize", "nowhere.yaml")
    assert (missing.code, missing.err[:19]) == (2, "nowhere.yaml: GF100")
