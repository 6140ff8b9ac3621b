"""How requests to S3 look, learned from the driver: address, headers, encryption, credentials, certificates.

The driver prepares one request of each kind, which is caught before it is sent. Our own signature of that request must
be the driver's, else nothing is sent around it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from gpuflow.runtime.s3_direct import Credentials, Direct, Kind, NotDone, Server
from gpuflow.runtime.s3_signing import Signer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_RENEWED = 60.0
"""Seconds after which credentials are asked for again; who keeps them renews them long before they end."""
_OWN = frozenset(
    (
        *("authorization", "host", "connection", "expect", "range", "if-match"),
        *("content-length", "content-md5", "content-encoding", "transfer-encoding"),
        *("x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "x-amz-decoded-content-length"),
        *("x-amz-trailer", "x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm"),
        *("amz-sdk-invocation-id", "amz-sdk-request"),
    )
)
"""Headers that belong to one request. All others are the same for all of a kind."""
_KNOWN_CHECKSUMS = ("x-amz-checksum-crc32", "x-amz-checksum-mode")


class _NotSent(Exception):
    """Raised in place of sending, with the request."""

    def __init__(self, request: Any) -> None:
        super().__init__("caught before it was sent")
        self.request = request


class Caught(Kind):
    """A request of one kind as the driver would have sent it."""

    def __init__(self, request: Any, marker: str, query: Sequence[str]) -> None:
        from urllib.parse import urlsplit

        url = urlsplit(request.url)
        headers = {name.lower(): _text(value).strip() for name, value in request.headers.items()}
        self.scheme, self.host, self.port = url.scheme, url.hostname or "", url.port
        before, found, after = str(url.path).partition(marker)
        self.query = url.query
        fields = sorted(word.partition("=")[0] for word in url.query.split("&") if word)
        strange = bool(after) or not (found or "prefix" in query) or fields != sorted(query)
        if strange or url.scheme not in ("http", "https") or not self.host or "@" in url.netloc:
            raise NotDone(f"an address that is not known: {url.scheme}://{url.netloc}{url.path}")
        strange = any(name.startswith("x-amz-checksum-") and name not in _KNOWN_CHECKSUMS for name in headers)
        trailer = headers.get("x-amz-trailer", "x-amz-checksum-crc32")
        if strange or trailer != "x-amz-checksum-crc32" or "x-amz-s3session-token" in headers:
            raise NotDone("requests of a kind that is not known")
        super().__init__(
            str(request.method),
            before,
            headers.get("host") or url.netloc,
            {name: value for name, value in headers.items() if name not in _OWN},
            checked="x-amz-checksum-crc32" in headers or "x-amz-trailer" in headers,
        )
        self._sent = headers
        self._path = url.path

    def signed_alike(self, signer: Signer) -> bool:
        """Whether our signature of the request that was caught is the driver's."""
        given = self._sent.get("authorization", "")
        if not given.startswith("AWS4-HMAC-SHA256 "):
            return False
        words = dict(word.strip().partition("=")[::2] for word in given.partition(" ")[2].split(","))
        headers = {name: self._sent.get(name, "") for name in words.get("SignedHeaders", "").split(";")}
        headers["host"] = self.netloc
        return signer.authorization(self.method, self._path, _sorted(self.query), headers) == given

    def region(self) -> str:
        return self._sent.get("authorization", "").partition("Credential=")[2].partition(",")[0].split("/")[-3]


class Catcher:
    """Lets the driver prepare requests and catches them before they are sent; others have no such key."""

    def __init__(self, driver: Any, client: Any, marker: str) -> None:
        self._driver, self._client, self._marker = driver, client, marker

    def kind(self, method: str, operation: str, query: Sequence[str], **named: Any) -> Caught:
        """One kind of request, which has these fields in its query."""

        def catch(request: Any, **_: Any) -> None:
            if self._marker in request.url:
                raise _NotSent(request)

        event, events = f"before-send.s3.{operation}", self._client.meta.events
        events.register_first(event, catch)
        try:
            self._driver.call_s3(method, **named)
        except Exception as caught:
            request = _caught(caught)
            if request is None:
                raise
            return Caught(request, self._marker, query)
        finally:
            events.unregister(event, catch)
        raise NotDone("a request was not caught")


