"""Damage to the files of a checkpoint, at random, and a flow in one process that it is done to."""

from __future__ import annotations

import copy
import json
import random
import shutil
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from braidstream.control.overflow import Overflow
from braidstream.errors import BraidstreamError
from braidstream.functions import Answers, StreamFunction, WindowBatch, WindowSpec, stream_type
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing.function_harness import FunctionHarness
from braidstream.lab.testing.harness import Harness, Indexed, LocalOutlets
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.state import foreign_changes as foreign
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.foreign_changes import foreign_changes
from braidstream.state.manifest import Manifest
from braidstream.state.verifying import verify

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
N, BEFORE, AFTER = 120, 6, 2


def epoch_of(number: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(number)
    times = pa.array(np.arange(N) + number * N, pa.timestamp("us", "UTC"))
    return {name: pa.table([rng.integers(0, 60, N), np.arange(N), times], schema=SCHEMA) for name in "RS"}


def remote_flow_in(folder: Path) -> Harness:
    """The same, on a checkpoint of which workers have copies."""
    return flow_in(folder, f"copy+file://{folder}/ck")


def grid_flow_in(folder: Path) -> Harness:
    """The same with keys on grids that change all the time, and nothing pushed."""
    hashes = np.unique(hash_columns([pa.array(range(6), pa.int64())])[0]).tolist()
    flow = flow_in(folder, overflow=None, regridder=RestlessGrids(hashes, seed=3))
    assert flow.manifest.grids
    return flow


def flow_in(
    folder: Path,
    root: str | None = None,
    overflow: Overflow | None = Overflow(6_000),  # noqa: B008
    regridder: RestlessGrids | None = None,
    n_epochs: int = BEFORE,
) -> Harness:
    """Six epochs of a join of two streams, some of whose groups are pushed; with a log such as Spark writes."""
    inputs = {"q": [Indexed(name, name, ("k",), 3 * N) for name in "RS"]}
    flow = Harness(
        folder, dict.fromkeys("RS", SCHEMA), inputs, slots=2, keep=3, overflow=overflow, regridder=regridder,
        leased=True, root=root,
    )  # fmt: skip
    for number in range(n_epochs):
        flow.epoch(epoch_of(number))
        spark_logs(folder / "ck" / "offsets", number)
    return flow


def spark_logs(folder: Path, epoch: int) -> None:
    """The entries of an epoch, with the checksums that Hadoop writes on a local disk."""
    for name, lines in {
        "metadata": ['{"id":"a-b"}'],
        f"offsets/{epoch}": ["v1", '{"batchWatermarkMs":0}', json.dumps({"logOffset": epoch})],
        f"commits/{epoch}": ["v1", '{"nextBatchWatermarkMs":0}'],
        f"sources/0/{epoch}": ["v1", json.dumps({"path": f"R/{epoch}", "timestamp": 1, "batchId": epoch})],
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = "\n".join(lines).encode()
        path.write_bytes(content)
        sums = b"crc\0" + struct.pack(">iI", 512, zlib.crc32(content))
        path.with_name(f".{path.name}.crc").write_bytes(sums)


def finished(flow: Harness) -> list[tuple[Any, ...]]:
    """The rest of the stream, and all results."""
    for number in range(flow.manifest.epoch + 1, BEFORE + AFTER):
        flow.epoch(epoch_of(number))
        spark_logs(flow.folder / "ck" / Checkpoint(flow._root).log.folder, number)
    flow.finish()
    return sorted(tuple(sorted((name, str(value)) for name, value in row.items())) for row in flow.results("q"))


def elsewhere(flow: Harness, folder: Path) -> Harness:
    """The same flow on a copy of its files; it has to be started."""
    shutil.copytree(flow.folder, folder)
    other = copy.copy(flow)
    other.folder, other._root, other._out = folder, flow._root.replace(str(flow.folder), str(folder)), str(folder)
    return other


def windows_in(folder: Path) -> FunctionHarness:
    """Six epochs of a function over windows that overlap, so that each epoch leaves rows of them for the next."""

    def answer(windows: WindowBatch) -> Answers:
        return Answers({"total": windows["v"].sum(axis=1)})

    function = StreamFunction("sums", answer, stream_type("sums", total="float"))
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])
    flow = FunctionHarness(folder, schema, "ts", WindowSpec(50, 20), function)
    for number in range(BEFORE):
        window_epoch(flow, number)
    assert (folder / "ck" / "segments").glob("*")
    return flow


