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
"""What is below `lab` now."""
RENAMED = {
    "control.directory": "model.directory",
    "control.grids": "model.grids",
    "control.instructions": "model.instructions",
    "control.reports": "model.figures",
    "functions.batch": "functions.window_batch",
    "functions.picture": "functions.graph",
    "functions.types": "functions.stream_types",
    "functions.windows": "functions.windowing",
    "testing.faults": "model.faults",
    "testing.slowness": "model.slowness",
    "testing.source": "lab.testing.script",
    "workloads.files": "lab.workloads.stream_files",
    "workloads.keys": "lab.workloads.key_values",
}
"""Modules that 0.1.0 documented, by their names there."""
_NAMES = {"control.reports": {"GroupReport": "GroupFigures", "SlotReport": "SlotFigures"}}
"""And names in them that are others now."""


class _Moved(MetaPathFinder, Loader):
    """Loads a module of 0.1.0 from where it is now."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        package, _, rest = fullname.partition(".")
        if package != "braidstream" or (rest not in RENAMED and rest.split(".")[0] not in MOVED):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__.removeprefix("braidstream.")
        name = f"braidstream.{RENAMED.get(old, f'lab.{old}')}"
        warnings.warn(f"{module.__name__} is {name} now", DeprecationWarning, stacklevel=2)
        found = importlib.import_module(name)
        if old in _NAMES:
            known = vars(found) | {former: vars(found)[now] for former, now in _NAMES[old].items()}
            vars(module).update({key: value for key, value in known.items() if not key.startswith("__")})
        else:
            sys.modules[module.__name__] = found


def find_moved() -> None:
    """From now on."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Moved())  # before the folders that an old clone may have left
