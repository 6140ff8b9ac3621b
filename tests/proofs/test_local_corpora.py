"""Small parts of the proof of what runs here: a few pipelines with stand-ins, and what is not as it must be."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import yaml

from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.loading import loads
from proofs.local_corpora.__main__ import KNOWN, judge
from proofs.local_corpora.cases import Case, of_our_own
from proofs.local_corpora.playing import GOOD, attempt
from proofs.local_corpora.standing import LIST, with_stand_ins
from tests.conftest import ROOT

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: 'i:1'}\n"
TEXT = f"""{HEAD}params: {{n: {{type: int}}, l: {{type: json}}}}
steps:
  list: {{command: [x, {{param: n}}], outputs: {{v: {{type: json, path: /tmp/out/v}}, f: file}}}}
  each: {{for_each: {{i: {{output: list.v}}}}, script: 'exit 1', inputs: {{/in/f: {{output: list.f}}}}}}
  more: {{for_each: {{i: {{param: l}}}}, command: [y, {{item: i}}], checkpoint: {{path: /c, store: 's3://b'}}}}
"""


@pytest.fixture(autouse=True)
def _here() -> Iterator[None]:
    """A case goes to a folder of its own, and its process stays there."""
    yield
    os.chdir(ROOT)


def test_programs_are_replaced_and_write_what_is_declared() -> None:
    document = yaml.safe_load(to_yaml(with_stand_ins(loads(TEXT, "p.yaml"))))
    assert document["params"] == {"n": {"type": "int", "default": 3}, "l": {"type": "json", "default": LIST}}
    assert "script" not in document["steps"]["each"]
    assert attempt(Case("own", "p", TEXT)) == GOOD


@pytest.mark.parametrize(
    ("name", "said"),
    [("outputs.artifact", GOOD), ("when", KNOWN["when"]), ("outputs_from", "GF923"), ("a parameter of the run", GOOD)],
)
def test_constructs_of_our_own(name: str, said: str) -> None:
    case = next(case for case in of_our_own() if case.name == name)
    assert attempt(case).startswith(said)


def test_what_does_not_run_must_be_on_the_list() -> None:
    good, bad = Case("kueue", "a", ""), Case("kueue", "b", "")
    own, known = Case("constructs", "c", ""), Case("constructs", "when", "")
    assert judge({good: GOOD, own: GOOD, known: KNOWN["when"]}) == []
    assert judge({good: GOOD, bad: "GF1"}) == ["of the importable files 1 of 2 run, which is less than 80%"]
    assert judge({own: "GF1 x"}) == ["constructs: c is not on the list of what does not run: GF1 x"]
    assert "is on the list for" in judge({known: "GF1 x"})[0]
