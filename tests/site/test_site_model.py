"""Sites: presets, what extends what, and where an error in one of several files is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuflow import GpuflowError, Site
from gpuflow.catalog import models
from gpuflow.core.emit import emit
from gpuflow.core.errors import Where
from gpuflow.site import presets
from gpuflow.spec.canonical import to_document

HEAD = "apiVersion: gpuflow/v1\nkind: Site\n"


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(HEAD + text)
    return str(path)


def refused(path: str) -> list[tuple[str, Where]]:
    with pytest.raises(GpuflowError) as caught:
        Site.load(path)
    return [(finding.code, finding.where) for finding in caught.value.findings]


def test_the_presets_are_the_operator_and_the_three_clouds() -> None:
    assert presets() == ("aks", "eks", "eks-karpenter", "gke", "nvidia")


@pytest.mark.parametrize("name", presets())
def test_a_preset_loads_under_its_own_name_and_says_what_it_is(name: str) -> None:
    site = Site.load(name)
    assert site.name == name
    assert site.description
    assert site.source.file == f"preset {name}"


@pytest.mark.parametrize("name", presets())
def test_what_site_show_prints_is_a_site_again(name: str, tmp_path: Path) -> None:
    site = Site.load(name)
    path = tmp_path / "site.yaml"
    path.write_text(emit(to_document(site)))
    assert Site.load(str(path)) == site


@pytest.mark.parametrize("name", presets())
def test_the_models_of_a_preset_are_models_of_the_catalog(name: str) -> None:
    known = {model.id for model in models()} | {alias for model in models() for alias in model.aliases}
    assert set(Site.load(name).gpu.models) <= known


def test_without_a_name_the_site_is_the_operator() -> None:
    assert Site.load() == Site.load("nvidia")


def test_a_site_that_extends_another_changes_what_it_says_and_keeps_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path, "s.yaml", "name: mine\nextends: gke\nnamespace: team-a\nspot: {notice: 20s}\n")
    mine, gke = Site.load(path), Site.load("gke")
    assert (mine.name, mine.namespace, str(mine.spot.notice)) == ("mine", "team-a", "20s")
    assert mine.spot.labels == gke.spot.labels
    assert mine.gpu == gke.gpu
    assert mine.source.file == path


def test_lists_are_replaced_and_maps_merged(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", "name: b\nextends: nvidia\nlabels: {a: x, b: y}\n")
    path = write(tmp_path, "s.yaml", "extends: base.yaml\nlabels: {b: z}\ngpu: {tolerations: []}\n")
    site = Site.load(path)
    assert site.labels == {"a": "x", "b": "z"}
    assert site.gpu.tolerations == ()
    assert site.gpu.product_label == "nvidia.com/gpu.product"


def test_null_takes_away_what_was_inherited(tmp_path: Path) -> None:
    path = write(tmp_path, "s.yaml", "name: s\nextends: gke\nspot: null\ngpu: {models: {t4: null}}\n")
    site = Site.load(path)
    assert site.spot.labels == {}
    assert set(site.gpu.models) == set(Site.load("gke").gpu.models) - {"t4"}


def test_the_labels_of_one_vendor_are_not_asked_of_anothers_nodes() -> None:
    shares = Site.load("gke").sharing.labels
    assert {key for labels in shares.values() for key in labels} == {"cloud.google.com/gke-gpu-sharing-strategy"}


def test_an_error_is_placed_in_the_file_that_holds_it(tmp_path: Path) -> None:
    base = write(tmp_path, "base.yaml", "name: b\ngpu:\n  resource: nvidia.com/gpu\n  resourse: x\n")
    path = write(tmp_path, "s.yaml", "extends: base.yaml\ngpu:\n  product_label: a b\n")
    assert sorted(refused(path), key=str) == sorted(
        [("GF113", Where(base, 6, 3)), ("GF134", Where(path, 5, 18))], key=str
    )


def test_an_error_in_the_base_of_the_base_is_placed_there(tmp_path: Path) -> None:
    lowest = write(tmp_path, "a.yaml", "name: a\nspot: {labels: {x: 5}}\n")
    write(tmp_path, "b.yaml", "extends: a.yaml\nspot: {notice: 5s}\n")
    path = write(tmp_path, "c.yaml", "extends: b.yaml\nspot: {notice: 6s}\n")
    assert refused(path) == [("GF135", Where(lowest, 4, 20))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("extends: gkee\n", 'did you mean "gke"'),
        ("extends: 5\n", "extends takes the name"),
        ("extends: s.yaml\n", "sites extend each other"),
        ("extends: ./s.yaml\n", "sites extend each other"),
    ],
)
def test_what_cannot_be_extended_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, "s.yaml", "name: s\n" + text)
    with pytest.raises(GpuflowError, match=words) as caught:
        Site.load(path)
    assert [finding.code for finding in caught.value.findings] == ["GF212"]


def test_a_name_that_is_no_preset_and_no_file_is_refused_with_the_presets() -> None:
    with pytest.raises(GpuflowError, match='"gkee" is neither a preset nor a file') as caught:
        Site.load("gkee")
    assert caught.value.findings[0].hint == 'did you mean "gke"?'


def test_a_pipeline_is_not_a_site(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n")
    assert refused(str(tmp_path / "p.yaml")) == [("GF120", Where(str(tmp_path / "p.yaml"), 2, 7))]


def test_the_sites_own_user_cannot_be_root(tmp_path: Path) -> None:
    for user, code in (("0", "GF211"), ("-1", "GF127"), ("me", "GF125")):
        path = write(tmp_path, "s.yaml", f"name: s\nidentity: {{user: {user}}}\n")
        assert [found for found, _ in refused(path)] == [code]


@pytest.mark.parametrize(
    ("name", "pattern", "words", "hint"),
    [
        ("Pod", "https://k8s.example.com/{pods}", "{pods}", 'did you mean "pod"?'),
        ("Pod", "https://k8s.example.com/{node}", "{node}", "known here: bucket, dag_id, key, map_index"),
        ("Pod", "https://k8s.example.com/{}", "{}", "known here: bucket, dag_id"),
        ("Log", "https://logs.example.com/?q={app=x}", "brace", "write %7B for { and %7D for }"),
        ("Pod", "k8s.example.com/{pod}", "not an address", "https://"),
        ("Pod", "javascript:alert(1)", "not an address", "https://"),
        ("Pod", "https://ann:secret@k8s.example.com/{pod}", "not an address", "without a user or a password"),
        ("Pod", "https://k8s.example.com/{pod} x", "not an address", "https://"),
        ("Pipeline source", "https://k8s.example.com/{pod}", "name of a link", "Grafana"),
        (" ", "https://k8s.example.com/{pod}", "name of a link", "Grafana"),
    ],
)
def test_a_link_that_a_task_could_not_fill_in_is_refused(
    tmp_path: Path, name: str, pattern: str, words: str, hint: str
) -> None:
    links = f"{{{json.dumps(name)}: {json.dumps(pattern)}}}"
    path = write(tmp_path, "s.yaml", f"name: s\nengines: {{airflow: {{links: {links}}}}}\n")
    with pytest.raises(GpuflowError) as caught:
        Site.load(path)
    (finding,) = caught.value.findings
    assert finding.code == "GF347"
    assert words in finding.message
    assert hint in (finding.hint or "")


def test_links_are_airflows_alone(tmp_path: Path) -> None:
    links = 'links: {Pod: "https://k8s.example.com/{pod}?x=%7Ba%7D&from={start}"}'
    assert Site.load(write(tmp_path, "s.yaml", f"name: s\nengines: {{airflow: {{{links}}}}}\n")).engine("airflow").links
    path = write(tmp_path, "t.yaml", f"name: t\nengines: {{argo: {{{links}}}}}\n")
    assert [code for code, _ in refused(path)] == ["GF113"]


def test_a_site_that_still_has_a_cache_is_told_what_to_use(tmp_path: Path) -> None:
    path = write(tmp_path, "s.yaml", "name: s\nruntime:\n  cache: {host_path: /var/c, size: 5Gi}\n")
    with pytest.raises(GpuflowError) as caught:
        Site.load(path)
    (finding,) = caught.value.findings
    assert (finding.code, finding.where) == ("GF113", Where(path, 5, 3))
    assert "use a claim that is filled once" in (finding.hint or "")
