"""Every pipeline of the corpus is read; what of it is exact, bounded or unknown, and why, is a golden."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuflow.demands import Demand
from gpuflow.readers import Options, PassiveObject, foreign_in, read_documents
from gpuflow.site import Site
from tests.conftest import ROOT

GOLDEN = Path(__file__).parent / "golden" / "corpus.txt"
PAGE = ROOT / "docs" / "design" / "readers-corpus.md"
RANK = ("exact", "at-most", "unknown")
UNRECORDED = ("oci-", "kfp-workspace")
POD = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "activeDeadlineSeconds", "volumes")


def demands(corpora: Path, engine: str = "none") -> Iterator[tuple[Path, Demand]]:
    folder = corpora / "kubeflow-pipelines"
    for path in sorted((folder / "ir").rglob("*")):
        if path.is_file():
            active, _ = foreign_in(read_documents(str(path)))
            (demand,) = [each.demand(Options(Site.load("nvidia"), engine)) for each in active]
            assert not isinstance(demand, PassiveObject)
            yield path.relative_to(folder), demand


def answer(demand: Demand) -> tuple[str, str]:
    """The weakest of its peaks, and why."""
    weakest = max(demand.peak.values(), key=lambda bound: RANK.index(bound.bound))
    because = re.sub(r" \(\S+/([^/]+:\d+)\)", r" (\1)", weakest.because or "")
    places = [f"{part.step}: {part.because}" for part in demand.unseen if part.is_placement]
    return weakest.bound, "; ".join([because, *places]) if because or places else ""


def test_every_pipeline_of_the_corpus_is_read(corpora: Path, golden: Callable[[Path, str], None]) -> None:
    lines = []
    counts: Counter[str] = Counter()
    for path, demand in demands(corpora):
        bound, because = answer(demand)
        counts[bound] += 1
        codes = ", ".join(sorted({each.code for each in demand.refusals} - {"GF734"}))
        peak = " ".join(f"{key}={each.value}" for key, each in sorted(demand.peak.items()) if each.value is not None)
        lines.append(" | ".join([str(path), f"{len(demand.steps)} steps", bound, peak, because, codes]).rstrip(" |"))
    head = ", ".join(f"{counts[bound]} {bound}" for bound in RANK)
    golden(GOLDEN, "\n".join([f"{sum(counts.values())} pipelines: {head}", "", *lines]) + "\n")
    assert f"{counts['exact']} are exact, {counts['at-most']} are bounded, {counts['unknown']} are unknown" in " ".join(
        PAGE.read_text(encoding="utf-8").split()
    )


def test_with_the_engine_every_step_has_kubeflow_s_own_containers_and_drivers_are_counted(corpora: Path) -> None:
    alone = dict(demands(corpora))
    for path, demand in demands(corpora, "kubeflow"):
        assert {step.name for step in alone[path].steps} <= {step.name for step in demand.steps}
        assert demand.driver is not None
        drivers = demand.driver_pods
        assert drivers is not None
        assert drivers.at_most is None or drivers.at_most >= drivers.at_least >= 1
        for step in alone[path].steps:
            assert "kfp-launcher" in [each["name"] for each in demand.by_name[step.name].pod["spec"]["initContainers"]]


def test_the_pods_are_those_that_kubeflow_s_driver_was_recorded_to_make(corpora: Path) -> None:
    folder = corpora / "kubeflow-pipelines"
    recorded = json.loads((folder / "driver-pods.json").read_text())
    compared = 0
    for path, demand in demands(corpora):
        tree: Any = read_documents(str(folder / path))[0].tree
        spec = tree.get("pipelineSpec", tree)
        labels = dict(executors(spec, spec["root"], ""))
        for step in demand.steps:
            made = recorded.get(path.as_posix(), {}).get(labels[step.name], {"error": "not recorded"})
            if "error" not in made:
                assert asked(step.pod["spec"]) == asked(made), (path, step.name)
                compared += 1
    assert compared > 200


def executors(spec: Mapping[str, Any], component: Mapping[str, Any], around: str) -> Iterator[tuple[str, str]]:
    """The executor of each task, by its path."""
    if "executorLabel" in component:
        yield around.rstrip("."), component["executorLabel"]
    for name, task in component.get("dag", {}).get("tasks", {}).items():
        inner = spec["components"][task["componentRef"]["name"]]
        yield from executors(spec, inner, f"{around}{name}.")


def asked(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What admission and the scheduler see of a pod."""
    main = spec["containers"][0]
    names = [each["name"] for each in main.get("env", ())]
    # The recording was made without artifacts and inputs: models in images and workspaces are not in it.
    volumes = {"volumes": [each for each in spec.get("volumes", ()) if not each["name"].startswith(UNRECORDED)]}
    mounts = [each for each in main.get("volumeMounts", ()) if not each["name"].startswith(UNRECORDED)]
    return {
        **{key: spec.get(key) for key in POD},
        **volumes,
        "resources": main.get("resources") or {},
        "pull": main.get("imagePullPolicy"),
        "env": names,
        "mounts": [(each["name"], each["mountPath"]) for each in mounts],
        "user": (main.get("securityContext") or {}).get("runAsUser"),
    }
