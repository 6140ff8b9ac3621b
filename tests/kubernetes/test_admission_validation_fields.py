"""The 422s about DNS, spread, volumes, variables, hooks and ports, word for word as the real API server says them.

Tests gpuflow/kubernetes/admission/container_validation.py and gpuflow/kubernetes/admission/validation.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.kubernetes.admission.decision import admit
from tests.checker.pod_answers import answers, label


@pytest.mark.parametrize(
    ("pod", "clauses"), answers(), ids=lambda value: label(value) if isinstance(value, dict) else ""
)
def test_the_model_says_what_the_api_server_says(pod: dict[str, Any], clauses: list[str]) -> None:
    answer = admit(pod)
    assert sorted(answer.clauses) == clauses
    assert answer.status == (422 if clauses else 201)
