"""Where a graph lives: its root, the options that reach it, and the keys below it."""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote, unquote, urlsplit

from omnigraph.errors import InvalidNameError, InvalidOptionError
from omnigraph.storage.profiles import profile_keys

__all__ = ["GraphRoot", "StorageOptions", "check_key", "scrub", "scrub_all"]

URI_CHARS_MAX: Final = 2_048
KEY_BYTES_MAX: Final = 800  # S3 allows 1,024 for prefix and key together
SEGMENT_BYTES_MAX: Final = 240  # file systems allow 255, and a file being written has a longer name
INHERITED_SECRET_CHARS_MIN: Final = 8  # "test" and the like are no secrets, and occur in ordinary words
KNOWN_SECRETS_MAX: Final = 1_024  # credentials that are exchanged every hour do not add up for ever
SUPPORTED: Final = "use a local path, file:///path or s3://bucket/prefix"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TEMPORARY = re.compile(r"#[0-9]+$")  # how the local store names a file that is still being written

_IN_ADDRESSES = re.compile(
    r"((?i:x-amz-(?:signature|credential|security-token)=)|(?<=://)[^/\s:@]*:(?=[^/\s@]+@))[^&\s\"'@]+"
)  # what signs an address, and a password in one
_KNOWN_SECRETS: Final[dict[str, None]] = {}
"""The secrets of all options that were made in this process, the latest last."""

_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_SECRETS = frozenset((*_CREDENTIALS, "aws_sse_customer_key_base64", "proxy_url"))
_SECRET_VARIABLES = tuple(name.upper() for name in (*_CREDENTIALS, "aws_sse_customer_key_base64"))
_FLAGS = frozenset(
    (
        "allow_http",
        "allow_invalid_certificates",
        "aws_disable_bulk_delete",
        "aws_disable_tagging",
        "aws_imdsv1_fallback",
        "aws_s3_express",
        "aws_skip_signature",
        "aws_sse_bucket_key_enabled",
        "aws_unsigned_payload",
        "aws_virtual_hosted_style_request",
    )
)
_TEXTS = frozenset(
    (
        *_SECRETS,
        "aws_checksum_algorithm",
        "aws_container_authorization_token_file",
        "aws_container_credentials_full_uri",
        "aws_container_credentials_relative_uri",
        "aws_default_region",
        "aws_endpoint",
        "aws_endpoint_url_sts",
        "aws_metadata_endpoint",
        "aws_region",
        "aws_request_payer",
        "aws_role_arn",
        "aws_role_session_name",
        "aws_server_side_encryption",
        "aws_sse_kms_key_id",
        "aws_web_identity_token_file",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "timeout",
        "user_agent",
    )
)
_CANONICAL: Final[Mapping[str, str]] = {
    **{name: name for name in _FLAGS | _TEXTS},
    **{name.removeprefix("aws_"): name for name in _FLAGS | _TEXTS},
    "aws_allow_http": "allow_http",
    "aws_endpoint_url": "aws_endpoint",
    "aws_endpoint_url_s3": "aws_endpoint",
    "endpoint_url": "aws_endpoint",
    "aws_token": "aws_session_token",
    "token": "aws_session_token",
}


def check_key(key: str) -> str:
    """Return ``key`` if it names an object below a root on every store, else raise InvalidNameError."""
    problem = _problem_of_key(key)
    if problem is not None:
        raise InvalidNameError(f"object key {key!r} {problem}", key=key)
    return key


def _problem_of_key(key: str) -> str | None:
    if _has_unprintable(key) or "\\" in key:
        return "contains a control character, a lone surrogate or a backslash"
    if len(key.encode()) > KEY_BYTES_MAX:
        return f"is longer than {KEY_BYTES_MAX} bytes"
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            return "must be relative, without empty, '.' or '..' segments"
        if len(segment.encode()) > SEGMENT_BYTES_MAX:
            return f"has a segment longer than {SEGMENT_BYTES_MAX} bytes"
        if _TEMPORARY.search(segment):
            return "has a segment ending in '#' and digits, which marks files still being written"
    return None


def _has_unprintable(text: str) -> bool:
    return _UNPRINTABLE.search(text) is not None


