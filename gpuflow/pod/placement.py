"""Where a step may run: its GPUs in the site's names (resource, labels, taints), and its pod's scheduling fields.

Pods that must be near each other: Kueue places the pods of a gang together where the queue has a topology; otherwise
the scheduler places them pod by pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gpuflow.catalog.catalog import FormName, Model, models
from gpuflow.catalog.catalog import model as find_model
from gpuflow.catalog.kubernetes_names import PRODUCT_KEY, SHARING_KEY, SLICES_KEY, LabelTooLong, product_labels
from gpuflow.catalog.profile_name import dotted_name
from gpuflow.core.caching import IdentityKey
from gpuflow.core.errors import GpuflowError, did_you_mean, fail
from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs.kinds import WORDS
from gpuflow.site import Site
from gpuflow.spec.kubernetes_fields import TopologySpread
from gpuflow.spec.names import is_label_value
from gpuflow.spec.policies import Toleration
from gpuflow.spec.resources import Gpu
from gpuflow.spec.step import Step, leader_step

Term = dict[str, tuple[str, ...]]
"""Labels a node must have, each with the values that will do."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What a step's GPUs mean on this site: a resource to ask for, and the nodes that have it (any of the terms)."""

    resources: dict[str, int]
    terms: tuple[Term, ...] = ()
    barred: Term = field(default_factory=dict)
    """Labels of other nodes with the same resource, cut or shared ones: each with its values, none means any value."""
    tolerations: tuple[Toleration, ...] = ()


def devices_of_step(step: Step, site: Site) -> dict[str, int]:
    """How many devices all pods of one copy of a step take: of a gang every rank, and its leader by itself."""
    gang, found = step.gang, devices(step, site).resources
    if gang is None:
        return dict(found)
    total = {resource: count * gang.workers for resource, count in found.items()}
    for resource, count in devices(leader_step(step), site).resources.items() if gang.leader is not None else ():
        total[resource] = total.get(resource, 0) + count
    return total


def devices(step: Step, site: Site) -> Devices:
    """The step's GPUs in the site's words. Raises `GpuflowError` when the site has no word for them."""
    if step.gpu is not None:
        return _gpus(IdentityKey(step.gpu), IdentityKey(site))
    if step.mig is not None:
        return _mig(step, site)
    if step.shared_gpu is not None:
        return _shared_devices(step, site)
    tolerations = site.gpu.tolerations if step.device_claim is not None else ()
    return Devices({}, tolerations=tolerations)


@lru_cache(maxsize=1024)
def _gpus(wish: IdentityKey[Gpu], here: IdentityKey[Site]) -> Devices:
    gpu, site = wish.value, here.value
    # Whoever asks for any GPU names no product, so nothing else keeps cut and shared nodes away.
    barred = _parts(site) | (_unnamed_parts(site) if gpu.is_any else {})
    return Devices({site.gpu.resource: gpu.count}, _merge(_gpu_terms(gpu, site)), barred, site.gpu.tolerations)


def _parts(site: Site) -> Term:
    """Labels of nodes that hand out parts of GPUs under the name of whole ones, as the site has them."""
    marks: Term = {site.mig.profile_label: ()} if site.mig.strategy == "single" and site.mig.profile_label else {}
    if site.sharing.resource == site.gpu.resource:
        for key, value in (pair for labels in site.sharing.labels.values() for pair in labels.items()):
            # GPU Feature Discovery writes its label on nodes that are not shared as well, with the value none.
            marks[key] = (*marks.get(key, ()), value) if key == SHARING_KEY else ()
    return marks


def _unnamed_parts(site: Site) -> Term:
    """Labels of the same nodes where the site tells them by the product label, which any GPU does not ask for.

    Raises where nothing tells them from nodes with whole GPUs.
    """
    marks: Term = {}
    discovered = site.gpu.product_label == PRODUCT_KEY
    unmarked = [way for way in site.sharing.offered if not site.sharing.labels.get(way)]
    if site.sharing.resource == site.gpu.resource and unmarked:
        if not discovered:
            raise _may_be_a_part(site, "shared", "sharing.labels, or sharing.resource if shares have their own name")
        marks[SHARING_KEY] = tuple(unmarked)
    if site.mig.strategy == "single" and site.mig.profile_label is None:
        if not discovered:
            raise _may_be_a_part(site, "cut into MIG slices", "mig.profile_label")
        marks[SLICES_KEY] = ()
    return marks


