"""`braid state`: what a checkpoint holds. It only reads, and needs no Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from braidstream.cli import JOBS, app, words
from braidstream.epoch.ending import is_ended
from braidstream.epoch.lateness import late_in_all, warning
from braidstream.errors import DamagedState, InputError
from braidstream.jobs.form import PARTS
from braidstream.model.numbers import EpochNumber, GroupId, SlotId, slot_ids
from braidstream.model.stores import shown_stage, shown_store
from braidstream.query import describe_duration
from braidstream.state.begun_rollback import begun_rollback
from braidstream.state.cells import Cells
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.generations import Held, account
from braidstream.state.manifest import Manifest
from braidstream.state.verifying import misfit

__all__ = ["parts_in", "show_state"]

_NUMBERS = {
    "rows", "late", "matches", "segments", "bytes", "groups", "cells", "generations", "active rows", "most at a slot",
}  # fmt: skip
"""Columns that are set to the right."""

_MOST_SHOWN = 20


@dataclass(frozen=True)
class _Snapshot:
    identity: Identity
    epochs: list[EpochNumber]
    latest: Manifest
    doubts: tuple[str, ...]
    """Why no start would go on from here."""

    def as_plain(self, checkpoint: str) -> dict[str, Any]:
        """What `--json` prints."""
        latest = self.latest
        return {
            "checkpoint": checkpoint,
            "flow": self.identity.flow,
            "name": self.identity.name,
            "epoch": latest.epoch,
            "epochs_kept": self.epochs,
            "slots": latest.n_slots,
            "groups": len(latest.directory.groups),
            "segments": len(latest.segments),
            "rows": sum(segment.live_rows for segment in latest.segments),
            "bytes": sum(segment.bytes for segment in latest.segments),
            "watermark": latest.watermark,
            "closed": is_ended(latest),
            "newest": dict(latest.newest),
            "totals": dict(latest.totals),
            "delays": dict(latest.notes.delays),
            "warnings": [
                *self.doubts,
                *(warning(s, one, "all epochs") for s, one in late_in_all(latest).items() if one.is_much),
            ],
            "active_bytes": round(sum(one.active_bytes for one in self.held.values())),
            "inactive_bytes": round(sum(one.inactive_bytes for one in self.held.values())),
            "generations": self.generations(),
            "stores": self.stores(),
            "stages": self.stages(),
            "per_slot": self.per_slot(),
            "heavy": self.heavy(),
            "streams": {name: dict(known) for name, known in self.identity.streams.items()},
            "queries": dict(self.identity.queries),
        }

    @cached_property
    def held(self) -> dict[GroupId, Held]:
        """What each group holds."""
        return account(self.latest)

    def generations(self) -> list[dict[str, int]]:
        """The groups with inactive generations: how many, their rows and bytes, and those of the active one."""
        return [
            {
                "group": group.id,
                "slot": group.slot,
                "inactive": len(own.deadlines),
                "inactive_rows": own.inactive_rows,
                "inactive_bytes": round(own.inactive_bytes),
                "active_rows": own.active_rows,
                "active_bytes": round(own.active_bytes),
            }
            for group in self.latest.directory.groups
            if (own := self.held[group.id]).deadlines
        ]

    def stores(self) -> dict[str, dict[str, int]]:
        """Segments, rows and bytes of each store."""
        found: dict[str, Counter[str]] = {}
        for segment in self.latest.segments:
            one = found.setdefault(segment.store, Counter())
            one.update(segments=1, rows=segment.live_rows, bytes=segment.bytes)
        return {name: dict(one) for name, one in sorted(found.items())}

    def stages(self) -> list[dict[str, Any]]:
        """The groups of each stage: how many, how many each slot holds, and their rows and bytes; cells are apart."""
        found = []
        for stage, region in sorted(self.latest.directory.regions.items()):
            held = [self.held[group.id] for group in region.groups]
            groups = Counter(group.slot for group in region.groups)
            found.append(
                {
                    "stage": shown_stage(stage),
                    "groups": len(held),
                    "per_slot": [groups[slot] for slot in slot_ids(self.latest.n_slots)],
                    "rows": sum(one.active_rows + one.inactive_rows for one in held),
                    "bytes": round(sum(one.active_bytes + one.inactive_bytes for one in held)),
                }
            )
        return found

    def per_slot(self) -> list[dict[str, int]]:
        """Groups of all stages and stored rows of each slot."""
        groups, rows = Counter[SlotId](), Counter[SlotId]()
        for group in self.latest.directory.groups:
            own = self.held[group.id]
            groups[group.slot] += 1
            rows[group.slot] += own.active_rows + own.inactive_rows
        cells, in_cells = self._cells()
        return [
            {"slot": i, "groups": groups[i], "cells": cells[i], "rows": rows[i] + in_cells[i]}
            for i in slot_ids(self.latest.n_slots)
        ]

    def _cells(self) -> tuple[Counter[SlotId], Counter[SlotId]]:
        """Cells of heavy keys, and rows stored in cells, by slot; rows of earlier grids count for no slot."""
        cells = Counter(slot for grid in self.latest.grids for slot in grid.slots)
        known, rows = Cells(self.latest), Counter[SlotId]()
        for code, n_rows in (cell for segment in self.latest.segments for cell in segment.cells):
            slot = known.slot_of(code)
            if slot is not None:
                rows[slot] += n_rows
        return cells, rows

    def heavy(self) -> list[dict[str, Any]]:
        """The heavy keys with their grids."""
        shown = {grid.id: grid.label or f"hash {grid.hash:016x}" for grid in self.latest.grids}
        return [{"key": shown[grid.id], "grid": grid.shape, "slots": list(grid.slots)} for grid in self.latest.grids]


@app.command("state", rich_help_panel=JOBS)
def show_state(
    checkpoint: str = typer.Argument(help="The folder of a checkpoint, or its URI.", show_default=False),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Show what a checkpoint holds: epochs, groups, slots, segments, bytes, watermark, streams and queries.

    Of a job with functions and queries, the same of each of its parts.

    Nothing is changed. Exit code 3 when a manifest or a segment is damaged or missing.

    Examples:

      braid state ck

      braid state s3://bucket/ck --json
    """
    folders = {name: f"{checkpoint}/{name}" for name in parts_in(checkpoint)}
    found = {folder: _look(folder) for folder in folders.values() or [checkpoint]}
    if as_json and folders:
        parts = {name: found[folder].as_plain(folder) for name, folder in folders.items()}
        typer.echo(json.dumps({"checkpoint": checkpoint, "parts": parts}))
    elif as_json:
        typer.echo(json.dumps(found[checkpoint].as_plain(checkpoint)))
    else:
        for folder, one in found.items():
            _show(folder, one)


