"""The flags of each target, built from its own options. A flag of another target is refused: it would do nothing."""

from __future__ import annotations

import argparse
from typing import Any

from gpuflow.errors import Where, fail
from gpuflow.targets import TARGETS, load_target
from gpuflow.targets.frame import Target
from gpuflow.targets.options import Flag, flags_of


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """One flag for each option there is; the help says whose it is."""
    for flag, owners in _owners().items():
        text = "; ".join(f"{target}: {option.help}" for target, option in owners.items())
        metavar = next(iter(owners.values())).metavar
        if metavar is None:
            parser.add_argument(flag, dest=flag, action="store_true", help=text)
        else:
            parser.add_argument(flag, dest=flag, metavar=metavar, help=text)


def target_options(args: argparse.Namespace, target: Target) -> Any:
    """The options that were given, as the target's own type."""
    for flag, owners in _owners().items():
        if getattr(args, flag) and target.name not in owners:
            known = " and ".join(owners)
            where = Where("gpuflow compile")
            raise fail("GF903", f"{flag} is for --target {known}", where=where, hint=f"leave {flag} out")
    return target.options(**{option.field: getattr(args, option.flag) for option in flags_of(target.options)})


def _owners() -> dict[str, dict[str, Flag]]:
    """Every flag, with the targets that have it."""
    found: dict[str, dict[str, Flag]] = {}
    for name in sorted(TARGETS):
        for option in flags_of(load_target(name).options):
            found.setdefault(option.flag, {})[name] = option
    return found