def _may_be_a_part(site: Site, what: str, setting: str) -> GpuflowError:
    return fail(
        "GF206",
        f'any GPU is asked for, and on site "{site.name}" {site.gpu.resource} may also be a GPU that is {what}: no '
        "label tells such nodes",
        hint=f"name the model, or set {setting} in the site",
    )


def _gpu_terms(gpu: Gpu, site: Site) -> list[Term]:
    if gpu.is_any:
        return []
    if gpu.model is not None:
        return [_model_labels(find_model(gpu.model), site, gpu.form)]
    if gpu.any_of is not None:
        known = [_model_labels(find_model(name), site, gpu.form, missing_ok=True) for name in gpu.any_of]
        if not any(term is not None for term in known):
            raise _not_here(", ".join(gpu.any_of), site) if gpu.form is None else _form_not_here(gpu, site)
        return [term for term in known if term is not None]
    assert gpu.memory is not None
    usable = ((model, model.usable_gib) for model in _offered_models(site))
    enough = [each for each, gib in usable if gib is not None and Quantity(f"{int(gib * 1024)}Mi") >= gpu.memory]
    if not enough:
        largest = max((m.usable_gib or 0, m.id) for m in _offered_models(site))
        text = f"no GPU here has {gpu.memory} of usable memory; the largest is {largest[1]} with {largest[0]:g}Gi"
        raise fail("GF223", text, hint="ask for less, or split the model over several GPUs")
    found = [_model_labels(model, site, gpu.form, missing_ok=gpu.form is not None) for model in enough]
    if not any(term is not None for term in found):
        raise _form_not_here(gpu, site)
    return [term for term in found if term is not None]


def _model_labels(model: Model, site: Site, form: FormName | None, *, missing_ok: bool = False) -> Any:
    """Labels of the nodes with this model, in this form."""
    term = _nodes(model, site, missing_ok=missing_ok)
    if form is None or term is None:
        return term
    narrowed = _in_form(model, site, form, term)
    if narrowed is None and not missing_ok:
        raise _form_not_here(Gpu(model=model.id, form=form), site)
    return narrowed


def _in_form(model: Model, site: Site, form: FormName, term: Term) -> Term | None:
    """Of the nodes with this model those with this form; None when the site has no word for them."""
    listed = next((nodes for name, nodes in site.gpu.models.items() if find_model(name).id == model.id), None)
    if listed is not None and form in listed.forms:
        return {**term, **listed.forms[form]}
    if site.gpu.product_label not in term:
        return None
    products = model.products_in(form)
    kept = tuple(value for value in term[site.gpu.product_label] if value in products)
    return {**term, site.gpu.product_label: kept} if kept else None


def _offered_models(site: Site) -> list[Model]:
    """The models this site may have: the listed ones, else every model whose nodes can be recognized."""
    if site.gpu.only_listed:
        return [find_model(name) for name in site.gpu.models]
    listed = {find_model(name).id for name in site.gpu.models}
    return [model for model in models() if model.products or model.id in listed]


def _nodes(model: Model, site: Site, profile: str | None = None, *, missing_ok: bool = False) -> Any:
    """Labels of the nodes with this model; with a profile, of the nodes whose GPUs are all cut that way."""
    listed = {find_model(name).id: nodes for name, nodes in site.gpu.models.items()}
    if model.id in listed:
        term = dict(listed[model.id].labels)
        if profile is not None and site.mig.profile_label is not None:
            if not is_label_value(profile):
                hint = "use a profile without +, or a site that does not find slices by this label"
                raise fail("GF222", f"{site.mig.profile_label}={profile} is not a valid node label", hint=hint)
            term[site.mig.profile_label] = (profile,)
        return term
    if not site.gpu.only_listed and site.gpu.product_label is not None and model.products:
        try:
            return {site.gpu.product_label: product_labels(model, profile)}
        except LabelTooLong as refusal:
            raise fail("GF222", str(refusal)) from None
    if missing_ok:
        return None
    raise _not_here(model.id, site)


def _not_here(name: str, site: Site) -> GpuflowError:
    listed = sorted(site.gpu.models)
    hint = did_you_mean(name, listed) if listed else None
    text = f'site "{site.name}" does not say which nodes have {name}'
    return fail("GF221", text, hint=hint or f"add it: gpu.models.{name}.labels")


def _form_not_here(gpu: Gpu, site: Site) -> GpuflowError:
    name = gpu.model or (gpu.any_of or ("MODEL",))[0]
    what = gpu.description if gpu.memory is None else f"{gpu.form} boards with {gpu.memory}"
    text = f'site "{site.name}" does not say which nodes have {what}'
    return fail("GF205", text, hint=f"leave form out, or add to the site: gpu.models.{name}.forms.{gpu.form}")


