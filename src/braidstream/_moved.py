"""Packages that stood elsewhere in 0.1.0 are found under their old names, with a warning that says the new one.

    from braidstream.workloads import UniformKeys      # now braidstream.lab.workloads

Cost: one more look for modules of this package that do not exist.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["MOVED", "find_moved"]

MOVED = ("bench", "overlay", "papers", "sim", "testing", "workloads")


class _Moved(MetaPathFinder, Loader):
    """Loads `braidstream.X` as `braidstream.lab.X`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        package, _, rest = fullname.partition(".")
        if package != "braidstream" or rest.split(".")[0] not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.replace("braidstream.", "braidstream.lab.", 1)
        warnings.warn(f"{module.__name__} is {name} now", DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = importlib.import_module(name)


def find_moved() -> None:
    """From now on."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Moved())  # before the folders that an old clone may have left
