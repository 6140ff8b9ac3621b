"""The bounds of pyproject.toml: every requirement has both, and the page of what was tried agrees with them."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests import bounds
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "reference" / "versions.md"
EXTRAS = tuple(bounds.SMOKE)


def number(version: str) -> tuple[int, ...]:
    """A version to compare: trailing zeros count for nothing."""
    return tuple(int(part) for part in re.sub(r"(\.0)+$", "", version).split("."))


def tried() -> dict[tuple[str, str], tuple[str, str, str]]:
    """The rows of the page's table: the allowed range, the oldest and the newest version that were run."""
    rows = re.findall(
        r"^\| `([a-z]+)` \| ([\w-]+) \| ([^|]+) \| ([\d.]+) \| ([\d.]+) \|", PAGE.read_text(encoding="utf-8"), re.M
    )
    return {(extra, name): (allowed.strip(), oldest, newest) for extra, name, allowed, oldest, newest in rows}


def test_every_extra_that_users_install_is_tried_at_both_ends() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"].keys() - {"dev"} == set(EXTRAS) - {bounds.CORE}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_page_of_what_was_tried_has_the_bounds_of_the_package(extra: str) -> None:
    rows = {name: row for (owner, name), row in tried().items() if owner == extra}
    assert rows.keys() == {bound.name for bound in bounds.requirements(extra)}
    for bound in bounds.requirements(extra):
        allowed, oldest, newest = rows[bound.name]
        assert allowed == f">={bound.lower},<{bound.upper}"
        assert number(oldest) == number(bound.lower), f"{bound.name}: the lower bound was not tried"
        assert number(bound.lower) <= number(newest) < number(bound.upper)


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_smoke_part_names_what_exists(extra: str) -> None:
    assert [name for name in bounds.SMOKE[extra].tests if not (ROOT / name).exists()] == []


def test_the_oldest_are_the_lower_bounds() -> None:
    (cluster,) = bounds.requirements("cluster")
    assert f"kubernetes=={cluster.lower}" in bounds.pins("cluster")
    (runtime,) = bounds.requirements("runtime")
    assert f"s3fs=={runtime.lower}" in bounds.pins("runtime")


@pytest.mark.parametrize("text", ["kubernetes>=30", "kubernetes<38", "kubernetes", "kubernetes==37.0.2"])
def test_a_requirement_without_both_bounds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="both of them tried"):
        bounds._bound(text)
