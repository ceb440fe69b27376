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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.control.overflow import Overflow
from braidstream.errors import BraidstreamError
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.state.checkpoint import Checkpoint
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


def flow_in(folder: Path, root: str | None = None) -> Harness:
    """Six epochs of a join of two streams, some of whose groups are pushed; with a log such as Spark writes."""
    inputs = {"q": [Indexed(name, name, ("k",), 3 * N) for name in "RS"]}
    flow = Harness(
        folder, dict.fromkeys("RS", SCHEMA), inputs, slots=2, keep=3, overflow=Overflow(6_000), leased=True, root=root
    )  # fmt: skip
    for number in range(BEFORE):
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
    other.folder, other._root, other._out = folder, str(folder / "ck"), str(folder)
    return other


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


class Campaign:
    """Trials on copies of one flow. Each file is as likely as its kind: there are many segments and one identity."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.flow = flow_in(folder / "flow")
        self.expected = finished(self._started("whole"))
        self.outcomes: Counter[tuple[str, str, str]] = Counter()

    def _started(self, name: str) -> Harness:
        flow = elsewhere(self.flow, self.folder / name)
        start(flow)
        return flow

    def trial(self, seed: int) -> None:
        """Damage a file; the flow refuses it by name, or goes on as if nothing were; then it is put right again."""
        rng = random.Random(seed)
        flow = elsewhere(self.flow, self.folder / f"trial-{seed}")
        victim, other, damage = self._chosen(rng, flow.folder)
        whole = {path: path.read_bytes() for path in (victim, other)}
        damage(rng, victim, other)
        is_same = all(path.read_bytes() == content for path, content in whole.items())
        told = verify(Checkpoint(flow._root)).damaged
        outcome = "harmless" if is_same else self._run(flow, whole)
        if outcome == "refused":
            for path, content in whole.items():
                path.write_bytes(content)
            start(flow)
            assert finished(flow) == self.expected, f"seed {seed}: something was destroyed"
            if victim.is_relative_to(flow._root) and "lease" not in kind_of(victim):
                assert any(str(path) in str(one) for one in told for path in whole), (
                    f"seed {seed}: verify has not found it"
                )
        self.outcomes[kind_of(victim), damage.__name__, outcome] += 1
        shutil.rmtree(flow.folder)

    def _run(self, flow: Harness, whole: dict[Path, bytes]) -> str:
        try:
            start(flow)
            found = finished(flow)
        except BraidstreamError as error:
            named = any(str(path) in str(error) for path in whole)
            if not named:
                raise AssertionError(f"{list(whole)} is not named") from error
            return "refused"
        assert found == self.expected, f"a wrong answer after damage to {list(whole)}"
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


def start(flow: Harness) -> None:
    """As a launch does: the log fits the manifests, and then the rest."""
    checkpoint = Checkpoint(flow._root)
    checkpoint.check_offsets(checkpoint.latest().epoch)
    flow.restart()