class StorageOptions(Mapping[str, str]):
    """Validated options of an S3 root under their long names; shows its keys and never a value."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, str] = _canonical(values or {})
        _remember(value for key, value in self._values.items() if key in _SECRETS)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(f'{key}=***' for key in self._values)})"

    __str__ = __repr__

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, str]]]:
        return type(self), (dict(self._values),)

    def for_clients(self) -> dict[str, str]:
        """Return the options to hand to Lance and to the object store, worded so that they beat the environment."""
        values = dict(self._values)
        if "aws_endpoint" in values:
            # Both libraries prefer the variable AWS_ENDPOINT_URL_S3 to the option aws_endpoint.
            values["aws_endpoint_url_s3"] = values["aws_endpoint"]
        if "aws_access_key_id" in values:
            # Without it, given keys would be signed together with the environment's AWS_SESSION_TOKEN.
            values.setdefault("aws_session_token", "")
        return values

    def secrets(self) -> tuple[str, ...]:
        """Return every value that must not be shown, the environment's credentials included; longest first."""
        own = {value for key, value in self._values.items() if key in _SECRETS and value}
        inherited = {os.environ.get(name, "") for name in _SECRET_VARIABLES}
        found = own | {value for value in inherited if len(value) >= INHERITED_SECRET_CHARS_MIN}
        return tuple(sorted(found | {quote(value, safe="") for value in found}, key=len, reverse=True))


def scrub(text: str, options: StorageOptions) -> str:
    """Return ``text`` with every secret value replaced by ``***``."""
    return _without(text, options.secrets())


def scrub_all(text: str) -> str:
    """Return ``text`` without the secrets of any options this process was given, or that lie in its environment.

    For what leaves the process by a way that knows no options: short values stay, as they occur in ordinary words.
    """
    return _IN_ADDRESSES.sub(r"\1***", scrub(_without(text, tuple(_KNOWN_SECRETS)), StorageOptions()))


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _remember(secrets: Iterable[str]) -> None:
    """Keep secrets in mind, in each spelling they may be met in, the latest of them."""
    for secret in secrets:
        if len(secret) >= INHERITED_SECRET_CHARS_MIN:
            for spelling in (secret, quote(secret, safe=""), repr(secret)[1:-1]):
                _KNOWN_SECRETS.pop(spelling, None)
                _KNOWN_SECRETS[spelling] = None
    for oldest in tuple(_KNOWN_SECRETS)[:-KNOWN_SECRETS_MAX]:
        _KNOWN_SECRETS.pop(oldest, None)


