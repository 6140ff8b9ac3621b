"""Whom a run tells how it ended, and by what. What is secret is named, never written.

Kubernetes' Secrets are what a cluster's engines read, Airflow's connections what Airflow reads: a channel may name
both, and each engine takes its own.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import PlainValidator, WithJsonSchema, model_validator

from gpuflow.core.secret_text import is_secret_name
from gpuflow.spec.model import Model, OneOrMore, exactly_one, problem
from gpuflow.spec.names import DataKey, ObjectName, shorten
from gpuflow.spec.problems import validate_nested

Channel = Literal["slack", "webhook", "pagerduty", "mail"]
CHANNELS: tuple[Channel, ...] = ("slack", "webhook", "pagerduty", "mail")
"""The ways an alert can go."""
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&'()*+,;=%\[\]-]+")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN_TEXT = re.compile(r"[\x20-\x7a|\x7e]*")
"""Printable ASCII without braces: engines would read `{{` as a tag of their own."""
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_CONNECTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,249}")
_CHANNEL = re.compile(r"[#@]?[A-Za-z0-9._-]{1,80}")
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token", "api-key"})
_SECRET_QUERIES = frozenset({"sig", "signature", "key", "auth", "code", "access_key", "apikey"})
"""What carries the right to post in addresses of Azure, Google and others."""
_SECRET_HOSTS = (
    "hooks.slack.com", "discord.com/api/webhooks", "discordapp.com/api/webhooks", "webhook.office.com",
    "outlook.office.com/webhook", "chat.googleapis.com", "hooks.zapier.com",
)  # fmt: skip
"""Addresses that are secrets themselves: whoever knows one may post."""
BY_REFERENCE = "keep it in a Secret and write {secret: SECRET, key: KEY}; for Airflow, in a connection: NAME"


class SecretValue(Model):
    """One key of a Secret in the namespace of the run."""

    secret: ObjectName
    """The Secret."""
    key: DataKey
    """Its key."""


def _validator(pattern: re.Pattern[str], what: str, hint: str) -> Any:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise problem("GF382", f"{shorten(value, 60)!r} is not {what}", hint)
        return value

    return PlainValidator(check)


def _secret(value: Any) -> Any:
    return validate_nested(SecretValue, value) if isinstance(value, dict) else value


def _url(value: Any) -> Any:
    value = _secret(value)
    if isinstance(value, SecretValue):
        return value
    if not isinstance(value, str) or not _URL.fullmatch(value) or not _has_host(value):
        text = f"{shorten(value, 60)!r} is not an address"
        raise problem("GF382", text, "write it like https://alerts.example.com/gpuflow")
    if "@" in urlsplit(value).netloc:
        raise problem("GF381", "the address holds a user or a password, in plain text", BY_REFERENCE)
    if any(host in value.lower() for host in _SECRET_HOSTS):
        raise problem("GF381", "whoever knows this address may post to it, so it is a secret", BY_REFERENCE)
    for name, content in parse_qsl(urlsplit(value).query):
        plain = name.lower().replace("-", "_")
        if content and (plain in _SECRET_QUERIES or is_secret_name(plain)):
            raise problem("GF381", f'the address holds a secret in plain text, after "{name}="', BY_REFERENCE)
    return value


def _has_host(value: str) -> bool:
    try:
        return bool(urlsplit(value).hostname) and (urlsplit(value).port or 1) > 0
    except ValueError:
        return False


def _header_value(value: Any) -> Any:
    value = _secret(value)
    if not isinstance(value, SecretValue) and not (isinstance(value, str) and _PLAIN_TEXT.fullmatch(value)):
        text = f"{shorten(value, 60)!r} is not the value of a header"
        raise problem("GF382", text, "use printable ASCII without braces")
    return value


_SECRET_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["secret", "key"],
    "properties": {"secret": {"type": "string"}, "key": {"type": "string"}},
}
_TEXT_OR_SECRET = WithJsonSchema({"anyOf": [{"type": "string"}, _SECRET_SCHEMA]})
Url = Annotated[Any, PlainValidator(_url), _TEXT_OR_SECRET]
"""An address, or the Secret that holds it."""
HeaderValue = Annotated[Any, PlainValidator(_header_value), _TEXT_OR_SECRET]
_TEXT = WithJsonSchema({"type": "string"})
HeaderName = Annotated[str, _validator(_HEADER, "the name of a header", "use letters, digits and '-'"), _TEXT]
Address = Annotated[str, _validator(_ADDRESS, "a mail address", "write it like team@example.com"), _TEXT]
Connection = Annotated[
    str, _validator(_CONNECTION, "the name of an Airflow connection", "use letters, digits, '_', '-' and '.'"), _TEXT
]
SlackChannel = Annotated[str, _validator(_CHANNEL, "a Slack channel", 'write it like "#ml-alerts"'), _TEXT]


class Slack(Model):
    """A message in Slack."""

    channel: SlackChannel | None = None
    """The channel, for a bot's token; an incoming webhook has a channel of its own."""
    authorization: SecretValue | None = None
    """Argo and Kubeflow: the Secret whose key holds `Bearer ` and a bot's token (chat:write), as the header has it."""
    url: SecretValue | None = None
    """Kubeflow: the Secret whose key holds the URL of an incoming webhook."""
    connection: Connection | None = None
    """Airflow: a Slack API connection when there is a channel, else one for an incoming webhook."""

    @model_validator(mode="after")
    def _check_destination(self) -> Slack:
        if self.authorization is not None and self.channel is None:
            raise problem("GF382", "slack: a bot's token needs the channel to post to", 'add channel: "#…"')
        if self.authorization is None and self.url is None and self.connection is None:
            hint = "give channel and authorization: {secret, key} for Argo and Kubeflow, connection: for Airflow"
            raise problem("GF382", "slack: nothing says with which right to post", hint)
        return self


