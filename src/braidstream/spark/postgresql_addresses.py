"""Addresses of PostgreSQL as libpq reads them: URIs, or names with values; what is shown of them, and what is added.

A password is never shown. Pure. Cost: that of a text.
"""

from __future__ import annotations

import re

from braidstream.errors import SinkError

__all__ = ["refuse_scheme", "shown", "timely"]

_SCHEMES, _PORT = ("postgresql", "postgres"), 5432
_WAIT_S = 6
"""For a connection."""


def refuse_scheme(url: str) -> None:
    """Refuse an address of another kind; it is not shown, for a password may be in it."""
    scheme, is_uri, _ = url.partition("://")
    if is_uri and scheme not in _SCHEMES:
        wrong = f"the url of the postgresql sink begins with {scheme}://"
        raise SinkError(wrong, "postgresql://user@host:5432/database", "write it as PostgreSQL's own clients take it")


def timely(url: str) -> str:
    """An address under which servers that are not there are given up soon: libpq waits for each of them."""
    if "connect_timeout" in url:
        return url
    wait_s = max(2, _WAIT_S // len(_hosts(url)))
    mark = " " if "://" not in url else "&" if _parted(url)[2] else "?"
    return f"{url}{mark}connect_timeout={wait_s}"


def _hosts(url: str) -> list[str]:
    """The servers of an address; libpq takes several."""
    if "://" not in url:
        named = dict(part.split("=", 1) for part in url.split() if "=" in part)
        return named.get("host", "").split(",")
    return _parted(url)[0].split(",")


def _parted(url: str) -> tuple[str, str, str]:
    """Servers, database and options of an address, as libpq reads it: a password may have all but / and @."""
    before, slash, after = url.partition("://")[2].partition("/")
    servers, mark, options = before.rpartition("@")[2].partition("?")
    if mark:
        return servers, "", mark + options + slash + after
    name, mark, options = after.partition("?")
    return servers, slash + name, mark + options


def shown(url: str) -> str:
    """An address without a password."""
    if "://" not in url:
        return " ".join(part for part in url.split() if part.startswith(("host=", "port=", "dbname=")))
    hosts = (one if re.search(r":[^\]]+$", one) else f"{one or 'localhost'}:{_PORT}" for one in _hosts(url))
    return f"{','.join(hosts)}{_parted(url)[1]}"
