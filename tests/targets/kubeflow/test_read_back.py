"""The demand of a pipeline is the demand that the reader of KFP's IR finds in what is compiled of it."""

from __future__ import annotations

import pytest

from gpuflow.core.errors import GpuflowError
from tests.readers.equality import EVERY_KEY, PIPELINES, assert_same, example, read_back

DISK = "KFP has no request for local disk; the target says so"
DEVICES = "a task of KFP asks for one kind of device; the target says so"
ALLOWED: dict[str, dict[str, str]] = {
    "example:finetune": {
        "limits.ephemeral-storage": DISK,
        "requests.ephemeral-storage": DISK,
        "requests.rdma/hca": DEVICES,
    },
    "construct:checkpoint.scratch": {"requests.ephemeral-storage": DISK},
    "construct:ephemeral_storage": {"limits.ephemeral-storage": DISK, "requests.ephemeral-storage": DISK},
    "construct:if_skipped.run": {
        EVERY_KEY: "its condition never holds, and in KFP nothing runs after a skipped step; the target says so"
    },
    "construct:inputs.size": {"requests.ephemeral-storage": DISK},
    "construct:kubernetes.resources": {"requests.rdma/hca": DEVICES},
    "construct:outputs.size": {"requests.ephemeral-storage": DISK},
    "construct:notify.webhook": {"pods": "alerts for failure and for success are exit tasks of their own"},
}
REFUSED = frozenset(
    {
        "example:daily",
        "construct:outputs_from",
        "construct:run.attempt",
        "construct:run.date",
        "construct:run.format",
        "construct:run.interval_start",
        "construct:run.timezone",
    }
)
"""They need a fact of the run that KFP does not tell its pods, or write their outputs where only Airflow looks for
them, and are compiled in no way."""


@pytest.mark.parametrize("name", [each for each in PIPELINES if each not in REFUSED])
def test_the_demand_of_the_file_is_the_demand_of_the_pipeline(name: str) -> None:
    pipeline = example(name)
    assert_same(pipeline.demand(), read_back(pipeline.compiled("kubeflow"), pipeline.site), ALLOWED.get(name, {}))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_compared_cannot_be_compiled(name: str) -> None:
    with pytest.raises(GpuflowError):
        example(name).compiled("kubeflow")
