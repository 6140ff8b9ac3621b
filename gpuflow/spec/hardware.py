"""Whether the GPUs a step names exist, and whether what it asks of them can be."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.catalog.catalog import FormName, Model, models
from gpuflow.catalog.lookup import UnknownGpu, UnknownProfile, model, profile
from gpuflow.catalog.profile_name import BadProfileName
from gpuflow.spec.resources import Gpu
from gpuflow.spec.step import Step

Place = tuple[str | int, ...]
Problem = tuple[str, str, Place, str | None]


def judge_hardware(step: Step) -> Iterator[Problem]:
    """Code, message, place within the step, and way out of each problem."""
    if step.gpu is not None:
        yield from _gpu(step.gpu, ("gpu",))
    leader = step.gang.leader if step.gang is not None else None
    if leader is not None and leader.gpu is not None:
        yield from _gpu(leader.gpu, ("gang", "leader", "gpu"))
    if step.shared_gpu is not None and step.shared_gpu.model is not None:
        yield from _model(step.shared_gpu.model, ("shared_gpu", "model"))
    if step.mig is not None:
        unknown = list(_model(step.mig.model, ("mig", "model")))
        yield from unknown
        if not unknown:
            yield from _profile(step.mig.model, step.mig.profile)


def _gpu(gpu: Gpu, place: Place) -> Iterator[Problem]:
    if gpu.model is not None:
        yield from _model(gpu.model, (*place, "model"), gpu.form)
    for index, name in enumerate(gpu.any_of or ()):
        yield from _model(name, (*place, "any_of", index), gpu.form)


def _model(name: str, place: Place, form: FormName | None = None) -> Iterator[Problem]:
    try:
        owner = model(name)
    except UnknownGpu as refusal:
        message, _, hint = str(refusal).partition("; ")
        yield "GF201", message, place, hint or None
        return
    refused = None if form is None else form_problem(owner, form)
    if refused is not None:
        above = next(index for index, part in enumerate(place) if part in ("model", "any_of"))
        yield "GF204", refused[0], (*place[:above], "form"), refused[1]


def form_problem(owner: Model, form: FormName) -> tuple[str, str] | None:
    """Why the model has no such form, and the way out; None when it has it."""
    has = [each.name for each in owner.forms]
    if form in has:
        return None
    if not has:
        return f"{owner.id} comes in no form that node labels tell apart", "leave form out"
    # H100 NVL is a model of its own, with other memory.
    other = next((each for each in models() if f"{owner.id.partition('-')[0]}-{form}" in each.aliases), None)
    hint = f"use form: {' or '.join(has)}, or leave form out"
    return f"{owner.id} has no form {form}; it has {' and '.join(has)}", f"use {other.id}" if other else hint


def _profile(owner: str, name: str) -> Iterator[Problem]:
    try:
        profile(owner, name)
    except (UnknownProfile, BadProfileName) as refusal:
        message, _, hint = str(refusal).partition("; ")
        yield "GF202", message, ("mig", "profile"), hint or f"see: gpuflow gpus show {owner}"
