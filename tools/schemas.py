"""Write `gpuflow/formats/schemas.json`: `python tools/schemas.py [--check]`.

From the OpenAPI of Kubernetes and the CRDs of the kinds that gpuflow reads, as their projects publish them in their Go
modules (all under the Apache License 2.0). Only the names and types of fields are kept, and no descriptions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpuflow.formats.schemas import DATA, Definitions  # noqa: E402  # it is run as a file

LICENCE = "Apache-2.0"
KUBERNETES = "k8s.io/kubernetes@v1.36.3"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
FREE: Mapping[str, Mapping[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"format": "quantity"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"format": "int-or-string"},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {},
    "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry": {},
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps": {},
}
"""Types with a decoder of their own, and those that nobody writes by hand."""


class Module(NamedTuple):
    """A Go module with CRDs."""

    name: str
    module: str
    folder: str
    older: str = ""
    """An older version of the module, whose fields are known too: gpuflow says itself what is gone."""


MODULES = (
    Module(
        "Argo Workflows", "github.com/argoproj/argo-workflows/v4@v4.0.7", "manifests/base/crds/full",
        "github.com/argoproj/argo-workflows/v3@v3.7.3",
    ),
    Module("JobSet", "sigs.k8s.io/jobset@v0.12.0", "config/components/crd/bases"),
    Module("KubeRay", "github.com/ray-project/kuberay/ray-operator@v1.6.2", "config/crd/bases"),
    Module("Kubeflow Trainer", "github.com/kubeflow/trainer/v2@v2.3.0", "manifests/base/crds"),
    Module("Kubeflow Training Operator", "github.com/kubeflow/training-operator@v1.9.3", "manifests/base/crds"),
    Module("Kueue", "sigs.k8s.io/kueue@v0.19.2", "config/components/crd/bases"),
    Module("LeaderWorkerSet", "sigs.k8s.io/lws@v0.9.0", "config/crd/bases"),
    Module("MPI Operator", "github.com/kubeflow/mpi-operator@v0.8.2", "manifests/base"),
    Module("Volcano", "volcano.sh/volcano@v1.14.1", "config/crd/volcano/bases"),
)  # fmt: skip
"""As the tests run them. Of a kind and version that two modules have, the last one counts."""


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--check", action="store_true", help="exit with 1 if the file is not what would be written")
    options = asked.parse_args()
    text = json.dumps(schemas(), separators=(",", ":"), sort_keys=True) + "\n"
    if options.check:
        return int(DATA.read_text(encoding="utf-8") != text)
    DATA.write_text(text, encoding="utf-8")
    print(f"{DATA.relative_to(ROOT)}: {len(text) // 1024} KiB")
    return 0


def schemas() -> dict[str, Any]:
    named = native()
    definitions, kinds = Definitions(), dict[str, list[int]]()
    metadata = definitions.add(expand(named, OBJECT_META))
    sources = [{"name": "Kubernetes", "version": "1.36", "module": KUBERNETES, "licence": LICENCE}]
    for name in sorted(named):
        for each in named[name].get("x-kubernetes-group-version-kind", ()):
            fields = named[name].get("properties", {})
            if {"apiVersion", "kind", "metadata"} <= fields.keys() and not each["kind"].endswith("List"):
                key = f"{'/'.join(filter(None, (each['group'], each['version'])))} {each['kind']}"
                kinds[key] = [definitions.add_object(expand(named, name), metadata), 0]
    pod_parts = {name: expand(named, f"io.k8s.api.core.v1.{name}") for name in ("Container", "Volume")}
    for module in MODULES:
        version = module.module.rpartition("@v")[2].rpartition(".")[0]
        older = dict(definitions_in(folder_of(module.older) / module.folder)) if module.older else {}
        for key, schema in definitions_in(folder_of(module.module) / module.folder):
            schema = merged(schema, older[key]) if key in older else schema
            schema = as_argo(schema, pod_parts) if module.older else schema
            kinds[key] = [definitions.add_object(schema, metadata), len(sources)]
        sources.append({"name": module.name, "version": version, "module": module.module, "licence": LICENCE})
    return {"kinds": kinds, "metadata": metadata, "nodes": definitions.nodes, "sources": sources}


@cache
def folder_of(module: str) -> Path:
    """Where a module is unpacked; it is downloaded when it is not there."""
    words = ["go", "mod", "download", "-json", module]
    found = subprocess.run(words, cwd="/", check=True, capture_output=True, text=True).stdout
    return Path(json.loads(found)["Dir"])


def native() -> dict[str, Any]:
    """The schemas of Kubernetes' own types, by name."""
    found: dict[str, Any] = {}
    for file in sorted((folder_of(KUBERNETES) / "api" / "openapi-spec" / "v3").glob("*.json")):
        found |= json.loads(file.read_bytes()).get("components", {}).get("schemas", {})
    return found


