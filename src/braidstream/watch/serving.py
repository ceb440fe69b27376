"""The server of the dashboard: a page for each checkpoint, for browsers on this machine unless a host is named.

It reads histories in a process of its own, so it never slows a flow; pages are read only, and all that they load comes
from here. While no browser looks, nothing is read.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.document import Document
from bokeh.models import Div, InlineStyleSheet
from bokeh.server.server import Server
from jinja2 import Environment, Template

from braidstream.errors import InputError
from braidstream.watch.dashboard_page import TICK_MS, Page
from braidstream.watch.followed import Followed
from braidstream.watch.look import LIGHT, THEMES

__all__ = ["LOOPBACK", "serve", "url_of"]

LOOPBACK = "127.0.0.1"
_ANY = ("0.0.0.0", "::", "")


def serve(checkpoints: Sequence[str], port: int, host: str = LOOPBACK) -> Server:
    """A server that is about to run; `server.io_loop.start()` runs it, and port 0 is any that is free."""
    flows = {path: Followed(one) for path, one in _paths(checkpoints).items()}
    names = [(Path(flow.root).name if len(flows) > 1 else "flow", path) for path, flow in flows.items()]
    template = Environment(autoescape=False).from_string(_text("page.html"))
    opened = {path: partial(_open, flow, template, names, path) for path, flow in flows.items()}
    apps = {path: Application(FunctionHandler(one)) for path, one in opened.items()}
    try:
        port = port or _free_port(host)
        server = Server(
            apps, port=port, address=None if host in _ANY else host, allow_websocket_origin=_origins(host, port),
            check_unused_sessions_milliseconds=5000, unused_session_lifetime_milliseconds=5000, use_index=len(apps) > 1,
        )  # fmt: skip
    except OSError as error:
        wrong = f"the dashboard cannot listen at {host}:{port}: {error.strerror or error}"
        expected = "an address of this machine and a port that is free"
        raise InputError(wrong, expected, "another --port (0 takes any), or no --host") from None
    if ":" in host and host not in _ANY:  # the public list takes no brackets
        server._tornado._websocket_origins.add(f"{_bracketed(host)}:{port}")
    server.start()
    return server


def url_of(server: Server, host: str = LOOPBACK) -> str:
    """Where a browser finds it."""
    shown = LOOPBACK if host in _ANY else host
    return f"http://{_bracketed(shown)}:{server.port}/"


def _paths(checkpoints: Sequence[str]) -> Mapping[str, str]:
    """The address of the page of each checkpoint: the first is at the root."""
    located = [one if "://" in one else str(Path(one).absolute()) for one in checkpoints]
    return {"/" if not at else f"/flow{at + 1}": one for at, one in enumerate(located)}


def _free_port(host: str) -> int:
    family, kind, protocol, _, place = socket.getaddrinfo(
        None if host in _ANY else host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind(place)
        return int(probe.getsockname()[1])


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _origins(host: str, port: int) -> list[str]:
    if host in _ANY:
        return [f"*:{port}"]
    return [f"{name}:{port}" for name in dict.fromkeys((host, LOOPBACK, "localhost")) if ":" not in name]


def _open(flow: Followed, template: Template, names: Sequence[tuple[str, str]], path: str, document: Document) -> None:
    """A browser opens a page."""
    request = document.session_context.request if document.session_context else None
    asked = request.arguments.get("theme", [b""])[0].decode() if request else ""
    theme = THEMES.get(asked, LIGHT)
    flow.look()
    page = Page(document, flow, theme)
    sheet = InlineStyleSheet(css=_text("list_style.css"))
    for div in document.select({"type": Div}):
        div.stylesheets = [sheet]
    document.title = f"{flow.name or 'flow'} · Braidstream"
    document.template = template
    document.template_variables.update(theme=theme, flows=names, here=path, flow_name=flow.name or "flow")
    document.add_periodic_callback(page.tick, TICK_MS)


def _text(name: str) -> str:
    return resources.files("braidstream.watch").joinpath(name).read_text(encoding="utf-8")
