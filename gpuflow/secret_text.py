"""Which names belong to secrets, and which texts hold one: the same answer for warnings and for what is masked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ENDINGS: Final = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "APIKEY", "CREDENTIAL", "CREDENTIALS")
"""How the last word of a secret's name ends: DB_PASSWORD, PGPASSWORD, HF_TOKEN."""
_KEYS: Final = (
    "ACCESS", "ACCOUNT", "API", "AUTH", "ENCRYPTION", "FERNET", "LICENSE", "MASTER", "PRIVATE", "SECRET", "SERVICE",
    "SHARED", "SIGNING", "SSH", "STORAGE",
)  # fmt: skip
"""The word before KEY that makes it a secret: a SORT_KEY is none, and AWS_ACCESS_KEY_ID is only a name."""
_ACCOUNTS: Final = (
    "ADMIN", "DB", "DATABASE", "MYSQL", "PG", "POSTGRES", "REDIS", "ROOT", "SMTP", "USER",
)  # fmt: skip
"""The word before PASS or PWD that makes it a password."""
_OF_A_TOKENIZER: Final = (
    "AUDIO", "BOS", "CLS", "END", "EOS", "EOT", "FIRST", "IMAGE", "LAST", "MASK", "NEW", "NEXT", "PAD", "PER", "SEP",
    "SPECIAL", "START", "STOP", "UNK", "VISION",
)  # fmt: skip
"""The word before TOKEN in the settings of language models."""
_HARMLESS: Final = re.compile(
    r"\s*(|true|false|yes|no|on|off|none|null|[01]"  # a switch
    r"|\$\(\w+\)|\$\w+|\$\{\w+\}"  # another variable
    r"|<[^<>]*>|\*+|(x{3,}|change-?me|\.{3}|…)"  # a placeholder
    r"|\.{0,2}(/[a-z0-9._-]+)+/?)\s*",  # a path to where it is
    re.IGNORECASE | re.ASCII,
)
_PATH: Final = re.compile(r"\s*\.{0,2}/")
_USER_INFO: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/?#@:'\"]*:([^\s/?#@'\"]+)@", re.IGNORECASE | re.ASCII)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name usually holds a secret itself, not its place or its size."""
    words = [word for word in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper().split("_") if word]
    last, before = (words[-1] if words else ""), (words[-2] if len(words) > 1 else "")
    if last == "KEY":
        return before in _KEYS
    if last in ("PASS", "PWD"):
        return before in _ACCOUNTS
    return last.endswith(_ENDINGS) and not (last == "TOKEN" and before in _OF_A_TOKENIZER)


def is_secret_value(text: str) -> bool:
    """Whether a text can be a secret: no switch, no other variable, no placeholder, no path in lower case."""
    if _PATH.match(text) and text != text.lower():
        return True  # Base64 may begin with a slash, and is not all in lower case
    return _HARMLESS.fullmatch(text) is None


def passwords_in(text: str) -> Iterator[str]:
    """The passwords in the addresses of a text, as in `s3://KEY:SECRET@bucket`."""
    return (found for found in _USER_INFO.findall(text) if is_secret_value(found))
