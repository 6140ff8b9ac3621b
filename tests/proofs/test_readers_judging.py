"""What is counted as living at once."""

from __future__ import annotations

from gpuflow.demands.peaks import Bound
from gpuflow.quantity import Quantity
from proofs.readers.judging import exceeded, most, reached
from proofs.readers.watching import Place, Seen

ONE = {"none": {"pods": Quantity("1")}}


def _pod(version: int, name: str, *, lives: bool = True, daemon: bool = False) -> Seen:
    return Seen(version, name, lives, ONE, f"node-{name}", daemon)


def _over(version: int, *names: str) -> Seen:
    return Seen(version, over=frozenset(f"node-{name}" for name in names))


def test_pods_count_from_their_creation_to_their_end_in_the_order_of_the_server() -> None:
    place = Place([_pod(3, "b"), _pod(1, "a"), _pod(2, "a", lives=False)])
    assert most(place, "none") == {"pods": Quantity("1")}
    place = Place([_pod(1, "a"), _pod(2, "b"), _pod(3, "a", lives=False)])
    assert most(place, "none") == {"pods": Quantity("2")}


def test_a_daemon_counts_until_it_is_gone_though_argo_has_told_it_to_end() -> None:
    place = Place([_pod(1, "server", daemon=True), _pod(2, "next"), _over(3, "server")])
    assert most(place, "none") == {"pods": Quantity("2")}


def test_more_than_was_stated_is_found_also_where_nothing_was_stated() -> None:
    seen = {"pods": Quantity("2"), "limits.cpu": Quantity("1")}
    bounds = {"pods": Bound("exact", Quantity("3")), "requests.cpu": Bound("unknown", None)}
    assert list(exceeded(seen, bounds)) == ["limits.cpu"]
    assert reached(seen, bounds) == {"pods": False}
