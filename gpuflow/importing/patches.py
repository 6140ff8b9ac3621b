"""What is left between the pod that a step makes and the pod that it must have, as `kubernetes.merge`.

gpuflow gives every pod a restricted security context, and GPUs the site's tolerations. A file that says nothing of them
gets pods without them, so the patch takes them away again: the pods stay what they were until somebody decides.
"""

from __future__ import annotations

from typing import Any

from gpuflow.errors import Finding, GpuflowError
from gpuflow.importing.listing import RULE, Listing
from gpuflow.importing.pods import OF_WORDS, POD_WORDS, Step
from gpuflow.kubernetes.pod_fields import Field, fields_of
from gpuflow.kubernetes.strategic_merge import DIRECTIVE
from gpuflow.pod.build import pod_for
from gpuflow.site import Site
from gpuflow.spec.building import check
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.source import Source

FLOW = ("needs", "when", "if_skipped", "for_each", "parallel", "on", "outputs", "inputs", "checkpoint", "description")
"""What a step says about its place among the others, and what its supervisor is for: nothing of the pod."""
HELPERS = ("init_containers", "sidecars")


def complete(step: Step, site: Site, listing: Listing) -> None:
    """Give the step the patch that it needs; list what no patch can say."""
    if not step.sound:
        return
    try:
        made = _pod(step.words, site)
    except GpuflowError as refusal:
        if "gpu" not in step.words and "mig" not in step.words:
            _list(refusal, step, listing)
            return
        # The site has no word for these GPUs: the resource is asked for as it stands.
        listing.note(f"the GPUs stay a resource of the cluster: {refusal.findings[0].message}", step.where)
        _as_resources(step)
        try:
            made = _pod(step.words, site)
        except GpuflowError as again:
            _list(again, step, listing)
            return
    if step.secured:
        _keep_security(made, step)
    patch = patch_of(made, step)
    if patch:
        step.words.setdefault("kubernetes", {})["merge"] = patch
        try:
            made = _pod(step.words, site)
        except GpuflowError as refusal:
            _list(refusal, step, listing)


def _keep_security(made: dict[str, Any], step: Step) -> None:
    """What the engine's own container template says of privileges is not the patch's to take away."""
    own = step.wanted["spec"].get("securityContext", {})
    rest = {key: value for key, value in made["spec"].get("securityContext", {}).items() if key not in IDENTITY}
    step.wanted["spec"]["securityContext"] = {**rest, **{key: own[key] for key in IDENTITY if key in own}}
    (main,) = made["spec"]["containers"]
    step.wanted["main"]["securityContext"] = main.get("securityContext")


IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot")


def _list(refusal: GpuflowError, step: Step, listing: Listing) -> None:
    listing.found += [Finding(RULE, f"{each.code} {each.message}", step.where, each.hint) for each in refusal.findings]


def _as_resources(step: Step) -> None:
    hatch = step.words.setdefault("kubernetes", {})
    asked = step.wanted["main_resources"]
    step.words.pop("gpu", None)
    step.words.pop("mig", None)
    hatch["resources"] = asked
    if step.wanted["spec"].get("nodeSelector"):
        hatch["node_selector"] = step.wanted["spec"]["nodeSelector"]


def _pod(words: dict[str, Any], site: Site) -> dict[str, Any]:
    """The pod of a step alone, its texts left out: they may hold references to what is not there."""
    own = {key: value for key, value in words.items() if key not in FLOW and key not in ("env", "args", "script")}
    own["command"] = ["x"]
    for key in HELPERS:
        if key in own:
            own[key] = [{**each, "command": ["x"], "args": [], "env": {}} for each in own[key]]
    mounts = [own.get("volumes", {}), *(each.get("volumes", {}) for key in HELPERS for each in own.get(key, ()))]
    claims = {each["new_claim"]: {"size": "1Gi"} for found in mounts for each in found.values() if "new_claim" in each}
    head = {"apiVersion": "gpuflow/v1", "kind": "Pipeline", "name": "p"}
    document = {**head, **({"claims": claims} if claims else {}), "steps": {"s": own}}
    pipeline = check(Pipeline, document, Source())
    return pod_for(pipeline, "s", site)


def patch_of(made: dict[str, Any], step: Step) -> dict[str, Any]:
    """A strategic merge patch that makes the pod what it must be."""
    spec: dict[str, Any] = _difference(made["spec"], step.wanted["spec"], "PodSpec", POD_WORDS)
    (main,) = made["spec"]["containers"]
    own = _difference(main, step.wanted["main"], "Container", OF_WORDS)
    own |= {key: step.patch[key] for key in ("env", "volumeMounts") if key in step.patch}
    if own:
        spec["containers"] = [{"name": "main", **own}]
    helpers = []
    raw = {each["name"]: each for each in step.patch.get("initContainers", ())}
    for each in made["spec"].get("initContainers", ()):
        skipped = (*OF_WORDS, "restartPolicy")
        change = _difference(each, step.wanted["init"].get(each["name"], {}), "Container", skipped)
        change |= raw.get(each["name"], {})
        if change:
            helpers.append({"name": each["name"], **change})
    if helpers:
        spec["initContainers"] = helpers
    if step.patch.get("volumes"):
        spec["volumes"] = step.patch["volumes"]
    return {"spec": spec} if spec else {}


def _difference(made: dict[str, Any], wanted: dict[str, Any], kind: str, skipped: tuple[str, ...]) -> dict[str, Any]:
    known = fields_of(kind)
    found: dict[str, Any] = {}
    for key in (*wanted, *(name for name in made if name not in wanted)):
        if key in skipped or made.get(key) == wanted.get(key):
            continue
        found[key] = _replaced(made.get(key), wanted.get(key), known.get(key))
    return found


def _replaced(made: Any, wanted: Any, field: Field | None) -> Any:
    """The value of a patch that leaves exactly what is wanted."""
    if wanted is None or made is None:
        return wanted
    if isinstance(wanted, dict) and isinstance(made, dict):
        known = fields_of(field.type) if field is not None and field.holds == "one" else {}
        keys = (*wanted, *(name for name in made if name not in wanted))
        return {
            key: _replaced(made.get(key), wanted.get(key), known.get(key))
            for key in keys
            if made.get(key) != wanted.get(key)
        }
    if isinstance(wanted, list) and field is not None and field.merge_key is not None:
        return [*wanted, {DIRECTIVE: "replace"}]
    return wanted
