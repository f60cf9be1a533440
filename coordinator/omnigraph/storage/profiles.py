"""The keys of an AWS profile: read from its file when a graph is opened, and kept nowhere but in memory."""

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from omnigraph.errors import InvalidOptionError

__all__ = ["profile_keys"]

PROFILE_VARIABLE: Final = "AWS_PROFILE"
FILE_VARIABLE: Final = "AWS_SHARED_CREDENTIALS_FILE"
FILE_DEFAULT: Final = "~/.aws/credentials"
NAME_DEFAULT: Final = "default"

_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_KEYS_NEEDED: Final = _KEYS[:2]
_OTHER_OPTIONS: Final = (
    "aws_access_key_id",
    "aws_web_identity_token_file",
    "aws_container_credentials_relative_uri",
    "aws_container_credentials_full_uri",
)


def profile_keys(options: Mapping[str, str]) -> dict[str, str]:
    """Return the profile's keys as options, or nothing if options or environment say who we are without it."""
    if options.get("aws_skip_signature") == "true" or any(map(options.get, _OTHER_OPTIONS)):
        return {}
    if any(os.environ.get(name.upper()) for name in _OTHER_OPTIONS):
        return {}
    named = os.environ.get(PROFILE_VARIABLE)
    found = _section(named or NAME_DEFAULT, is_named=bool(named))
    if all(found.get(key) for key in _KEYS_NEEDED):
        return {key: found[key] for key in _KEYS if found.get(key)}
    if named:
        raise _refused(named, "has no aws_access_key_id and aws_secret_access_key; export keys, or pass them")
    return {}


def _section(name: str, *, is_named: bool) -> Mapping[str, str]:
    """Return what the file says of a profile; a file or profile that nobody asked for by name may be missing."""
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        text = Path(os.environ.get(FILE_VARIABLE) or FILE_DEFAULT).expanduser().read_text(encoding="utf-8")
        parser.read_string(text)
    except (OSError, RuntimeError):
        pass  # there is no such file, or no home to look in
    except (configparser.Error, ValueError):
        # The parser's own words quote the line, which may hold a key.
        raise _refused(name, "is in a credentials file that can not be read as one") from None
    if parser.has_section(name):
        return dict(parser.items(name))
    if is_named:
        raise _refused(name, f"is not in the credentials file; {FILE_VARIABLE} says where another one is")
    return {}


def _refused(name: str, why: str) -> InvalidOptionError:
    return InvalidOptionError(f"the AWS profile {name[:60]!r} {why}", option=PROFILE_VARIABLE)
