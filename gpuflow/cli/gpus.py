"""`gpuflow gpus list|show|mig|pack|fit|instances`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from gpuflow import catalog
from gpuflow.catalog import drawing
from gpuflow.cli.terminal import print_text, show_json
from gpuflow.core.errors import Where, did_you_mean, fail
from gpuflow.quantity import Quantity

EXAMPLE = """gpuflow gpus list --memory 40Gi --mig
gpuflow gpus show a100-80gb
gpuflow gpus mig a100-80gb 3g.40gb 2g.20gb 1g.10gb
gpuflow gpus pack a100-80gb 2x3g.40gb 8x1g.10gb
gpuflow gpus fit 24Gi
gpuflow gpus instances --gpu l4"""
ACTIONS = ("list", "show", "mig", "pack", "fit", "instances")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(action="list", text=None, memory=None, mig=None, family=None, format="text")
    actions = parser.add_subparsers(dest="action", metavar="|".join(ACTIONS))
    listing = actions.add_parser("list", help="models, filtered")
    listing.add_argument("text", nargs="?", help="part of an id, name, alias or product label")
    listing.add_argument("--memory", metavar="QUANTITY", help="at least this much usable memory, for example 40Gi")
    listing.add_argument("--mig", action="store_const", const=True, help="only models that support MIG")
    listing.add_argument("--family", help="ampere, hopper, blackwell …")
    show = actions.add_parser("show", help="one model with its MIG profiles; for a profile, the models that have it")
    show.add_argument("name")
    for name, what in (
        ("mig", "check whether one GPU can hold this mix of slices"),
        ("pack", "the fewest GPUs for these slices"),
    ):
        slices = actions.add_parser(name, help=what)
        slices.add_argument("model")
        slices.add_argument("slices", nargs="+", metavar="SLICE", help="1g.10gb, or 2x1g.10gb")
    fit = actions.add_parser("fit", help="smallest slices and GPUs with this much memory")
    fit.add_argument("memory", metavar="QUANTITY")
    fit.add_argument("--gpu", dest="of", metavar="MODEL", help="only this model")
    fit.add_argument(
        "--all", action="store_true", dest="every", help="everything that fits, not only the smallest of each model"
    )
    instances = actions.add_parser("instances", help="cloud machines with GPUs")
    instances.add_argument("text", nargs="?", help="part of an instance type")
    instances.add_argument("--gpu", dest="of", metavar="MODEL")
    instances.add_argument("--cloud", choices=("aws", "gcp", "azure"))
    for action in (*actions.choices.values(), parser):
        action.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    try:
        data, text, code = _ACTIONS[args.action or "list"](args)
    except (catalog.UnknownGpu, catalog.UnknownProfile) as refusal:
        message, _, hint = str(refusal).partition("; ")
        which = "GF201" if isinstance(refusal, catalog.UnknownGpu) else "GF202"
        raise fail(which, message, hint=hint, where=Where("gpuflow gpus")) from None
    except catalog.BadProfileName as refusal:
        raise fail("GF202", str(refusal), where=Where("gpuflow gpus")) from None
    if args.format == "json":
        show_json(data)
    else:
        print_text(text.rstrip("\n") + "\n")
    return code


Result = tuple[Any, str, int]


def _list(args: argparse.Namespace) -> Result:
    found = catalog.find_models(args.text, memory_gib=_gib(args.memory), mig=args.mig, family=args.family)
    if not found:
        families = {model.family for model in catalog.models()}
        hint = (
            did_you_mean(args.family, families) if args.family and args.family not in families else "loosen the filter"
        )
        raise fail("GF203", "no model matches", hint=hint, where=Where("gpuflow gpus"))
    return [_row(model) for model in found], drawing.draw_models(found), 0


def _show(args: argparse.Namespace) -> Result:
    if args.name[:1].isdigit() and "g." in args.name:
        if not (owners := catalog.models_with_profile(args.name)):
            hint = "gpuflow gpus list --mig shows the models that support MIG"
            raise fail("GF202", f"no model has a MIG profile {args.name}", where=Where("gpuflow gpus"), hint=hint)
        return [model.id for model in owners], drawing.draw_owners(args.name), 0
    model = catalog.model(args.name)
    return _row(model), drawing.draw_model(model), 0


def _mig(args: argparse.Namespace) -> Result:
    found = catalog.arrange(args.model, catalog.read_slices(args.slices))
    data = {
        "model": catalog.model(args.model).id,
        "legal": found.legal,
        "reasons": list(found.reasons),
        "placements": [{"profile": p.profile.name, "start": p.start, "size": p.profile.size} for p in found.placements],
        "confidence": found.confidence,
    }
    return data, drawing.draw_arrangement(found), 0 if found.legal else 1


def _pack(args: argparse.Namespace) -> Result:
    found = catalog.pack(args.model, catalog.read_slices(args.slices))
    data = {
        "gpus": [arrangement.counts for arrangement in found.gpus],
        "exact": found.exact,
        "at_least": found.at_least,
    }
    return data, drawing.draw_packing(found), 0


def _fit(args: argparse.Namespace) -> Result:
    found = catalog.fit(_gib(args.memory) or 0, of=args.of, every=args.every)
    data = {"offers": list(map(_offer, found.offers)), "unknown": list(map(_offer, found.unknown))}
    return data, drawing.draw_fit(found), 0 if found.offers else 1


def _instances(args: argparse.Namespace) -> Result:
    found = catalog.find_instances(args.text, cloud=args.cloud, of=args.of)
    if not found:
        raise fail("GF203", "no instance type matches", hint="loosen the filter", where=Where("gpuflow gpus"))
    return [asdict(instance) for instance in found], drawing.draw_instances(found), 0


_ACTIONS = {"list": _list, "show": _show, "mig": _mig, "pack": _pack, "fit": _fit, "instances": _instances}


def _gib(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return Quantity(text).value / 2**30
    except ValueError as refusal:
        raise fail(
            "GF121", f'"{text}" is not a quantity: {refusal}', where=Where("gpuflow gpus"), hint="for example 24Gi"
        ) from None


def _offer(offer: catalog.Offer) -> dict[str, Any]:
    profile = offer.profile.name if offer.profile else None
    return {"model": offer.model.id, "profile": profile, "usable_gib": offer.usable_gib}


def _row(model: catalog.Model) -> dict[str, Any]:
    row = asdict(model)
    row["mig_profiles"] = [asdict(profile) for profile in model.profiles]
    return row
