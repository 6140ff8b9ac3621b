"""KFP's two families of messages, loaded without the rest of the SDK.

`import kfp` brings in its client, a Kubernetes client and its compiler: most of a second that a compile does not need.
The message modules need only each other. So, unless kfp is in use already, they are imported under bare packages that
are taken away again; a later `import kfp` finds nothing of this.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

SCHEMA_VERSION = "2.1.0"
_PACKAGES = ("kfp", "kfp.pipeline_spec", "kfp.kubernetes")


@contextmanager
def _bare_packages() -> Iterator[None]:
    if "kfp" in sys.modules:
        yield
        return
    found = importlib.util.find_spec("kfp")
    if found is None:
        raise ModuleNotFoundError("No module named 'kfp'", name="kfp")
    folders = pkgutil.extend_path(list(found.submodule_search_locations or ()), "kfp")
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = ["/".join([folder, *name.split(".")[1:]]) for folder in folders]
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kfp"]:
            del sys.modules[name]


with _bare_packages():
    ir: Any = importlib.import_module("kfp.pipeline_spec.pipeline_spec_pb2")
    """pipeline_spec.proto: PipelineSpec, PipelineDeploymentConfig and their parts."""
    platform: Any = importlib.import_module("kfp.kubernetes.kubernetes_executor_config_pb2")
    """kubernetes_executor_config.proto: KubernetesExecutorConfig and its parts."""
