"""A small part of the suite for `make test`, and a door taken off its hinges to show that the suite would notice."""

from __future__ import annotations

from proofs.trust.compiling import MODES, Case
from proofs.trust.documents import FILE, places
from proofs.trust.running import Tally, cases, run

SEED = 2026


def assert_nothing_is_injected(environment: str, count: int) -> Tally:
    """Run the first cases of an environment; enough of them must compile to say something."""
    tally = Tally()
    for _, case in cases(environment, SEED, 0, count):
        run(case, tally)
    assert tally.injected == []
    assert sum(tally.compiled.values()) > count / 5, "hardly anything compiled: nothing was judged"
    assert sum(tally.refused.values()) > 0
    return tally


def injections(environment: str, most: int, modes: str = "") -> list[str]:
    """What is found with a door open, up to the first finding; only modes whose name begins so."""
    tally = Tally()
    for _, case in cases(environment, SEED, 0, most):
        if case.mode.name.startswith(modes):
            run(case, tally)
        if tally.injected:
            break
    return tally.injected


def in_file_name(mode: str, text: str) -> Case:
    """The case of a pipeline whose file has this name."""
    (place,) = (each for each in places() if each.document == FILE)
    return Case(next(each for each in MODES if each.name == mode), place, "instead", text)


def found(case: Case) -> list[str]:
    """What is found in one case. It must compile."""
    tally = Tally()
    run(case, tally)
    assert sum(tally.compiled.values()) == 1
    return tally.injected


def in_place(mode: str, place: str, text: str) -> Case:
    """The case of a text at a place of a document, by the names of both."""
    (found,) = (each for each in places() if each.name == place)
    return Case(next(each for each in MODES if each.name == mode), found, "instead", text)
