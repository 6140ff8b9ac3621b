"""Runs on engines: start one, follow it, read its logs, stop it, retry it. A client for each engine."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace

from gpuflow.core.errors import Where, did_you_mean, fail
from gpuflow.engines import ENGINES
from gpuflow.runs.model import Connection, RunClient

__all__ = ["Connection", "client_of"]


def client_of(engine: str, connection: Connection) -> RunClient:
    """The client of an engine: `connect` of the module of its name. GPUFLOW_<ENGINE>_URL says where its UI is, unless
    the connection does."""
    if engine not in ENGINES:
        raise fail("GF302", f'"{engine}" is not an engine', where=Where("engine"), hint=did_you_mean(engine, ENGINES))
    url = connection.url or os.environ.get(f"GPUFLOW_{engine.upper()}_URL") or None
    client: RunClient = importlib.import_module(f"gpuflow.runs.{engine}").connect(replace(connection, url=url))
    return client
