"""A kustomization.yaml beside compiled files: what `kubectl apply -k` and Argo CD read of a folder.

It lists exactly the files that were compiled, so what is in Git is what is applied. The file is gpuflow's own: one that
somebody wrote or changed by hand is refused, because writing over it would take away what they apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import yaml

from gpuflow.core.emit import emit
from gpuflow.core.errors import Finding, GpuflowError, Where, fail
from gpuflow.core.printable import comment
from gpuflow.core.version import __version__
from gpuflow.targets.argo.facts import ArgoOptions
from gpuflow.targets.target import Artifact, Batch

NAME = "kustomization.yaml"
SPELLINGS = (NAME, "kustomization.yml", "Kustomization")
"""The names kustomize looks for. It refuses a folder with two of them."""
HEADER_PREFIX = "# Made by gpuflow "
"""How everything that gpuflow writes begins."""
_KEYS = {"apiVersion", "kind", "namespace", "resources"}


def kustomization(names: Iterable[str], namespace: str | None) -> str:
    """The file that lists these files, with a namespace when there is one."""
    document: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    if namespace is not None:
        document["namespace"] = namespace
    document["resources"] = sorted(names)
    about = (
        f"{HEADER_PREFIX.removeprefix('# ')}{__version__}: the compiled files of this folder.",
        "Do not edit: compile again with --kustomization, and put your own changes into an overlay.",
    )
    return comment(about) + emit(document)


def kustomization_files(batch: Batch) -> Iterator[Artifact]:
    """The kustomization of everything that is compiled, if requested. A hand-written one is kept."""
    options: ArgoOptions = batch.options or ArgoOptions()
    if not options.kustomization:
        return
    where = Where("gpuflow compile")
    if batch.folder is None:
        raise fail("GF903", "--kustomization is for --target argo with a folder at -o", where=where)
    if options.kind == "Workflow":
        hint = "compile WorkflowTemplates, and start runs with argo submit --from"
        raise fail("GF903", "a Workflow has no name yet, so kustomize cannot list it", where=where, hint=hint)
    names = [artifact.name for artifact in batch.artifacts]
    if NAME in names:
        text = f"a pipeline would be written to {batch.folder / NAME}, as would the kustomization"
        raise fail("GF304", text, where=where, hint=f'do not call a pipeline "{PurePath(NAME).stem}"')
    present = batch.present()
    foreign = refusals(batch.folder, present)
    if foreign:
        raise GpuflowError(foreign)
    # A cluster-wide template has no namespace, and kustomize would give it one.
    namespace = None if options.kind == "ClusterWorkflowTemplate" else batch.namespace
    yield Artifact(NAME, kustomization(names, namespace), tuple(unlisted_files(batch.folder, present, names)))


def refusals(folder: PurePath, present: Mapping[str, str]) -> list[Finding]:
    """Why this folder's kustomization is not gpuflow's to write; `present` has the text of each file in it."""
    found = []
    for name in SPELLINGS:
        if name not in present:
            continue
        foreign = _foreign_content(name, present)
        if foreign:
            path = str(folder / name)
            hint = (
                f"keep your own entries in another folder whose kustomization.yaml has resources: [../{folder.name}], "
                f"and remove {name} here; or leave --kustomization out"
            )
            found.append(Finding("GF315", f"{path} is not overwritten: {foreign}", Where(path), hint))
    return found


def unlisted_files(folder: PurePath, present: Mapping[str, str], names: Iterable[str]) -> list[Finding]:
    """Compiled files that lie in the folder and are not listed, so that nobody applies them any more."""
    listed = {*names, *SPELLINGS}
    return [
        Finding(
            "GF316",
            f"{folder / name} was compiled by gpuflow, but not by this command: {NAME} does not list it",
            Where(str(folder / name)),
            "name its source too, or remove the file; a tool that prunes unlisted objects removes it from the cluster",
            "warning",
        )
        for name, text in sorted(present.items())
        if name not in listed and text.startswith(HEADER_PREFIX)
    ]


def _foreign_content(name: str, present: Mapping[str, str]) -> str | None:
    """What in a kustomization did not come from gpuflow, in words."""
    text = present[name]
    if name != NAME:
        return f"kustomize reads only one of {', '.join(SPELLINGS)}"
    if not text.startswith(HEADER_PREFIX):
        return "gpuflow did not write it"
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return "it is not YAML"
    if not isinstance(document, dict) or not isinstance(document.get("resources", []), list):
        return "it is not a kustomization"
    if any("#" in line for line in text.splitlines()[2:]):
        return "someone added a comment"
    keys = sorted(str(key) for key in document.keys() - _KEYS)
    if keys:
        return f"someone added {', '.join(keys)}"
    entries = [str(entry) for entry in document.get("resources", [])]
    others = [
        entry for entry in entries if "/" in entry or not present.get(entry, HEADER_PREFIX).startswith(HEADER_PREFIX)
    ]
    return f"someone added the resources {', '.join(others)}" if others else None