def _mig(step: Step, site: Site) -> Devices:
    assert step.mig is not None
    wanted = find_model(step.mig.model)
    profile = step.mig.profile
    if site.mig.strategy == "none":
        text = f'site "{site.name}" offers no MIG slices (mig.strategy is none)'
        raise fail("GF224", text, hint="use gpu: or shared_gpu:, or set mig.strategy in the site")
    if site.mig.strategy == "mixed":
        resource = site.mig.resource.replace("{profile}", dotted_name(profile))
        return Devices({resource: step.mig.count}, (_nodes(wanted, site),), tolerations=site.gpu.tolerations)
    term = _nodes(wanted, site, profile)
    return Devices({site.gpu.resource: step.mig.count}, (term,), tolerations=site.gpu.tolerations)


def _shared_devices(step: Step, site: Site) -> Devices:
    share = step.shared_gpu
    assert share is not None
    if share.by not in site.sharing.offered:
        offered = ", ".join(site.sharing.offered) or "no sharing at all"
        text = f'site "{site.name}" does not share GPUs by {share.by}; it offers {offered}'
        raise fail("GF225", text, hint="use mig: or gpu:")
    if share.count > site.sharing.most:
        text = f"{share.count} shares are requested, and this site allows at most {site.sharing.most}"
        raise fail("GF226", text, hint="two shares may be on the same card: ask for whole GPUs instead")
    labels: Term = {key: (value,) for key, value in site.sharing.labels.get(share.by, {}).items()}
    if share.model is None:
        terms = (labels,) if labels else ()
        return Devices({site.sharing.resource: share.count}, terms, tolerations=site.gpu.tolerations)
    renamed = site.sharing.resource != site.gpu.resource
    nodes = _nodes(find_model(share.model), site)
    if not renamed and site.gpu.product_label is not None and site.gpu.product_label in nodes:
        nodes = {site.gpu.product_label: product_labels(share.model, shared=True)}
    return Devices({site.sharing.resource: share.count}, ({**nodes, **labels},), tolerations=site.gpu.tolerations)


def _merge(terms: list[Term]) -> tuple[Term, ...]:
    """Terms over one and the same label become one term with all the values."""
    keys = {tuple(term) for term in terms}
    if len(terms) > 1 and len(keys) == 1 and len(next(iter(keys))) == 1:
        (key,) = next(iter(keys))
        return ({key: tuple(dict.fromkeys(value for term in terms for value in term[key]))},)
    return tuple(terms)


REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
GROUP_NAME = "kueue.x-k8s.io/podset-group-name"
GROUP = "gang"
"""The leader of a gang and its workers are two pod sets of one workload, and go to one place by this name."""


def asks_kueue(step: Step, site: Site) -> bool:
    """Whether Kueue places the step's pods together: only those of a gang are one workload, and not in every queue."""
    if not WORDS[site.gangs.made_as].in_kueue:
        return False
    together = step.gang is not None and step.topology is not None and step.topology.same is not None
    return together and (step.queue or site.queue) in site.topology.queues


def topology_label(level: str, site: Site) -> str:
    """The label of nodes that says in which rack, block or zone they are."""
    key: str | None = getattr(site.topology, level)
    if key is None:
        text = f'site "{site.name}" does not say which label is a {level}'
        raise fail("GF228", text, hint=f"set topology.{level} in the site")
    return key


def topology_annotations(step: Step, site: Site) -> dict[str, str]:
    """What the pods say to Kueue; nothing where the scheduler is asked."""
    if not asks_kueue(step, site):
        return {}
    assert step.topology is not None and step.topology.same is not None and step.gang is not None
    asked = {REQUIRED_TOPOLOGY: topology_label(step.topology.same, site)}
    return {**asked, GROUP_NAME: GROUP} if step.gang.leader is not None else asked


PLACEMENT_FIELDS = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")
"""Fields of a pod's spec that decide where it runs."""
Expression = dict[str, Any]
PREFERRED_AFFINITY = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