def parts_in(checkpoint: str) -> list[str]:
    """The parts of a job with functions and queries, each of which has a checkpoint of its own; none of others."""
    if "://" in checkpoint:  # such a job is in no object store
        return []
    path = Path(checkpoint) / PARTS
    try:
        return list(json.loads(path.read_bytes())["parts"])
    except OSError:
        return []  # said by who reads the checkpoint
    except ValueError:
        raise DamagedState(str(path), "what the parts of the job are is damaged") from None
    except (KeyError, TypeError):
        return []  # somebody's file of that name


def _look(checkpoint: str) -> _Snapshot:
    located = checkpoint if "://" in checkpoint else str(Path(checkpoint).absolute())
    store = Checkpoint(located)
    try:
        identity = store.identity()
    except OSError as error:  # a file, or an address that does not answer
        wrong = f"{checkpoint} cannot be read: {str(error).splitlines()[0]}"
        raise InputError(wrong, "the folder of a checkpoint", "check the path, or [flow] checkpoint") from None
    if identity is None:
        there = "is no checkpoint" if store.files.exists() else "does not exist"
        raise InputError(f"{checkpoint} {there}", "the folder of a checkpoint", "check the path, or [flow] checkpoint")
    latest = store.latest()
    store.verify(latest)
    return _Snapshot(_as_declared(identity, latest), Manifest.epochs(store.files), latest, tuple(_doubts(store)))


def _doubts(store: Checkpoint) -> Iterator[str]:
    """Why a start would refuse the checkpoint, though its last manifest is whole."""
    if (begun := begun_rollback(store.files)) is not None:
        yield begun
    if (error := misfit(store)) is not None:
        yield error.wrong


def _as_declared(identity: Identity, latest: Manifest) -> Identity:
    """What the checkpoint belongs to, with the queries and streams of its last start."""
    declared, streams = latest.notes.declared, latest.notes.streams
    queries = identity.queries if declared is None else {name: one.fingerprint for name, one in declared.items()}
    return replace(identity, queries=queries, streams=identity.streams if streams is None else streams)


