"""The pages whose commands are run, where each is run, and the blocks that are not, with the reason.

The environment is the suite's: core, or that of an engine (GPUFLOW_TEST_TARGET). No console block is unaccounted for:
`test_pages` compares this table with the pages.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from tests.conftest import ROOT

HERE = os.environ.get("GPUFLOW_TEST_TARGET") or "core"
"""The environment that these tests run in."""
ENGINES = ("argo", "airflow", "kubeflow")


class Page(NamedTuple):
    """Where a page is run: in which environments, and in a copy of which folder."""

    environments: tuple[str, ...]
    folder: str | None = None
    elsewhere: str | None = None
    """The test that runs it, when it is not the one here."""


PAGES = {
    "README.md": Page(("argo",), elsewhere="tests/first_hour/test_clone.py"),
    "docs/install.md": Page(ENGINES, elsewhere="tests/first_hour/test_clone.py"),
    "docs/tutorial.md": Page(ENGINES),
    "docs/guides/airflow.md": Page(("airflow",)),
    "docs/guides/alerts.md": Page(("core",)),
    "docs/guides/artifacts.md": Page(("core",)),
    "docs/guides/argo.md": Page(("argo",)),
    "docs/guides/argo-gitops.md": Page(("argo",), elsewhere="tests/gitops/test_guide.py"),
    "docs/guides/check-what-you-have.md": Page(("core", "argo", "airflow"), folder="docs/examples/others"),
    "docs/guides/import.md": Page(("argo",), folder="docs/examples/import"),
    "docs/guides/kubeflow.md": Page(("kubeflow",)),
    "docs/guides/multi-node.md": Page(("argo",), folder="docs/examples/multi-node"),
    "docs/guides/platform.md": Page(("core",)),
    "docs/guides/pods.md": Page(("core",)),
    "docs/guides/quota.md": Page(("core",), folder="docs/examples/quota"),
    "docs/guides/run-locally.md": Page(("core",)),
    "docs/guides/spot-and-checkpoints.md": Page(("core",)),
    "docs/guides/submit.md": Page(("core",)),
    "docs/guides/why.md": Page(("core",), folder="docs/examples/why"),
    "docs/reference/airflow.md": Page(("airflow",)),
    "docs/reference/checking.md": Page(("core",), folder="docs/examples/quota"),
}
RUN = {None, "timing", "kubectl", *ENGINES}
"""The labels of blocks that some test runs: `kubectl` where Go is, the name of an engine in its environment."""
NEEDS_A_CLUSTER = {
    "docs/tutorial.md": (
        "kubectl apply --server-side -f runtime.yaml",
        "gpuflow snapshot -o cluster/ --namespace my-team",
    ),
    "docs/guides/alerts.md": ("gpuflow argo agent pipelines/*.yaml --site site.yaml | kubectl apply -f -",),
    "docs/guides/argo-gitops.md": ("kubectl create namespace nlp",),
    "docs/guides/artifacts.md": ("kubectl create secret generic s3-artifacts -n my-team",),
    "docs/guides/multi-node.md": (
        "gpuflow check pretrain.yaml --site site.yaml --cluster live",
        "kubectl get jobset,pods",
        "gpuflow site gang site.yaml --engine airflow",
    ),
    "docs/guides/platform.md": ("gpuflow snapshot -o cluster/ --namespace my-team",),
    "docs/guides/quota.md": ("gpuflow snapshot --rbac --namespace nlp | kubectl apply -f -",),
    "docs/guides/spot-and-checkpoints.md": (
        "kubectl create secret generic gpuflow-key -n ml",
        "kubectl get configmap gpuflow-runtime-1a2b3c4d",
    ),
    "docs/reference/airflow.md": (
        "gpuflow airflow pools pipelines/*.yaml --site site.yaml --cluster live",
        "airflow backfill create --dag-id nightly",
    ),
    "docs/reference/checking.md": (
        "kubectl annotate validatingwebhookconfiguration policies gpuflow.dev/lets-pods-pass=true",
    ),
}
"""Blocks that are only read, since they write to a cluster or read a live one: how the first command of each begins."""
READ_ONLY = {"yaml", "json", "python", "markdown", "dockerfile", "text"}
"""Other blocks: documents, programs and results. A shell's commands stand in console blocks, where they are run."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")
