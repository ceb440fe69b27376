"""Packages that single sinks need: extras of this one, found or refused with the command that installs them.

Nothing is imported before a sink is declared that needs it. Cost: a look at the path of imports.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from braidstream.errors import SinkError
from braidstream.packages import install_command, is_installed

__all__ = ["EXTRAS", "extra", "has_extra", "install_command"]

EXTRAS = {
    "delta": "deltalake",
    "iceberg": "pyiceberg",
    "postgresql": "adbc_driver_postgresql",
    "kafka": "confluent_kafka",
}
"""For each format with an extra of the same name, the module that must be there."""


def has_extra(format_: str) -> bool:
    """Whether the package of a format is installed."""
    return is_installed(EXTRAS[format_])


def extra(format_: str, module: str = "") -> ModuleType:
    """A module of a format's package (without a name, the package); SinkError where it is not installed."""
    if not has_extra(format_):
        raise SinkError(
            f"the {format_} sink needs the package {EXTRAS[format_]}, which is not installed",
            f"the extra braidstream[{format_}], here and on every executor",
            install_command(format_),
        )
    return importlib.import_module(f"{EXTRAS[format_]}.{module}" if module else EXTRAS[format_])