def _show(checkpoint: str, found: _Snapshot) -> None:
    plain = found.as_plain(checkpoint)
    kept = [epoch for epoch in found.epochs if epoch >= 0]
    rows, segments = words.count(plain["rows"], "row"), words.count(plain["segments"], "segment")
    typer.echo(f"checkpoint {checkpoint} of flow {plain['name']} ({plain['flow']})")
    for name, shown in (
        ("epochs", f"{plain['epoch'] + 1:,} committed, {f'{kept[0]} to {kept[-1]} kept' if kept else 'none kept'}"),
        ("slots", f"{plain['slots']} with {words.count(plain['groups'], 'group')}{_staged(plain)}"),
        ("state", f"{rows}, {words.size(plain['bytes'])} in {segments}"),
        *([("pushed", _pushed(plain))] if plain["generations"] else []),
        ("watermark", words.moment(plain["watermark"])),
        *([("closed", "the input ended (final = true): nothing goes on from here")] if plain["closed"] else []),
        *(("delay", f"{name} {describe_duration(us)}, as measured") for name, us in plain["delays"].items()),
        *(("warning", text) for text in plain["warnings"]),
        *((f"stream {name}", _schema(known["schema"])) for name, known in found.identity.streams.items()),
    ):
        typer.echo(f"  {name:<12} {shown}")
    for title, entries in (
        (("stream", "time", "newest", "rows", "late"), _streams(found)),
        (("query", "matches", "fingerprint"), _queries(found)),
        (("store", "segments", "rows", "bytes"), _stores(found)),
        (("stage", "groups", "slots", "most at a slot", "rows", "bytes"), _stages(found)),
        (("slot", "groups", "cells", "rows"), _slots(found)),
        (("heavy key", "grid", "slots"), _heavy(found)),
        (("pushed group", "slot", "generations", "rows", "bytes", "active rows"), _generations(found)),
    ):
        if entries or title[0] not in ("stage", "heavy key", "pushed group"):
            _print_table(title, entries)


def _staged(plain: dict[str, Any]) -> str:
    return f" in {len(plain['stages'])} stages" if len(plain["stages"]) > 1 else ""


def _pushed(plain: dict[str, Any]) -> str:
    groups = words.count(len(plain["generations"]), "group")
    return (
        f"{groups}, {words.size(plain['inactive_bytes'])} to be cleaned up; {words.size(plain['active_bytes'])} active"
    )


def _print_table(title: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in title:
        is_number = name in _NUMBERS
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, markup=False)
    console.print()
    console.print(Padding(table, (0, 2), expand=False), crop=False, overflow="ignore", width=max(console.width, 120))


def _schema(struct: str) -> str:
    return struct.removeprefix("struct<").removesuffix(">").replace(":", " ").replace(",", ", ")


def _streams(found: _Snapshot) -> list[list[str]]:
    totals = found.latest.totals
    return [
        [
            name,
            known["time"],
            words.moment(found.latest.newest.get(name)),
            words.number(totals.get(f"{name}.rows", 0)),
            words.number(totals.get(f"{name}.late", 0)),
        ]
        for name, known in found.identity.streams.items()
    ]


def _stages(found: _Snapshot) -> list[list[str]]:
    """A line for each stage, where there are several."""
    stages = found.stages()
    return [
        [
            one["stage"],
            str(one["groups"]),
            str(sum(n > 0 for n in one["per_slot"])),
            str(max(one["per_slot"])),
            words.number(one["rows"]),
            words.size(one["bytes"]),
        ]
        for one in stages
        if len(stages) > 1
    ]


def _slots(found: _Snapshot) -> list[list[str]]:
    return [
        [str(one["slot"]), str(one["groups"]), str(one["cells"]), words.number(one["rows"])] for one in found.per_slot()
    ]


def _heavy(found: _Snapshot) -> list[list[str]]:
    return [[one["key"], one["grid"], " ".join(map(str, one["slots"]))] for one in found.heavy()]


def _generations(found: _Snapshot) -> list[list[str]]:
    """The largest first, as many as one looks at."""
    largest = sorted(found.generations(), key=lambda one: -one["inactive_bytes"])
    return [
        [
            str(one["group"]),
            str(one["slot"]),
            str(one["inactive"]),
            words.number(one["inactive_rows"]),
            words.size(one["inactive_bytes"]),
            words.number(one["active_rows"]),
        ]
        for one in largest[:_MOST_SHOWN]
    ]


def _queries(found: _Snapshot) -> list[list[str]]:
    totals = found.latest.totals
    return [
        [name, words.number(totals.get(f"{name}.matches", 0)), fingerprint]
        for name, fingerprint in found.identity.queries.items()
    ]


def _stores(found: _Snapshot) -> list[list[str]]:
    return [
        [shown_store(name), str(one["segments"]), words.number(one["rows"]), words.size(one["bytes"])]
        for name, one in found.stores().items()
    ]