class Renewed(Credentials):
    """The driver's, asked for again from time to time."""

    def __init__(self, driver: Any, credentials: Any, region: str) -> None:
        self._driver, self._credentials, self._region = driver, credentials, region
        self._lock = threading.Lock()
        super().__init__(self._ask())
        self._asked = time.monotonic()

    def current(self) -> Signer:
        if time.monotonic() - self._asked > _RENEWED:
            with self._lock:
                if time.monotonic() - self._asked > _RENEWED:
                    self.signer, self._asked = self._ask(), time.monotonic()
        return self.signer

    def were_refused(self) -> None:
        self._asked = float("-inf")

    def _ask(self) -> Signer:
        try:
            found = _wait(self._driver, self._credentials.get_frozen_credentials)
        except Exception as refusal:
            raise NotDone(f"no credentials: {refusal}") from refusal
        words = (found.access_key, found.token or "", self._region)
        if not all(word.isascii() and word.isprintable() for word in words):
            # A line break, as files and Secrets often end with, would be one in the head of a request.
            raise NotDone("credentials that cannot stand in a header")
        return Signer(found.access_key, found.secret_key, found.token, self._region)


def learned(driver: Any, bucket: str) -> Direct | None:
    """A way around the driver to a bucket, or None where it is not known how."""
    if not hasattr(driver, "call_s3") or not hasattr(driver, "set_session"):
        return None
    # Whatever is different in this version of the driver, the driver itself still works.
    with contextlib.suppress(Exception):
        return _learned(driver, bucket)
    return None


def _learned(driver: Any, bucket: str) -> Direct:
    marker = f"gpuflow-{os.urandom(8).hex()}"
    _wait(driver, driver.set_session)
    client = _wait(driver, driver.get_s3, bucket)
    common = {"Bucket": bucket, "Key": marker}
    caught = Catcher(driver, client, marker)
    part = {**common, "UploadId": "u", "PartNumber": 1, "Body": b"x"}
    listed = ["list-type", "prefix", "encoding-type"]
    kinds = {
        "put": caught.kind("put_object", "PutObject", [], **common, Body=b"x"),
        "part": caught.kind("upload_part", "UploadPart", ["partNumber", "uploadId"], **part),
        "get": caught.kind("get_object", "GetObject", [], **common),
        "list": caught.kind("list_objects_v2", "ListObjectsV2", listed, Bucket=bucket, Prefix=marker),
    }
    credentials = Renewed(driver, client._request_signer._credentials, kinds["put"].region())
    if not all(kind.signed_alike(credentials.signer) for kind in kinds.values()):
        raise NotDone("the driver signs in another way")
    if len({(kind.scheme, kind.host, kind.port) for kind in kinds.values()}) != 1:
        raise NotDone("not one server for all")
    return Direct(kinds, _server(client, kinds["put"]), credentials)


def _wait(driver: Any, action: Any, *words: Any) -> Any:
    from fsspec.asyn import sync  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    return sync(driver.loop, action, *words)


def _caught(error: BaseException | None) -> Any:
    while error is not None:
        if isinstance(error, _NotSent):
            return error.request
        error = error.__cause__ or error.__context__
    return None


def _server(client: Any, kind: Caught) -> Server:
    """As the driver connects: its certificates and times; not where it goes through a proxy or shows a certificate."""
    session = client._endpoint.http_session
    address = f"{kind.scheme}://{kind.netloc}/"
    if session._proxy_config.proxy_url_for(address) or session._cert_file:
        raise NotDone("a proxy, or a certificate of the client's own")
    certificates = None
    if kind.scheme == "https":
        # An extra, as s3fs.
        from botocore.httpsession import get_cert_path  # type: ignore[import-not-found,import-untyped,unused-ignore]

        if not session._verify:
            raise NotDone("certificates are not to be verified")
        certificates = get_cert_path(session._verify)
    config, secure = client.meta.config, kind.scheme == "https"
    port = kind.port or (443 if secure else 80)
    times = float(config.connect_timeout), float(config.read_timeout)
    return Server(kind.host, port, secure, certificates, *times)


def _sorted(query: str) -> str:
    return "&".join(sorted(word if "=" in word else f"{word}=" for word in query.split("&"))) if query else ""


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
