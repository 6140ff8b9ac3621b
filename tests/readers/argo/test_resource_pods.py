"""Pods that run nothing but Argo's own program ask for what the controller gives that program.

Tests gpuflow/readers/argo/pods.py.
"""

from __future__ import annotations

from gpuflow.demands import Demand
from gpuflow.quantity import Quantity
from gpuflow.readers import Options
from gpuflow.site.model import Injected
from tests.readers.argo.reading import HEAD, SITE, foreign

RESOURCE = """
spec:
  entrypoint: main
  templates:
  - name: main
    resource: {action: get, manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}"}
"""


def test_a_resource_step_asks_for_what_the_executor_gets() -> None:
    own = Injected(requests={"cpu": Quantity("10m")})
    argo = SITE.engines["argo"].model_copy(update={"init": {"init": own}, "containers": {"wait": own}})
    site = SITE.model_copy(update={"engines": {**SITE.engines, "argo": argo}})
    found = foreign(HEAD + RESOURCE).demand(Options(site, "argo"))
    assert isinstance(found, Demand)
    assert str(found.peak["requests.cpu"].value) == "10m"
    assert str(found.peak["pods"].value) == "1"
