"""Experiments of Katib: trials side by side, each an object of its own.

Katib v0.19: three trials at once where `parallelTrialCount` is not given. The pod of the suggestion service and the
sidecar that collects metrics are Katib's own, described in its configuration, and not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuflow.cluster.model import with_entry
from gpuflow.core import yaml_tree
from gpuflow.core.errors import GpuflowError, Where
from gpuflow.demands.model import Demand, StepDemand, UnseenPart
from gpuflow.formats.documents import READERS, Document, kind_of
from gpuflow.graph import Dag, Loop
from gpuflow.readers.interface import ForeignObject, PassiveObject
from gpuflow.readers.kubernetes.demand import Object
from gpuflow.readers.kubernetes.fields import Part

DEFAULT_PARALLEL: Final = 3
PARAMETER: Final = re.compile(r"\$\{trialParameters\.([^}]*)\}")
SIDES: Final = ("requests", "limits")


def experiment(thing: Object) -> Demand | PassiveObject:
    """So many trials, at most `parallelTrialCount` of them at once."""
    spec = thing.spec
    parallel = spec.count("parallelTrialCount", DEFAULT_PARALLEL, least=1)
    template = spec.need("trialTemplate")
    trial = template.at("trialSpec")
    if trial is None:
        source = template.need("configMap", what="and no trialSpec")
        return _unseen_demand(thing, "the template of its trials is in a ConfigMap, which is not read", source.where)
    values = _Values(_known_values(spec, template))
    tree = values.fill(trial.value, trial)
    kind, group = kind_of(tree)
    if (kind, group) not in READERS:
        what = f"a {kind}" if kind else "an object without kind"
        return _unseen_demand(thing, f"its trials are {what}, which gpuflow does not read", trial.where)
    if not isinstance(tree.get("metadata"), Mapping) or not tree["metadata"].get("name"):
        tree = with_entry(tree, "metadata", {**(tree.get("metadata") or {}), "name": "trial"})
    document = Document(tree, thing.document.file, kind, group, thing.document.index, thing.document.silenced)
    try:
        one = ForeignObject(document, thing.library).demand(replace(thing.options, engine="none"))
    except GpuflowError:
        if not values.open:
            raise
        names = ", ".join(sorted(values.open))
        return _unseen_demand(thing, f"its trials depend on values that each trial gets anew: {names}", trial.where)
    if isinstance(one, PassiveObject):
        return thing.passive(f"its trials start nothing: {one.because}")
    return _demand(thing, one, spec, parallel, values)


def _demand(thing: Object, one: Demand, spec: Part, parallel: int, values: _Values) -> Demand:
    # Without a bound trials follow each other until the goal is reached, never more at once than the first ones.
    most = None if spec.at("maxTrialCount") is None else spec.count("maxTrialCount", 1, least=1)

    def for_all_trials(step: StepDemand) -> StepDemand:
        total = None if most is None or step.copies is None else step.copies * most
        return replace(step, copies=total, is_sure=False)

    unseen = (
        *one.unseen,
        *(UnseenPart(thing.name, why, where, resource) for resource, (why, where) in values.resources.items()),
    )
    return replace(
        one,
        name=thing.name,
        steps=tuple(map(for_all_trials, one.steps)),
        graph=Dag({"trials": Loop("trials", one.graph, parallel if most is None else most, parallel)}),
        unseen=unseen,
        source=None,
    )


def _unseen_demand(thing: Object, because: str, where: Where) -> Demand:
    return Demand(thing.name, (), Dag({}), unseen=(UnseenPart(thing.name, because, where),))


def _known_values(spec: Part, template: Part) -> dict[str, str]:
    """The trial parameters that have one value only, by their names."""
    fixed: dict[str, str] = {}
    for each in spec.items_at("parameters"):
        name, space = each.text("name"), each.at("feasibleSpace")
        if name and space is not None:
            listed = space.at("list")
            bounds = (space.text("min"), space.text("max"))
            if listed is not None and isinstance(listed.value, list) and len(listed.value) == 1:
                fixed[name] = str(listed.value[0])
            elif bounds[0] is not None and bounds[0] == bounds[1]:
                fixed[name] = bounds[0]
    found: dict[str, str] = {}
    for each in template.items_at("trialParameters"):
        name, reference = each.text("name"), each.text("reference")
        if name and reference in fixed:
            found[name] = fixed[reference]
    return found


@dataclass
class _Values:
    """Puts known values into a trial. Amounts that each trial gets anew are taken out and remembered."""

    known: Mapping[str, str]
    open: set[str] = field(default_factory=set)
    resources: dict[str, tuple[str, Where]] = field(default_factory=dict)

    def fill(self, value: Any, part: Part) -> Any:
        if isinstance(value, yaml_tree.Map):
            made = yaml_tree.Map(value.spot)
            made.file, made.file_at = value.file, value.file_at
            made.key_at, made.value_at = value.key_at, value.value_at
            for key, item in value.items():
                if part.path[-2:-1] == ("resources",) and part.path[-1] in SIDES and self._is_open(item):
                    where = part.below(key, item).where
                    self.resources[key] = (f"{key} is {item}, which each trial gets anew", where)
                    continue
                made[key] = self.fill(item, part.below(key, item))
            return made
        if isinstance(value, yaml_tree.Seq):
            listed = yaml_tree.Seq(value.spot)
            listed.item_at = value.item_at
            listed.extend(self.fill(item, part.below(index, item)) for index, item in enumerate(value))
            return listed
        if isinstance(value, Mapping):
            return {key: self.fill(item, part.below(key, item)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, part.below(index, item)) for index, item in enumerate(value)]
        return self._text(value) if isinstance(value, str) and "${trialParameters." in value else value

    def _is_open(self, value: object) -> bool:
        return isinstance(value, str) and any(name not in self.known for name in PARAMETER.findall(value))

    def _text(self, text: str) -> Any:
        """A text with the values in it. One that is nothing but a number becomes one, as Katib's own does."""
        self.open |= {name for name in PARAMETER.findall(text) if name not in self.known}
        made = PARAMETER.sub(lambda found: self.known.get(found[1], found[0]), text)
        return yaml_tree.parse_plain(made) if PARAMETER.fullmatch(text) and made != text else made