def scheduling_fields(step: Step, site: Site, devices: Devices, selector: dict[str, str]) -> dict[str, Any]:
    """Fields of the pod spec that decide where it runs. `selector` finds the sibling pods of the same step."""
    node_selector, terms = _split(devices.terms)
    extra = [_label_not_in(key, values) for key, values in devices.barred.items()]
    preferred: list[dict[str, Any]] = []
    tolerations: list[Toleration] = list(devices.tolerations)
    hatch = step.kubernetes
    if step.spot is not None:
        tolerations += site.spot.tolerations if step.spot.mode != "never" else ()
        if step.spot.mode == "require":
            if not site.spot.labels:
                text = f'site "{site.name}" does not say what a spot node is'
                raise fail("GF227", text, hint="set spot.labels, or use spot: prefer")
            node_selector.update(site.spot.labels)
        elif step.spot.mode == "prefer" and site.spot.labels:
            labels = [{"key": key, "operator": "In", "values": [value]} for key, value in site.spot.labels.items()]
            preferred.append({"weight": 100, "preference": {"matchExpressions": labels}})
        elif step.spot.mode == "never":
            extra += [{"key": key, "operator": "NotIn", "values": [value]} for key, value in site.spot.labels.items()]
    if hatch is not None:
        node_selector.update(hatch.node_selector)
        tolerations += hatch.tolerations
    affinity = _affinity(terms, extra, preferred, hatch.affinity if hatch else None)
    spread: list[dict[str, Any]] = []
    if step.topology is not None and not asks_kueue(step, site):
        affinity, spread = _topology(step, site, affinity, selector)
    if hatch is not None:
        spread = [*spread, *(_spread_constraint(each, selector) for each in hatch.topology_spread)]
    unique = _without_duplicates([toleration.manifest() for toleration in tolerations])
    fields = zip(PLACEMENT_FIELDS, (node_selector, affinity, unique, spread), strict=True)
    return {key: value for key, value in fields if value}


def _spread_constraint(wish: TopologySpread, selector: dict[str, str]) -> dict[str, Any]:
    """An entry of topologySpreadConstraints; unless it says otherwise it counts the pods of the same step."""
    fields = {
        "maxSkew": wish.max_skew,
        "topologyKey": wish.topology_key,
        "whenUnsatisfiable": wish.when_unsatisfiable,
        "labelSelector": {"matchLabels": wish.match_labels or selector},
        "minDomains": wish.min_domains,
        "nodeAffinityPolicy": wish.node_affinity_policy,
        "nodeTaintsPolicy": wish.node_taints_policy,
        "matchLabelKeys": list(wish.match_label_keys),
    }
    return {key: value for key, value in fields.items() if value not in (None, [])}


def _without_duplicates(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for index, item in enumerate(items) if item not in items[:index]]


def _split(terms: tuple[Term, ...]) -> tuple[dict[str, str], list[list[Expression]]]:
    """One term with single values reads best as a node selector; anything else needs node affinity."""
    if len(terms) == 1 and all(len(values) == 1 for values in terms[0].values()):
        return {key: values[0] for key, values in terms[0].items()}, []
    return {}, [[{"key": k, "operator": "In", "values": list(v)} for k, v in term.items()] for term in terms]


def _label_not_in(key: str, values: tuple[str, ...]) -> Expression:
    """A node without the label, or with none of its values."""
    return (
        {"key": key, "operator": "NotIn", "values": list(values)}
        if values
        else {"key": key, "operator": "DoesNotExist"}
    )


def _affinity(
    terms: list[list[Expression]], extra: list[Expression], preferred: list[dict[str, Any]], own: dict[str, Any] | None
) -> dict[str, Any]:
    """Our node terms and the user's affinity object, both of which must hold."""
    result: dict[str, Any] = {key: dict(value) for key, value in (own or {}).items()}
    node: dict[str, Any] = dict(result.get("nodeAffinity", {}))
    theirs = node.get(REQUIRED_AFFINITY, {}).get("nodeSelectorTerms", [])
    ours = [[*term, *extra] for term in terms] or ([extra] if extra else [])
    if ours:
        # Terms are alternatives, so "both" is every pair.
        pairs = [
            {**their, "matchExpressions": [*their.get("matchExpressions", []), *our]}
            for our in ours
            for their in theirs or [{}]
        ]
        node[REQUIRED_AFFINITY] = {"nodeSelectorTerms": pairs}
    if preferred:
        node[PREFERRED_AFFINITY] = [*node.get(PREFERRED_AFFINITY, []), *preferred]
    if node:
        result["nodeAffinity"] = node
    return result


def _topology(
    step: Step, site: Site, affinity: dict[str, Any], selector: dict[str, str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    assert step.topology is not None
    key = topology_label(step.topology.same or step.topology.spread or "node", site)
    siblings = {"labelSelector": {"matchLabels": selector}, "topologyKey": key}
    if step.topology.spread is not None:
        return affinity, [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **siblings}]
    together = dict(affinity.get("podAffinity", {}))
    together[REQUIRED_AFFINITY] = [*together.get(REQUIRED_AFFINITY, []), siblings]
    return {**affinity, "podAffinity": together}, []
