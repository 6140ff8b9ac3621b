"""The answers of this package as plain text of at most 100 columns. No color: the command line adds it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from functools import partial
from itertools import groupby
from typing import Final

from gpuflow.catalog.catalog import Model, Profile, models_with_profile
from gpuflow.catalog.mig_geometry import Arrangement, Packing, mig_of, pack
from gpuflow.catalog.offers import Fit, Instance, Offer

WIDTH: Final = 100
_GRID_WIDTH: Final = 96
_WIDEST_UNIT: Final = 22
_UNKNOWN: Final = "?"
_KNOWN_BY: Final = {"run": "measured", "seen": "seen", "guess": "inferred"}


def draw_models(models: Sequence[Model]) -> str:
    """Models as a table, one line each."""
    if not models:
        return "no GPU model matches"
    rows = [
        (
            model.id,
            model.family,
            model.cc,
            f"{model.memory_gb} GB",
            _gib(model.usable_gib),
            ", ".join(form.name for form in model.forms) or "-",
            str(len(model.profiles) or "-"),
            _KNOWN_BY[model.confidence],
            model.aliases[0] if model.aliases else "",
        )
        for model in models
    ]
    head = ("MODEL", "FAMILY", "CC", "NAMED", "USABLE", "FORMS", "MIG", "KNOWN BY", "ALSO WRITTEN")
    return _table(head, rows, right={2, 3, 4, 6})


def draw_model(model: Model) -> str:
    """One model: what it is, how nodes label it, and how it can be cut."""
    facts = [
        ("usable memory", f"{_gib(model.usable_gib)} ({model.memory_gb} GB by name)"),
        ("architecture", f"{model.family}, compute capability {model.cc}"),
        ("also written", ", ".join(model.aliases) or "-"),
        ("gpu.product", "\n".join(map(partial(_product, model), model.products)) or _UNKNOWN),
        (_KNOWN_BY[model.confidence], model.source),
    ]
    if model.note:
        facts.append(("note", model.note))
    lines = [f"{model.id}  {model.name}", ""]
    lines += [line for label, text in facts for line in _fact(label, text)]
    if model.mig is None:
        return "\n".join([*lines, "", "No MIG: whole, or shared by time-slicing or MPS."])
    lines += ["", f"MIG: {model.mig.grid} memory slices, {model.mig.slices} compute slices", ""]
    rows = [_profile_row(profile) for profile in model.profiles]
    head = ("PROFILE", "STARTS:SIZE", "KNOWN BY", "ID", "MAX", "USABLE", "SM", "CE", "NVDEC", "NVENC", "JPEG", "OFA")
    known = [column for column in range(len(head)) if any(row[column] != _UNKNOWN for row in rows)]
    shown = [[row[column] for column in known] for row in (head, *rows)]
    lines += _table(shown[0], shown[1:], right=range(3, len(known))).splitlines()
    lines += ["", *_wrap(f"source: {model.mig.source}")]
    if model.mig.note:
        lines += _wrap(f"note: {model.mig.note}")
    return "\n".join(lines)


def _product(model: Model, product: str) -> str:
    """A product and its form, which a step asks for as `form`."""
    form = next((each.name for each in model.forms if product in each.products), None)
    return product if form is None else f"{product} ({form})"


def draw_arrangement(arrangement: Arrangement) -> str:
    """Whether one GPU holds the slices: the picture of its memory, or the reasons and how many GPUs it takes."""
    asked = _counts_text(arrangement.counts)
    if not arrangement.legal:
        lines = _wrap(f"{arrangement.model.id} cannot hold {asked}")
        lines += [line for reason in arrangement.reasons for line in _wrap(reason, "  - ")]
        return "\n".join([*lines, "", draw_packing(pack(arrangement.model, arrangement.counts))])
    mig = mig_of(arrangement.model)
    lines = _wrap(f"{arrangement.model.id} holds {asked or 'nothing'}")
    lines += ["", *_memory_grid(arrangement), ""]
    profiles = {profile.name: profile for profile in arrangement.profiles}
    rows = [
        (
            str(count),
            name,
            " ".join(str(placed.start) for placed in arrangement.placements if placed.profile.name == name),
            _gib(profiles[name].usable_gib),
            _number(profiles[name].engines.sm),
        )
        for name, count in arrangement.counts.items()
    ]
    head = ("COUNT", "SLICE", "STARTS AT", "USABLE EACH", "SM EACH")
    lines += _table(head, rows, right={0, 3, 4}).splitlines()
    used = f"{arrangement.compute} of {mig.slices} compute slices, {arrangement.memory} of {mig.grid} memory slices"
    lines += ["", f"uses {used}"]
    lines += _wrap(f"placement {_KNOWN_BY[arrangement.confidence]}: {mig.source}")
    return "\n".join(lines)


def draw_packing(packing: Packing) -> str:
    """The GPUs that hold the slices, alike ones drawn once."""
    total = len(packing.gpus)
    sure = "the fewest possible" if packing.exact else f"at least {packing.at_least} are needed; not proven fewest"
    lines = [f"{total} x {packing.model.id}: {sure}"]
    number = 1
    for _, alike in groupby(packing.gpus, key=lambda gpu: gpu.counts):
        same = list(alike)
        last = number + len(same) - 1
        which = f"GPU {number}" if last == number else f"GPU {number}-{last}, each"
        lines += ["", *_wrap(f"{which}: {_counts_text(same[0].counts)}"), *_memory_grid(same[0])]
        number = last + 1
    return "\n".join(lines)


def draw_fit(fit: Fit) -> str:
    """Where a memory need fits, smallest first."""
    need = f"{fit.need_gib:g} GiB"
    lines = [f"smallest GPUs and slices with {need} of usable memory" if fit.offers else f"nothing known has {need}"]
    if fit.offers:
        rows = [_offer_row(fit.need_gib, offer) for offer in fit.offers]
        head = ("MODEL", "SLICE", "USABLE", "SPARE", "PER GPU", "KNOWN BY")
        lines += ["", *_table(head, rows, right={2, 3, 4}).splitlines()]
    if fit.unknown:
        names = ", ".join(str(offer) for offer in fit.unknown)
        lines += ["", *_wrap(f"promise enough by name, real memory not known: {names}")]
    return "\n".join(lines)


def draw_instances(instances: Sequence[Instance]) -> str:
    """Instance types as a table, one line each."""
    if not instances:
        return "no instance type matches"
    rows = [
        (
            instance.cloud,
            instance.name,
            instance.share or str(instance.gpus),
            instance.model,
            str(instance.vcpu),
            f"{instance.memory_gib:g} GiB",
            instance.allocatable_cpu or _UNKNOWN,
            instance.allocatable_memory or _UNKNOWN,
        )
        for instance in instances
    ]
    head = ("CLOUD", "INSTANCE", "GPUS", "MODEL", "VCPU", "MEMORY", "ALLOC CPU", "ALLOC MEM")
    return _table(head, rows, right={2, 4, 5, 6, 7})


def draw_owners(name: str) -> str:
    """Every model that has a profile of this name, because the name alone means different slices."""
    owners = models_with_profile(name)
    if not owners:
        return f"no model has a MIG profile {name}"
    found = [profile for owner in owners for profile in owner.profiles if profile.name == name]
    rows = [
        (profile.model, str(profile.max), f"{profile.size}/{mig_of(owner).grid}", _gib(profile.usable_gib))
        for owner, profile in zip(owners, found, strict=True)
    ]
    return _table(("MODEL", "PER GPU", "OF MEMORY", "USABLE"), rows, right={1, 2, 3})


def _memory_grid(arrangement: Arrangement) -> list[str]:
    """The memory grid: a box for each slice over its units, dots where nothing lies."""
    grid = mig_of(arrangement.model).grid
    unit = min(_WIDEST_UNIT, _GRID_WIDTH // grid)
    inside = unit * grid - 1
    edge, body = list(f"+{'-' * inside}+"), list(f"|{'.' * inside}|")
    for placed in arrangement.placements:
        left, right = placed.start * unit, placed.end * unit
        body[left:right] = list(f"| {placed.profile.name}".ljust(right - left))
        body[right] = "|"
        edge[left] = edge[right] = "+"
    scale = "".join(str(number).ljust(unit) for number in range(grid + 1))
    return [f"  {line}".rstrip() for line in ("".join(edge), "".join(body), "".join(edge), scale)]


def _profile_row(profile: Profile) -> tuple[str, ...]:
    return (
        profile.name,
        f"{','.join(map(str, profile.starts))}:{profile.size}",
        _KNOWN_BY[profile.confidence],
        _number(profile.id),
        str(profile.max),
        _gib(profile.usable_gib),
        *map(_number, astuple(profile.engines)),
    )


def _offer_row(need: float, offer: Offer) -> tuple[str, ...]:
    spare = None if offer.usable_gib is None else offer.usable_gib - need
    part = offer.profile.name if offer.profile else "whole GPU"
    known_by = _KNOWN_BY[offer.confidence]
    return (offer.model.id, part, _gib(offer.usable_gib), _gib(spare), str(offer.per_gpu), known_by)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """Columns under their heads, two blanks apart; the numbers in `right` are set flush right."""
    flush = set(right)
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = enumerate(zip(row, widths, strict=True))
        return "  ".join(text.rjust(width) if i in flush else text.ljust(width) for i, (text, width) in cells).rstrip()

    return "\n".join(map(line, (head, *rows)))


def _fact(label: str, text: str) -> list[str]:
    lines = [piece for line in text.splitlines() for piece in textwrap.wrap(line, WIDTH - 18, break_on_hyphens=False)]
    return [f"  {label:<14}  {lines[0]}", *(f"{'':18}{line}" for line in lines[1:])]


def _wrap(text: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False
    )


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _gib(amount: float | None) -> str:
    return _UNKNOWN if amount is None else f"{amount:.2f} GiB"


def _number(count: int | None) -> str:
    return _UNKNOWN if count is None else str(count)