class Webhook(Model):
    """A POST of one JSON document."""

    url: Url = None
    """Where to; or, on Kubeflow, {secret: …, key: …}. On Airflow the connection may say it."""
    headers: dict[HeaderName, HeaderValue] = {}
    """Headers, as text or {secret: …, key: …}."""
    connection: Connection | None = None
    """Airflow: an HTTP connection, for what the Secrets hold: headers in its extra, a login or a token."""

    @model_validator(mode="after")
    def _check_request(self) -> Webhook:
        if self.url is None and self.connection is None:
            raise problem("GF382", "webhook: nothing says where to post", "give it a url")
        for name, value in self.headers.items():
            is_secret = name.lower() in _SECRET_HEADERS or is_secret_name(name.replace("-", "_"))
            if is_secret and not isinstance(value, SecretValue):
                text = f'the header "{name}" is a secret in plain text'
                raise problem("GF381", text, BY_REFERENCE, at=("headers", name))
        return self


class PagerDuty(Model):
    """An event in PagerDuty (Events API v2)."""

    routing_key: SecretValue | None = None
    """Kubeflow: the Secret whose key holds the integration key."""
    connection: Connection | None = None
    """Airflow: a connection whose password is the integration key."""
    severity: Literal["critical", "error", "warning", "info"] = "error"
    """How bad a failure is."""

    @model_validator(mode="after")
    def _check_destination(self) -> PagerDuty:
        if self.routing_key is None and self.connection is None:
            hint = "give routing_key: {secret, key} for Kubeflow, connection: for Airflow"
            raise problem("GF382", "pagerduty: nothing holds the integration key", hint)
        return self


class Mail(Model):
    """A mail. Only Airflow has a way to send one."""

    to: Annotated[tuple[Address, ...], OneOrMore()]
    """The addresses."""
    connection: Connection = "smtp_default"
    """Airflow: the SMTP connection."""

    @model_validator(mode="after")
    def _check_recipients(self) -> Mail:
        if not self.to:
            raise problem("GF382", "mail: nobody to send it to", "write to: [team@example.com]", at=("to",))
        return self


class Alert(Model):
    """One way to tell how a run ended."""

    slack: Slack | None = None
    """A message in Slack."""
    webhook: Webhook | None = None
    """A POST of one JSON document."""
    pagerduty: PagerDuty | None = None
    """An event in PagerDuty."""
    mail: Mail | None = None
    """A mail."""
    on: Annotated[tuple[Literal["failure", "success"], ...], OneOrMore()] = ("failure",)
    """How a run must have ended: failure, success, or both."""

    _one_of_them = exactly_one(*CHANNELS, what="an alert")

    @model_validator(mode="after")
    def _check_consistency(self) -> Alert:
        if not self.on:
            raise problem("GF382", "an alert that is never sent", "write on: [failure]", at=("on",))
        return self

    @property
    def channel(self) -> Channel:
        """Which way it goes."""
        return next(name for name in CHANNELS if getattr(self, name) is not None)
