"""The keys that sign the records of a store (HMAC-SHA256), and the files that never leave this machine.

The key file has one key per line. The first one signs, all of them verify: so a key can be replaced while runs go on. A
signature covers the record's hash and the place of the record, so that what was signed for one run, number or name is
worth nothing under another.

Secret files are the keys that sign, tokens, mounted Secrets, and what the kernel shows as files. A link in a checkpoint
or an output may lead to any of them; then whoever can read the store would have it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat

from gpuflow.runtime.base.options import BadOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PLACES = ("/var/run/secrets", "/run/secrets", "/proc", "/sys", "/dev")
_SHARED_MEMORY = "/dev/shm"
_KUBELET = re.compile(r"\.\.(data|\d{4}_\d\d_\d\d_.*)")
"""What the kubelet calls the folders in which it keeps the files of a Secret, a ConfigMap or a token."""
_MOUNTS = "/proc/self/mountinfo"
_KEYS: set[tuple[int, int]] = set()


def why_secret(path: str, status: os.stat_result) -> str | None:
    """Why a file at a path without links must not be kept; None when it may be."""
    if (status.st_dev, status.st_ino) in _KEYS:
        return "it is the key file"
    place = next((place for place in _secret_places() if f"{path}/".startswith(f"{place}/")), None)
    if place is not None and not path.startswith(f"{_SHARED_MEMORY}/"):
        return f"it lies in {place}"
    if any(_KUBELET.fullmatch(part) for part in path.split("/")) or status.st_dev in _secret_devices():
        return "it is a file of a mounted Secret or token"
    return None


@functools.lru_cache(maxsize=1)
def _secret_places() -> tuple[str, ...]:
    return (*_PLACES, *(os.path.realpath(place) for place in _PLACES))


@functools.lru_cache(maxsize=1)
def _secret_devices() -> set[int]:
    """The devices of volumes that the kubelet fills (in memory: Secrets, tokens), wherever they are mounted."""
    found = set()
    with contextlib.suppress(OSError), open(_MOUNTS, encoding="utf-8", errors="replace") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            words = before.split()
            if len(words) < 5 or not after.startswith("tmpfs "):
                continue
            # A file of it that is mounted alone (subPath) is named in the fourth word.
            parts = words[3].split("/")
            if any(map(_KUBELET.fullmatch, parts)) or os.path.islink(os.path.join(words[4], "..data")):
                major, _, minor = words[2].partition(":")
                found.add(os.makedev(int(major), int(minor)))
    return found


SHORTEST = 16
"""Bytes of a key; fewer can be guessed."""
_LARGEST = 1 << 16
_SCHEME = "hmac-sha256:"


class Keys:
    """The keys of one key file."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys)

    def with_secret(self, secret: bytes) -> Keys:
        """These keys, each combined with the secret."""
        return Keys([secret + b"\n" + key for key in self._keys])

    def sign(self, digest: str, place: str) -> str:
        """The signature of a record with this hash at this place."""
        return _signature(self._keys[0], digest, place)

    def verify(self, signature: object, digest: str, place: str) -> bool:
        """Whether one of the keys has signed it."""
        import hmac

        if not isinstance(signature, str) or not signature.isascii():
            return False
        return any(hmac.compare_digest(signature, _signature(key, digest, place)) for key in self._keys)


def read_keys(path: str | None, say: Callable[[str], None] = lambda _: None) -> Keys | None:
    """The keys in a file; None when no file is named. BadOption when it cannot be used."""
    if path is None:
        return None
    try:
        # Not to wait for the writer of a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise BadOption(f"--key-file: {path} is no file")
            _KEYS.add((status.st_dev, status.st_ino))
            data = os.read(handle, _LARGEST + 1)
        finally:
            os.close(handle)
    except OSError as refusal:
        raise BadOption(f"--key-file: {path} cannot be read: {refusal.strerror}") from None
    if len(data) > _LARGEST:
        raise BadOption(f"--key-file: {path} is larger than {_LARGEST} bytes; it should hold one key per line")
    keys = [line.strip() for line in data.splitlines() if line.strip()]
    if not keys:
        raise BadOption(f"--key-file: {path} is empty; make a key with: openssl rand -hex 32")
    for number, key in enumerate(keys, 1):
        if key.startswith(b"#"):
            # Whoever can guess a remark could sign with it.
            raise BadOption(f"--key-file: line {number} in {path} looks like a remark; every line is a key: remove it")
        if len(key) < SHORTEST:
            raise BadOption(
                f"--key-file: key {number} in {path} has {len(key)} bytes, and needs at least {SHORTEST}; "
                "make one with: openssl rand -hex 32"
            )
    if status.st_mode & stat.S_IROTH:
        say(f"{path} may be read by every user of this machine; a mode of 0400 or 0440 is enough")
    return Keys(keys)


def _signature(key: bytes, digest: str, place: str) -> str:
    import hmac

    text = f"gpuflow store record\n{place}\n{digest}".encode("utf-8", "surrogatepass")
    return _SCHEME + hmac.new(key, text, "sha256").hexdigest()
