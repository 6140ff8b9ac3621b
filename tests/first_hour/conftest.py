"""One copy of this checkout for the whole session, as somebody else would clone it."""

from __future__ import annotations

from tests.gitops.conftest import checkout

__all__ = ["checkout"]
