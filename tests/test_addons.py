"""What is put on a private cluster, and in which order. Nothing is started here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.cluster.__main__ import HELP
from tests.cluster.cluster import ADDON_PROGRAMS, ADDONS, AFTER, _waves, _with_needs
from tests.engines.build import BY_PROGRAM


@pytest.mark.parametrize(
    ("asked", "node", "expected"),
    [
        (["argo", "kueue"], True, [["argo", "kueue"]]),
        (["kubeflow", "kueue"], True, [["argo", "kueue"], ["kubeflow"]]),
        (["jobset"], True, [["dns"], ["jobset"]]),
        (["kueue", "jobset"], True, [["dns"], ["jobset"], ["kueue"]]),
        (["kueue", "jobset"], False, [["jobset"], ["kueue"]]),
        (["dns"], False, [["dns"]]),
    ],
)
def test_an_addon_follows_what_it_stands_on(asked: Sequence[str], node: bool, expected: list[list[str]]) -> None:
    waves = _waves(_with_needs(asked, node=node))
    assert [sorted(wave) for wave in waves] == expected


def test_every_addon_has_programs_help_and_a_way_to_install_it() -> None:
    assert set(ADDONS) == set(ADDON_PROGRAMS) == set(HELP)
    assert {each for pair in AFTER.items() for each in pair} <= set(ADDONS)
    assert {program for programs in ADDON_PROGRAMS.values() for program in programs} <= set(BY_PROGRAM)
