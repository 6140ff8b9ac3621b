"""Our signatures of requests to S3 are those of botocore, for whatever key, query, header, token and region."""

from __future__ import annotations

import string
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuflow.runtime.stores import s3_client
from gpuflow.runtime.stores.s3_client import EMPTY_SHA256, UNSIGNED_PAYLOAD, Signer, _quote

pytestmark = pytest.mark.s3

KEYS = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=40)
VISIBLE = string.digits + string.ascii_letters + string.punctuation
VALUES = st.text(VISIBLE, min_size=1, max_size=20)
NAMES = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=20)
HEADERS = st.dictionaries(NAMES.map(lambda name: f"x-amz-meta-{name}"), VALUES, max_size=4)
QUERIES = st.dictionaries(st.text(VISIBLE, min_size=1, max_size=12), KEYS, max_size=4)
SECRETS = st.text(VISIBLE, min_size=1, max_size=60)
TOKENS = st.none() | st.text(string.ascii_letters + string.digits + "+/=", min_size=1, max_size=400)
REGIONS = st.sampled_from(["us-east-1", "eu-central-1", "cn-north-1", "us-gov-west-1", "auto", "garage"])
PAYLOADS = st.sampled_from([EMPTY_SHA256, UNSIGNED_PAYLOAD]) | st.binary(max_size=40).map(lambda data: _sum(data))
BUCKETS = st.from_regex(r"[a-z0-9][a-z0-9-]{1,20}[a-z0-9]", fullmatch=True)


def _sum(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def places(bucket: str, key: str, style: str) -> tuple[str, str]:
    """The host and the path of an object in one of the two styles of address."""
    quoted = _quote(key, "/")
    if style == "path":
        return "s3.example.com:9000", f"/{bucket}/{quoted}"
    return f"{bucket}.s3.amazonaws.com", f"/{quoted}"


@given(
    credentials=st.tuples(SECRETS.filter(lambda text: "/" not in text and "," not in text), SECRETS, TOKENS),
    region=REGIONS,
    method=st.sampled_from(["GET", "PUT"]),
    style=st.sampled_from(["path", "virtual"]),
    bucket=BUCKETS,
    key=KEYS,
    query=QUERIES,
    headers=HEADERS,
    payload=PAYLOADS,
)
@example(("a", "b", None), "us-east-1", "GET", "path", "bkt", "a//b/./../c", {}, {}, EMPTY_SHA256)
@example(
    ("a", "b", "t=="),
    "us-east-1",
    "PUT",
    "virtual",
    "bkt",
    "ü +%25?&=~*'()",
    {"uploadId": "a/b=+ ~"},
    {},
    UNSIGNED_PAYLOAD,
)
def test_it_signs_as_botocore_does(
    credentials: tuple[str, str, str | None],
    region: str,
    method: str,
    style: str,
    bucket: str,
    key: str,
    query: dict[str, str],
    headers: dict[str, str],
    payload: str,
) -> None:
    host, path = places(bucket, key, style)
    fields = "&".join(sorted(f"{quote(name, safe='~')}={_quote(value, '')}" for name, value in query.items()))
    theirs = _signed_by_botocore(credentials, region, method, f"https://{host}{path}", fields, headers, payload)
    signed = {name.lower(): str(value) for name, value in theirs.items() if name.lower() != "authorization"}
    ours = Signer(*credentials, region).authorization(method, path, fields, {**signed, "host": host})
    assert ours == theirs["Authorization"]
    assert signed.get("x-amz-security-token") == credentials[2]


def _signed_by_botocore(
    credentials: tuple[str, str, str | None],
    region: str,
    method: str,
    url: str,
    query: str,
    headers: dict[str, str],
    payload: str,
) -> Any:
    """The headers of a request that botocore's signer of S3 has signed."""
    from botocore.auth import S3SigV4Auth  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra
    from botocore.awsrequest import AWSRequest  # type: ignore[import-not-found,import-untyped,unused-ignore]  # as above
    from botocore.credentials import (  # type: ignore[import-not-found,import-untyped,unused-ignore]  # as above
        Credentials,
    )

    class Told(S3SigV4Auth):  # type: ignore[misc]  # it is untyped
        """Takes the hash of the body from the test."""

        def payload(self, request: Any) -> str:
            return payload

    request = AWSRequest(method, f"{url}?{query}" if query else url, headers=dict(headers))
    Told(Credentials(*credentials), "s3", region).add_auth(request)
    return request.headers


def test_the_key_of_the_day_is_made_anew_when_the_day_ends() -> None:
    signer = Signer("a", "b", None, "us-east-1")
    days = ["20260101T235959Z", "20260102T000000Z", "20260101T235959Z"]
    signed = [
        signer.authorization("GET", "/", "", {"host": "h", "x-amz-date": day, "x-amz-content-sha256": EMPTY_SHA256})
        for day in days
    ]
    fresh = [
        Signer("a", "b", None, "us-east-1").authorization(
            "GET", "/", "", {"host": "h", "x-amz-date": day, "x-amz-content-sha256": EMPTY_SHA256}
        )
        for day in days
    ]
    assert signed == fresh
    assert signed[0] != signed[1]


def test_the_time_of_a_request_is_in_utc_and_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer("a", "b", None, "us-east-1")
    found = []
    for second in (0.0, 0.9, 86_399.0, 86_400.5):
        monkeypatch.setattr(s3_client.time, "time", lambda second=second: second)
        found.append(signer.now())
    assert found == ["19700101T000000Z"] * 2 + ["19700101T235959Z", "19700102T000000Z"]
