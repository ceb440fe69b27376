"""Packages that single features need: extras of this one, found or refused with the command that installs them.

Nothing is imported before a feature is asked for that needs it. Cost: a look at the path of imports.
"""

from __future__ import annotations

import importlib.util

from braidstream.errors import InputError

__all__ = ["install_command", "is_installed", "need"]


def is_installed(module: str) -> bool:
    """Whether a module is there."""
    return importlib.util.find_spec(module) is not None


def install_command(extra: str) -> str:
    """What installs an extra."""
    return f"pip install 'braidstream[{extra}]'"


def need(extra: str, module: str, what: str) -> None:
    """Refuse a feature whose package is not installed."""
    if not is_installed(module):
        wrong = f"{what} needs the package {module}, which is not installed"
        raise InputError(wrong, f"the extra braidstream[{extra}]", install_command(extra))
