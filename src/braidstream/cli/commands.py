"""Imports every module that registers a command."""

from braidstream.cli import paper

__all__ = ["paper"]