def _canonical(raw: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, value in raw.items():
        name = _CANONICAL.get(key)
        if name is None:
            raise _unknown_option(key)
        if name in values:
            raise InvalidOptionError(f"storage option {name!r} is given twice, once as {key!r}", option=key)
        values[name] = _checked_value(name, value)
    if ("aws_access_key_id" in values) != ("aws_secret_access_key" in values):
        raise InvalidOptionError("give aws_access_key_id and aws_secret_access_key together, or neither")
    if "aws_endpoint" in values:
        _check_endpoint(values["aws_endpoint"])
    return values


def _unknown_option(key: str) -> InvalidOptionError:
    (near,) = difflib.get_close_matches(str(key).lower(), sorted(_CANONICAL), n=1, cutoff=0.0)
    return InvalidOptionError(f"unknown storage option {key!r}; did you mean {near!r}?", option=str(key))


def _checked_value(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidOptionError(f"storage option {name!r} must be a string", option=name)
    shown = value.replace("\n", "") if name == "proxy_ca_certificate" else value
    if _has_unprintable(shown):
        raise InvalidOptionError(f"storage option {name!r} contains a control character", option=name)
    if name not in _FLAGS:
        return value
    if value.lower() not in ("true", "false"):
        raise InvalidOptionError(f"storage option {name!r} must be 'true' or 'false'", option=name)
    return value.lower()


def _check_endpoint(value: str) -> None:
    try:
        parts = urlsplit(value)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOptionError(
            "storage option 'aws_endpoint' must be an http:// or https:// URL", option="aws_endpoint"
        )
    if "@" in value or parts.query or parts.fragment:
        raise InvalidOptionError(
            "storage option 'aws_endpoint' must hold no credentials or query", option="aws_endpoint"
        )


def _refuse_plain_http(options: StorageOptions) -> None:
    """Refuse an unencrypted endpoint, given or from the environment, that nobody allowed."""
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = options.get("aws_endpoint") or next(filter(None, map(os.environ.get, variables)), "")
    allowed = options.get("allow_http") or os.environ.get("AWS_ALLOW_HTTP", "")
    if endpoint.lower().startswith("http://") and allowed.lower() != "true":
        raise InvalidOptionError(
            "the S3 endpoint is plain http:// and would carry data unencrypted; "
            "use https://, or set the storage option allow_http to 'true'",
            option="allow_http",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRoot:
    """The place of one graph: a local folder, or a prefix of an S3 bucket with its options."""

    path: str
    """The absolute local folder, or the prefix inside the bucket (perhaps empty)."""
    bucket: str | None = None
    options: StorageOptions = field(default_factory=StorageOptions)

    @classmethod
    def parse(cls, uri: "str | os.PathLike[str]", storage_options: Mapping[str, str] | None = None) -> "GraphRoot":
        """Read a root from what a caller wrote, or raise InvalidOptionError saying what is supported."""
        text = os.fsdecode(uri)
        if not text.strip():
            raise _bad_root(f"the graph root is empty; {SUPPORTED}")
        if _has_unprintable(text) or len(text) > URI_CHARS_MAX:
            raise _bad_root(f"the graph root has a control character or more than {URI_CHARS_MAX} characters")
        options = StorageOptions(storage_options)
        scheme = _SCHEME.match(text)
        if scheme is not None and scheme[1].lower() == "s3":
            _refuse_plain_http(options)
            return cls._of_s3(text, StorageOptions({**profile_keys(options), **options}))
        if options:
            raise _bad_root("storage options are for s3:// roots; this root is a local path", option="storage_options")
        if scheme is None:
            return cls(path=_absolute(text))
        if scheme[1].lower() == "file":
            return cls(path=_absolute(_path_of_file_uri(text)))
        raise _bad_root(f"graph roots of scheme {scheme[1]!r} are not supported; {SUPPORTED}")

    @classmethod
    def _of_s3(cls, text: str, options: StorageOptions) -> "GraphRoot":
        if not text[3:].startswith("//"):
            raise _bad_root(f"an S3 root is written s3://bucket/prefix, with two slashes; {SUPPORTED}")
        bucket, _, prefix = text[5:].partition("/")
        if "@" in bucket:
            raise _bad_root("an S3 root must not hold credentials; pass them as storage options")
        if set(text) & set("?#%\\"):
            raise _bad_root("an S3 root must not contain '?', '#', '%' or a backslash")
        if not _BUCKET.fullmatch(bucket):
            raise _bad_root(f"{bucket!r} is not a bucket name; {SUPPORTED}")
        prefix = prefix.rstrip("/")
        problem = _problem_of_key(prefix) if prefix else None
        if problem is not None:
            raise _bad_root(f"the prefix of the S3 root {problem}")
        return cls(path=prefix, bucket=bucket, options=options)

    @property
    def is_local(self) -> bool:
        """Whether the graph lies on a local or mounted file system."""
        return self.bucket is None

    def uri(self, relative: str = "") -> str:
        """Return what to hand to Lance for the dataset at ``relative``; the root itself when that is empty."""
        if relative:
            check_key(relative)
        if self.bucket is None:
            return self.path if not relative else f"{self.path.rstrip('/')}/{relative}"
        # Lance reads an s3:// string as a URL, so what would end or decode its path is escaped.
        escaped = relative.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
        return "/".join(part for part in (f"s3://{self.bucket}", self.path, escaped) if part)

    def __str__(self) -> str:
        return self.uri()


def _bad_root(message: str, option: str = "uri") -> InvalidOptionError:
    return InvalidOptionError(message, option=option)


def _absolute(text: str) -> str:
    try:
        expanded = str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError:
        raise _bad_root("the home folder that '~' stands for is unknown") from None
    # POSIX keeps two leading slashes apart from one; nothing below us does.
    return "/" + os.path.abspath(expanded).lstrip("/")  # noqa: PTH100  (resolve() would follow links)


def _path_of_file_uri(text: str) -> str:
    rest = text[len("file:") :]
    host, _, path = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest[1:])
    if host not in ("", "localhost") or set(text) & set("?#"):
        raise _bad_root("a file root is written file:///path, without host, query or fragment")
    decoded = unquote("/" + path, errors="surrogateescape")
    if _has_unprintable(decoded):
        raise _bad_root("a file root must decode to UTF-8 without control characters")
    return decoded
