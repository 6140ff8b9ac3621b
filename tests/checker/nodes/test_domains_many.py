"""The same as test_domains, for many scenes: no *always* and no *never* is wrong, and most answers are one of them.

Tests gpuflow/checker/pipeline/nodes/domains.py.
"""

from __future__ import annotations

import pytest

from tests.checker.nodes.domain_scenes import compare


@pytest.mark.parametrize("first", range(100, 900, 100))
def test_no_always_and_no_never_of_a_hundred_scenes_is_wrong(first: int) -> None:
    said, careful = compare(range(first, first + 100), with_careful=True)
    print(f"scenes {first} to {first + 99}: said {dict(said)}, of which never wait: {dict(careful)}")
    assert said["too many states"] < 5
    assert said["always"] > 30 and said["never"] > 8, said
    assert careful["unknown"] < 18 and careful["may-queue"] < 10, careful