def window_epoch(flow: FunctionHarness, number: int) -> None:
    times = np.arange(N, dtype=np.int64) + number * N
    stamps = pa.array(times).cast(pa.timestamp("us", "UTC"))
    flow.epoch(pa.table({"ts": stamps, "v": times.astype(float)}))
    spark_logs(flow._folder / "ck" / Checkpoint(flow._root).log.folder, number)


def windows_elsewhere(flow: FunctionHarness, folder: Path) -> FunctionHarness:
    shutil.copytree(flow._folder, folder)
    other = copy.copy(flow)
    other._folder, other._root = folder, str(folder / "ck")
    return other


def windows_finished(flow: FunctionHarness) -> list[tuple[Any, ...]]:
    for number in range(flow.manifest.epoch + 1, BEFORE + AFTER):
        window_epoch(flow, number)
    return sorted((row["seq"], row["total"]) for row in flow.results())


def flip(rng: random.Random, path: Path, _: Path) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def cut(rng: random.Random, path: Path, _: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def zero(rng: random.Random, path: Path, _: Path) -> None:
    content = bytearray(path.read_bytes())
    begin = rng.randrange(len(content))
    content[begin : begin + 512] = bytes(len(content[begin : begin + 512]))
    path.write_bytes(content)


def swap(rng: random.Random, path: Path, other: Path) -> None:
    del rng
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


DAMAGES: tuple[Callable[[random.Random, Path, Path], None], ...] = (flip, cut, zero, swap)


def kind_of(path: Path) -> str:
    """What sort of file it is: its folder and how its name ends."""
    folder = "lease" if path.parent.parent.name == "lease" else path.parent.name
    return f"{folder}/{path.name if folder in ('ck', 'q', 'lease') else path.suffix}"


@dataclass(frozen=True)
class Kind:
    """A sort of flow: how it is made, copied, and run to its end."""

    make: Callable[[Path], Any]
    elsewhere: Callable[[Any, Path], Any] = elsewhere
    finished: Callable[[Any], list[tuple[Any, ...]]] = finished


KINDS = {
    "pushed": Kind(flow_in),
    "grids": Kind(grid_flow_in),
    "remote": Kind(remote_flow_in),
    "windows": Kind(windows_in, windows_elsewhere, windows_finished),
}


class Campaign:
    """Trials on copies of one flow. Each file is as likely as its kind: there are many segments and one identity."""

    def __init__(self, folder: Path, kind: Kind = KINDS["pushed"]) -> None:
        self.folder, self.kind = folder, kind
        self.flow = kind.make(folder / "flow")
        self.expected = kind.finished(self._started("whole"))
        self.outcomes: Counter[tuple[str, str, str]] = Counter()

    def _started(self, name: str) -> Any:
        flow = self.kind.elsewhere(self.flow, self.folder / name)
        start(flow)
        return flow

    def trial(self, seed: int) -> None:
        """Damage a file; the flow refuses it by name, or goes on as if nothing were; then it is put right again."""
        rng = random.Random(seed)
        folder = self.folder / f"trial-{seed}"
        flow = self.kind.elsewhere(self.flow, folder)
        victim, other, damage = self._chosen(rng, folder)
        whole = {path: path.read_bytes() for path in (victim, other)}
        damage(rng, victim, other)
        is_same = all(path.read_bytes() == content for path, content in whole.items())
        told = verify(Checkpoint(flow._root)).damaged
        outcome = "harmless" if is_same else self._run(flow, whole)
        if outcome == "refused":
            for path, content in whole.items():
                path.write_bytes(content)
            start(flow)
            assert self.kind.finished(flow) == self.expected, f"seed {seed}: something was destroyed"
            if victim.is_relative_to(folder / "ck") and "lease" not in kind_of(victim):
                assert any(str(path) in str(one) for one in told for path in whole), (
                    f"seed {seed}: verify has not found it"
                )
        self.outcomes[kind_of(victim), damage.__name__, outcome] += 1
        shutil.rmtree(folder)

    def staged_trial(self, seed: int) -> None:
        """Damage a staged file between slots and sink: it is not delivered, and the epoch is done again."""
        rng = random.Random(seed)
        folder = self.folder / f"staged-{seed}"
        flow = self.kind.elsewhere(self.flow, folder)
        start(flow)
        damage, fatal, plain = rng.choice(DAMAGES), BEFORE + rng.randrange(AFTER), LocalOutlets.deliver
        victims = list[Path]()

        def damaged(self: LocalOutlets, outlet: Any, number: int, files: Any) -> Any:
            paths = [Path((self.staging(outlet).root or "").removeprefix("copy+file://"), one.name) for one in files]
            if number == fatal and paths:
                victims.extend(rng.sample(paths, min(len(paths), 2)))
                before = [path.read_bytes() for path in victims]
                damage(rng, victims[0], victims[-1])
                if [path.read_bytes() for path in victims] == before:
                    victims.clear()
            return plain(self, outlet, number, files)

        with mock.patch.object(LocalOutlets, "deliver", damaged):
            outcome = self._run(flow, dict.fromkeys(victims, b""), victims)
        assert outcome == ("refused" if victims else "harmless"), f"seed {seed}"
        start(flow)
        assert self.kind.finished(flow) == self.expected, f"seed {seed}"
        self.outcomes["staged/.parquet", damage.__name__, outcome] += 1
        shutil.rmtree(folder)

    def delivered_trial(self, seed: int) -> None:
        """Damage results that were delivered: they are the user's, so it is said, and the flow goes on."""
        rng = random.Random(seed)
        folder = self.folder / f"delivered-{seed}"
        flow = self.kind.elsewhere(self.flow, folder)
        known = {one.name for e in Manifest.epochs(Files(flow._root)) for own in delivered(flow, e) for one in own}
        paths = sorted(path for path in folder.rglob("part-*.parquet") if path.name in known)
        victim, other = rng.sample(paths, 2)
        damage, whole = rng.choice(DAMAGES), {path: path.read_bytes() for path in paths}
        damage(rng, victim, other)
        changed = {path.name for path in paths if path.read_bytes() != whole[path]}
        checkpoint, there = Files(flow._root), Files(str(victim.parent))
        with mock.patch.object(foreign, "Files", return_value=there):  # manifests name the folder that was copied
            said = " ".join(foreign_changes(checkpoint))
        assert all(name in said for name in changed), f"seed {seed}: {changed} is not said"
        for path, content in whole.items():
            path.write_bytes(content)
        start(flow)
        assert self.kind.finished(flow) == self.expected, f"seed {seed}"
        self.outcomes["delivered/.parquet", damage.__name__, "said" if changed else "harmless"] += 1
        shutil.rmtree(folder)

    def _run(self, flow: Any, whole: dict[Path, bytes], victims: list[Path] | None = None) -> str:
        try:
            if victims is None:
                start(flow)
            found = self.kind.finished(flow)
        except BraidstreamError as error:
            named = any(str(path) in str(error) for path in victims or whole)
            if not named:
                raise AssertionError(f"{victims or list(whole)} is not named") from error
            return "refused"
        assert found == self.expected, f"a wrong answer after damage to {victims or list(whole)}"
        return "harmless"

    def _chosen(self, rng: random.Random, folder: Path) -> tuple[Path, Path, Callable[..., None]]:
        kinds: dict[str, list[Path]] = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size and path.suffix != ".parquet":
                kinds.setdefault(kind_of(path), []).append(path)
        damage = rng.choice(DAMAGES)
        several = {kind: own for kind, own in kinds.items() if len(own) > 1 or damage is not swap}
        own = several[rng.choice(sorted(several))]
        victim = rng.choice(own)
        return victim, rng.choice([path for path in own if path != victim] or [victim]), damage


def delivered(flow: Any, epoch: int) -> Any:
    return Manifest.read(Files(flow._root), epoch).delivered.values()


def start(flow: Any) -> None:
    """As a launch does: the log fits the manifests, and then the rest."""
    checkpoint = Checkpoint(flow._root)
    checkpoint.check_offsets(checkpoint.latest().epoch)
    flow.restart()
