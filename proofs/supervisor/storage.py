"""The store all supervisors share, in memory: it can fail, lose an answer, list late and take long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.store import StorageError, Store
from proofs.supervisor.world import Actor, Point, World

LATE = 60.0
"""A late listing misses what others did in the last so many seconds: what NFS promises with its usual settings."""
FAIL = ("fault", "fails")
LOST = ("fault", "done, the answer is lost")
LATE_ALL = ("fault", "late: without what others did in the last minute")
LATE_ONE = ("fault", "late: without the last thing another did")


class Storage:
    """The objects, and what was done to them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.data: dict[str, bytes] = {}
        self.log: list[tuple[float, Any, str, bytes | None]] = []
        """When, by whom, which key, and what was there before."""
        self.changed: Callable[[Any, str, bytes | None, bytes | None], None] = lambda *_: None
        self.listed: Callable[[Any, str, list[str]], None] = lambda *_: None
        self.was_read: Callable[[Any, str], None] = lambda *_: None

    def set(self, process: Any, key: str, value: bytes | None) -> None:
        before = self.data.get(key)
        if value is None and before is None:
            return
        self.log.append((self.world.now, process, key, before))
        if value is None:
            del self.data[key]
        else:
            self.data[key] = value
        self.changed(process, key, before, value)

    def below(self, prefix: str) -> dict[str, int]:
        return {key: len(value) for key, value in self.data.items() if key.startswith(prefix)}

    def late(self, process: Any, prefix: str, *, one: bool) -> dict[str, int]:
        """What a listing shows that has not heard of what others did lately."""
        found = self.below(prefix)
        for when, who, key, before in reversed(self.log):
            if when < self.world.now - LATE:
                break
            if who is process or not key.startswith(prefix):
                continue
            if before is None:
                found.pop(key, None)
            else:
                found[key] = len(before)
            if one:
                break
        return found


class FakeStore(Store):
    """One supervisor's way to the storage. Every operation is a point where something may happen."""

    conditional = True

    def __init__(self, storage: Storage, root: str) -> None:
        self.storage, self.root = storage, root

    def read(self, key: str) -> bytes:
        self._at("read", key, (FAIL,))
        value = self.storage.data.get(self._key(key))
        self.storage.was_read(Actor.current().process, self._key(key))
        if value is None:
            raise FileNotFoundError(key)
        return value

    def write(self, key: str, data: bytes) -> None:
        self._change("write", key, lambda process: self._set(process, key, data))

    def create(self, key: str, data: bytes) -> bool:
        answer = [False]

        def effect(process: Any) -> None:
            if self._key(key) not in self.storage.data:
                self._set(process, key, data)
                answer[0] = True

        self._change("create", key, effect)
        return answer[0]

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        data = b"".join(chunks)
        self._change("put", key, lambda process: self._set(process, key, data))

    def chunks(self, key: str) -> Iterator[bytes]:
        self._at("get", key, (FAIL,))
        value = self.storage.data.get(self._key(key))
        if value is None:
            raise FileNotFoundError(key)
        yield value

    def names(self, prefix: str) -> list[tuple[str, int]]:
        process, top = Actor.current().process, self._key(prefix) + "/" if prefix else self.root + "/"
        variants = [FAIL]
        truth = self.storage.below(top)
        late = self.storage.late(process, top, one=False)
        late_one = self.storage.late(process, top, one=True)
        if late != truth:
            variants.append(LATE_ALL)
        if late_one not in (truth, late):
            variants.append(LATE_ONE)
        variant = self._at("list", prefix, tuple(variants))
        if variant == LATE_ALL[1]:
            found = self.storage.late(process, top, one=False)
        elif variant == LATE_ONE[1]:
            found = self.storage.late(process, top, one=True)
        else:
            found = self.storage.below(top)
        self.storage.listed(process, top, sorted(found))
        return sorted((key[len(self.root) + 1 :], size) for key, size in found.items())

    def delete(self, keys: Iterable[str]) -> None:
        for key in sorted(keys, key=lambda key: not key.endswith("/manifest.json")):
            self._change("delete", key, lambda process, key=key: self._set(process, key, None))

    def _key(self, key: str) -> str:
        return f"{self.root}/{key}"

    def _set(self, process: Any, key: str, value: bytes | None) -> None:
        self.storage.set(process, self._key(key), value)

    def _change(self, what: str, key: str, effect: Callable[[Any], None]) -> None:
        actor = Actor.current()
        process = actor.process
        point = Point(
            f"{what} {key}",
            variants=(FAIL, LOST),
            changes=True,
            shared=True,
            hears=True,
            effect=lambda: effect(process),
        )
        variant = actor.pause(point)
        if variant == FAIL[1]:
            raise StorageError(f"{what} {key}: injected")
        effect(process)
        if variant == LOST[1]:
            raise StorageError(f"{what} {key}: done, but the answer was lost")

    def _at(self, what: str, key: str, variants: tuple[tuple[str, str], ...]) -> str:
        variant = Actor.current().pause(Point(f"{what} {key}", variants=variants, shared=True, hears=True))
        if variant == FAIL[1]:
            raise StorageError(f"{what} {key}: injected")
        return variant


class FolderStore(FakeStore):
    """The same with the real code for a directory below: listings that fail do so in the operating system."""

    failing: set[int] = set()  # noqa: RUF012  # the threads for which the operating system fails now

    def __init__(self, storage: Storage, root: str, path: str) -> None:
        super().__init__(storage, root)
        self.folder = Folder(path, lasting=False)

    def names(self, prefix: str) -> list[tuple[str, int]]:
        actor = Actor.current()
        broken = ("fault", "EIO")
        variant = actor.pause(Point(f"list {prefix}", variants=(broken,), shared=True, hears=True))
        if variant == broken[1]:
            self.failing.add(id(actor))
        try:
            found = self.folder.names(prefix)
        finally:
            self.failing.discard(id(actor))
        self.storage.listed(actor.process, f"{self.root}/{prefix}/", [f"{self.root}/{key}" for key, _ in found])
        return found

    def _set(self, process: Any, key: str, value: bytes | None) -> None:
        if value is None:
            self.folder.delete([key])
        else:
            self.folder.write(key, value)
        super()._set(process, key, value)