def expand(named: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A type with the types of its fields in place of their names."""
    return FREE[name] if name in FREE else _expanded(named, named[name])


def _expanded(named: Mapping[str, Any], schema: Any) -> Any:
    for each in (schema, *schema.get("allOf", ())):
        if "$ref" in each:
            return expand(named, each["$ref"].rpartition("/")[2])
    found = {key: each for key, each in schema.items() if key != "required"}  # the API server decodes without it
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _expanded(named, found[key])
    if "properties" in found:
        found["properties"] = {name: _expanded(named, each) for name, each in found["properties"].items()}
    return found


def definitions_in(folder: Path) -> Iterator[tuple[str, Any]]:
    """The schema of each version of each kind that the CRDs of a folder define."""
    for file in sorted(folder.glob("*.yaml")):
        for tree in yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader):
            if not isinstance(tree, dict) or tree.get("kind") != "CustomResourceDefinition":
                continue
            spec = tree["spec"]
            for version in spec["versions"]:
                key = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
                if version.get("served"):
                    yield key, version["schema"]["openAPIV3Schema"]


def merged(first: Any, second: Any) -> Any:
    """A schema with the fields of another one; required is what both require."""
    found = dict(first)
    for key in ("items", "additionalProperties"):
        if isinstance(first.get(key), dict) and isinstance(second.get(key), dict):
            found[key] = merged(first[key], second[key])
    if "properties" in first and "properties" in second:
        both = {**second["properties"], **first["properties"]}
        for name in first["properties"].keys() & second["properties"].keys():
            both[name] = merged(first["properties"][name], second["properties"][name])
        found["properties"] = both
        found["required"] = [name for name in first.get("required", ()) if name in second.get("required", ())]
    return found


ARGO_NEWER: Mapping[str, tuple[str, ...]] = {
    "templates": ("executorPlugins", "podResources", "resourceClaims"),
    "containerSet": ("pendingTimeout", "podResources", "resourceClaims"),
    "roleARN": ("addressingStyle",),
    "auth": ("saveStreamViaFile",),
}
"""Fields that came after the module that can be had, by a field beside which they stand. gpuflow reads some of them."""
PARTS = {"Container": {"image", "volumeMounts"}, "Volume": {"emptyDir", "hostPath"}}
"""Parts of pods, by fields that only they have: a newer Kubernetes below the same Argo has more."""


def as_argo(schema: Any, pod_parts: Mapping[str, Any]) -> Any:
    """A schema with newer fields."""
    if not isinstance(schema, dict):
        return schema
    found = {key: as_argo(each, pod_parts) for key, each in schema.items() if key != "properties"}
    if "properties" in schema:
        fields = {name: as_argo(each, pod_parts) for name, each in schema["properties"].items()}
        for part, words in PARTS.items():
            if words <= fields.keys():
                fields = {**pod_parts[part]["properties"], **fields}
        newer = {name: {} for beside, names in ARGO_NEWER.items() if beside in fields for name in names}
        found["properties"] = {**newer, **fields}
    return found


if __name__ == "__main__":
    sys.exit(main())
