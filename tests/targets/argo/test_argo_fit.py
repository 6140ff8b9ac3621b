"""`compile --fit`: the cap that makes a run fit a namespace's quotas, and why, in the artifact.

Tests gpuflow/checker/fit.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.checker.fit import Misfit, fit
from gpuflow.checker.run import check
from gpuflow.cli.main import main
from gpuflow.cluster import read_cluster
from gpuflow.core.emit import emit_all
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.assumed import RECORD

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"
FAN = "steps: {each: {for_each: {x: {range: 20}}, command: [go, {item: x}], gpu: a100-80gb x 2}}\n"


def quota(hard: dict[str, str], used: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team-gpu", "namespace": "ns"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def compiled(
    folder: Path, text: str, *manifests: dict[str, Any], more: tuple[str, ...] = ("--target", "argo")
) -> tuple[int, Path]:
    source, cluster, out = folder / "p.yaml", folder / "cluster.yaml", folder / "out" / "p.yaml"
    source.write_text(HEAD + text)
    cluster.write_text(f"{emit_all(list(manifests))}\n---\n{RECORD}")
    arguments = ["compile", str(source), "--namespace", "ns", "--fit", str(cluster), "-o", str(out), *more]
    return main(arguments), out


def test_the_cap_is_the_largest_that_fits_and_the_reason_stands_in_the_header(folder: Path) -> None:
    used = {"requests.nvidia.com/gpu": "1"}
    rc, out = compiled(folder, FAN, quota({"requests.nvidia.com/gpu": "8"}, used))
    assert rc == 0
    assert yaml.safe_load(out.read_text())["spec"]["parallelism"] == 3
    reason = "# parallelism 3: with more, requests.nvidia.com/gpu could pass quota team-gpu (8, 1 in use)"
    assert out.read_text().splitlines()[2] == reason


def test_what_fits_already_gets_no_cap_and_says_so(folder: Path) -> None:
    rc, out = compiled(folder, FAN, quota({"requests.nvidia.com/gpu": "40"}))
    assert rc == 0
    assert "parallelism" not in yaml.safe_load(out.read_text())["spec"]
    assert "# no parallelism is set: its worst moment fits every quota of namespace ns" in out.read_text()


@pytest.mark.parametrize(("own", "cap"), [(2, 2), (10, 4)])
def test_a_smaller_cap_of_the_pipeline_stays_and_a_larger_one_is_lowered(folder: Path, own: int, cap: int) -> None:
    rc, out = compiled(folder, f"parallel: {own}\n" + FAN, quota({"requests.nvidia.com/gpu": "8"}))
    assert rc == 0
    assert yaml.safe_load(out.read_text())["spec"]["parallelism"] == cap


@pytest.mark.parametrize(
    ("hard", "used", "code"),
    [("8", "7", "GF312"), ("1", "0", "GF501")],
)
def test_where_no_cap_helps_nothing_is_written_and_the_finding_says_why(
    folder: Path, capsys: pytest.CaptureFixture[str], hard: str, used: str, code: str
) -> None:
    key = "requests.nvidia.com/gpu"
    rc, out = compiled(folder, FAN, quota({key: hard}, {key: used}))
    assert rc == 1
    assert not out.exists()
    assert code in capsys.readouterr().err


def test_check_compares_with_what_would_be_fitted_now(folder: Path) -> None:
    manifest = quota({"requests.nvidia.com/gpu": "8"})
    assert compiled(folder, FAN, manifest)[0] == 0
    assert compiled(folder, FAN, manifest, more=("--target", "argo", "--check"))[0] == 0
    smaller = quota({"requests.nvidia.com/gpu": "4"})
    assert compiled(folder, FAN, smaller, more=("--target", "argo", "--check"))[0] == 1


def test_the_header_names_nothing_of_the_machine(folder: Path) -> None:
    _, out = compiled(folder, FAN, quota({"requests.nvidia.com/gpu": "8"}))
    assert str(folder) not in out.read_text()


def test_it_needs_a_namespace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "p.yaml").write_text(HEAD + FAN)
    (folder / "c.yaml").write_text(emit_all([quota({"pods": "1"})]))
    assert main(["compile", str(folder / "p.yaml"), "--target", "argo", "--fit", str(folder / "c.yaml")]) == 2
    assert "GF904" in capsys.readouterr().err


def test_a_snapshot_of_another_namespace_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = quota({"pods": "1"})
    other["metadata"]["namespace"] = "elsewhere"
    assert compiled(folder, FAN, other)[0] == 1
    assert "GF533" in capsys.readouterr().err


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    copies=st.integers(1, 6),
    hard=st.integers(1, 16),
    chain=st.booleans(),
)
def test_the_cap_fits_and_one_more_would_not(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], copies: int, hard: int, chain: bool
) -> None:
    text = "steps:\n"
    for number, size in enumerate(sizes):
        needs = f", needs: [s{number - 1}]" if chain and number else ""
        loop = f"for_each: {{x: {{range: {copies}}}}}, "
        text += f"  s{number}: {{{loop}command: [go, {{item: x}}], gpu: a100-80gb x {size}{needs}}}\n"
    pipeline, site = loads(HEAD + text, "p.yaml"), Site.load("nvidia")
    path = tmp_path_factory.mktemp("cluster") / "c.yaml"
    path.write_text(emit_all([quota({"requests.nvidia.com/gpu": str(hard)})]))
    cluster = read_cluster(str(path))

    def verdict(parallel: int | None) -> str:
        capped = pipeline.model_copy(update={"parallel": parallel})
        (scope,) = check(demand_of(capped, site, "argo"), cluster, "ns").scopes
        return scope.verdict

    try:
        found = fit(pipeline, site, cluster, "ns", "argo").pipeline.parallel
    except Misfit:
        assert verdict(1) != "always"
        return
    assert verdict(found) == "always"
    if found is not None:
        assert verdict(found + 1) != "always"
