"""One pipeline after the other with stand-ins, in processes of their own, and how each ended."""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gpuflow.core.errors import GpuflowError
from gpuflow.local import run
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline

from .cases import Case
from .standing import questions_of, variables_of, with_stand_ins

GOOD = "succeeded"
JOBS = 8
"""As many programs at once as the largest gang of our own has ranks, and some more."""


def attempt(case: Case) -> str:
    """`succeeded`, or why not. It runs in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="gpuflow-local-corpora-"))
    os.chdir(folder)
    try:
        if case.expected is not None:
            return _run_as_it_is(loads(case.text, case.name), case.expected)
        pipeline = with_stand_ins(loads(case.text, case.name))
        os.environ.update(dict.fromkeys(variables_of(pipeline), "stand-in"))
        return _run(pipeline, case, folder)
    except GpuflowError as refusal:
        return "; ".join(dict.fromkeys(f"{each.code} {each.message}" for each in refusal.findings))
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


def _run(pipeline: Pipeline, case: Case, folder: Path) -> str:
    site: Site | str = "nvidia"
    if case.site.endswith(".yaml"):
        site = Site.load(case.site)
    elif case.site:
        (folder / "site.yaml").write_text(case.site)
        site = Site.load(str(folder / "site.yaml"))
    result = run(pipeline, site=site, pretend_gpus=True, allow_lossy=True, approve=questions_of(pipeline), jobs=JOBS)
    if result.state == GOOD:
        begun = [step for step in result.steps if step.attempts]
        return GOOD if begun else "nothing of it ran: every step was skipped"
    wrong = [
        f"{step.name} {step.state}: {step.because}" for step in result.steps if step.state not in (GOOD, "skipped")
    ]
    return "; ".join(wrong[:2])


def _run_as_it_is(pipeline: Pipeline, case: dict[str, Any]) -> str:
    """Whether every step that the case names ends as it says."""
    result = run(pipeline, params=case.get("params"), **case.get("options", {}))
    found = {step.name: step.state for step in result.steps}
    others = {name: state for name, state in case.get("steps", {}).items() if found.get(name) != state}
    wrong = [f"{name} {found.get(name)}, not {state}" for name, state in others.items()]
    return GOOD if result.state == case["state"] and not wrong else f"{result.state}: {'; '.join(wrong)}"


def play(cases: list[Case], workers: int) -> dict[Case, str]:
    """How each ended; a line for each that did not succeed."""
    found = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for number, (case, said) in enumerate(zip(cases, pool.map(attempt, cases), strict=True), start=1):
            found[case] = said
            if said != GOOD:
                print(f"{number} of {len(cases)}: {case.group}: {case.name}: {said}", flush=True)
            elif number % 20 == 0:
                print(f"{number} of {len(cases)}", flush=True)
    return found
