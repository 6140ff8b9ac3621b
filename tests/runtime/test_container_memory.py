"""How much memory a copy may take: what the container's group leaves, not what the machine has.

Tests gpuflow/runtime/base/container.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.runtime.base import container


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "1000", "memory.current": "900", "memory.stat": "anon 600\ninactive_file 300\n"}, 400),
        ({"memory.max": "1000", "memory.current": "1100", "memory.stat": "inactive_file 0\n"}, 0),
        (
            {
                "memory.limit_in_bytes": "1000",
                "memory.usage_in_bytes": "900",
                "memory.stat": "inactive_file 1\ntotal_inactive_file 50\n",
            },
            150,
        ),
    ],
    ids=["v2", "over", "v1"],
)
def test_the_limit_of_the_group_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], left: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(
        container, "_memory_files", lambda: [str(tmp_path / "none" / "x"), str(tmp_path / "memory.events")]
    )
    assert container.available_memory() == left


def test_without_a_limit_it_is_what_the_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    monkeypatch.setattr(container, "_memory_files", lambda: [str(tmp_path / "memory.events")])
    assert container.available_memory() == pytest.approx(container._free_on_machine(), rel=0.2)


def test_what_cannot_be_read_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_memory_files", list)
    monkeypatch.setattr(container, "_free_on_machine", lambda: None)
    assert container.available_memory() is None


@pytest.mark.parametrize(
    ("name", "text", "kills"),
    [
        ("memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n", 3),
        ("memory.events", "oom_kill 0\n", 0),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", 4),
        ("memory.events", " \noom_kill many\n", 0),
    ],
    ids=["v2", "v2, none", "v1", "unreadable"],
)
def test_kills_of_processes_and_of_the_whole_group_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, kills: int
) -> None:
    (tmp_path / name).write_text(text)
    monkeypatch.setattr(container, "_memory_files", lambda: [str(tmp_path / "none"), str(tmp_path / name)])
    assert container.oom_kills() == kills


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (
            {
                "memory.max": "1000",
                "memory.current": "990",
                "memory.stat": "shmem 50\nactive_file 500\ninactive_file 250\nslab_reclaimable 40\n",
            },
            (200, 1000),
        ),
        (
            {
                "memory.limit_in_bytes": "1000",
                "memory.usage_in_bytes": "990",
                "memory.stat": "active_file 1\ntotal_active_file 500\ntotal_inactive_file 300\n",
            },
            (190, 1000),
        ),
        ({"memory.max": "max", "memory.current": "990", "memory.stat": ""}, None),
        (
            {"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "9", "memory.stat": ""},
            None,
        ),
    ],
    ids=["v2", "v1", "v2 without a limit", "v1 without a limit"],
)
def test_a_full_page_cache_is_no_memory_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], found: tuple[int, int] | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(container, "_memory_files", lambda: [str(tmp_path / "memory.events")])
    assert container.working_set() == found
