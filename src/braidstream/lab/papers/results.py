"""Results of experiments: what ran, what came out, on which machine; kept as JSON, one file an experiment.

Invariant: a kept file is whole (it is written beside and renamed) and says all that the report shows, so the report
needs no run. A quick run and a full run of an experiment are kept apart. A number that is not finite is kept as null.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from braidstream.errors import InputError
from braidstream.lab.papers.registry import Check, Declaration, Experiment, Outcome, Run, Series
from braidstream.lab.papers.testbed import machine, versions
from braidstream.model.values import Json

__all__ = ["FOLDER", "Result", "attempt", "keep", "kept", "run"]

FOLDER = Path("build/papers")
Status = Literal["held", "did not hold", "failed"]
_DECLARED = tuple(one.name for one in fields(Declaration))


@dataclass(frozen=True)
class Result:
    """One run of one experiment. `error` is the traceback of a run that failed."""

    declared: Declaration
    outcome: Outcome
    quick: bool
    seed: int
    seconds: float
    finished: str
    error: str = ""
    machine: Mapping[str, str] = field(default_factory=machine)
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def status(self) -> Status:
        """Whether the claim held; a run that failed says nothing of it."""
        if self.error:
            return "failed"
        return "held" if self.outcome.holds else "did not hold"

    @property
    def reason(self) -> str:
        """The last line of the error."""
        return self.error.strip().rpartition("\n")[2]

    def as_json(self) -> dict[str, Any]:
        """The object that `braid paper ... --json` prints and that is kept."""
        declared = {name: getattr(self.declared, name) for name in _DECLARED}
        outcome = self.outcome
        found = {
            **declared,
            "holds": bool(outcome.holds) and not self.error,
            "status": self.status,
            "ours": dict(outcome.ours),
            "notes": list(outcome.notes),
            "differs_here": list(outcome.differs),
            "checks": [asdict(check) for check in outcome.checks],
            "series": [asdict(series) for series in outcome.series],
            "run": {"quick": self.quick, "seed": self.seed, "seconds": self.seconds, "finished": self.finished},
            "error": self.error,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
        }
        plain: dict[str, Any] = _plain(found)
        return plain

    @classmethod
    def from_json(cls, found: Json) -> Result:
        """The result that was kept."""
        outcome = Outcome(
            found["holds"],
            [Series(**{**series, "y": _numbers(series["y"])}) for series in found["series"]],
            found["notes"],
            {name: math.nan if value is None else value for name, value in found["ours"].items()},
            found["differs_here"],
            [Check(**check) for check in found.get("checks", ())],
        )
        declared = Declaration(**{name: found[name] for name in _DECLARED})
        rest = {name: found[name] for name in ("error", "machine", "versions")}
        return cls(declared, outcome, **found["run"], **rest)


def run(chosen: Experiment, how: Run) -> Result:
    """Run an experiment; its exceptions are the caller's."""
    began = time.perf_counter()
    return _result(chosen, how, chosen.function(how), began)


def attempt(chosen: Experiment, how: Run) -> Result:
    """Run an experiment; an exception makes it a result that failed, so that others may still run."""
    began = time.perf_counter()
    try:
        return run(chosen, how)
    except Exception:  # whatever it is, it belongs to this experiment
        return _result(chosen, how, Outcome(holds=False, series=()), began, traceback.format_exc())


def _result(chosen: Experiment, how: Run, outcome: Outcome, began: float, error: str = "") -> Result:
    declared = Declaration(**{name: getattr(chosen, name) for name in _DECLARED})
    finished = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Result(declared, outcome, how.quick, how.seed, round(time.perf_counter() - began, 2), finished, error)


def keep(result: Result, folder: Path) -> Path:
    """Write a result into `folder`, in place of the last one of the same kind."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = "quick" if result.quick else "full"
    path = folder / f"{result.declared.paper}-{result.declared.figure}.{kind}.json"
    beside = path.with_suffix(".json.part")
    beside.write_text(json.dumps(result.as_json(), indent=1, allow_nan=False), encoding="utf-8")
    return beside.replace(path)


def kept(folder: Path, *, quick_only: bool = False) -> dict[tuple[str, str], Result]:
    """The results in `folder` by paper and figure: of two runs of an experiment, the full one unless told otherwise."""
    found: dict[tuple[str, str], Result] = {}
    for path in sorted(folder.glob("*.quick.json")) + ([] if quick_only else sorted(folder.glob("*.full.json"))):
        result = _read(path)
        found[result.declared.paper, result.declared.figure] = result
    return found


def _read(path: Path) -> Result:
    try:
        return Result.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is no result of an experiment ({error!r})",
            "a file that 'braid paper' wrote with this version",
            "delete it and run the experiment again",
        ) from None


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _plain(value: Any) -> Any:
    """The value in JSON's types: NumPy's numbers become Python's, numbers that are not finite become null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, Sequence):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
