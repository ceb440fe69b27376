"""A packed file that was changed anywhere is refused: its first line, which no checksum covers, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from braidstream.errors import DamagedState
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.packed import pack, unpack
from braidstream.state.verifying import verify
from tests.state.damage import flow_in


@pytest.mark.parametrize("n_last", [0, 3])
@pytest.mark.parametrize("n_names", range(1, 4))
def test_no_flipped_bit_of_a_packed_file_gives_other_values(n_last: int, n_names: int) -> None:
    """A column without values at the end: nothing else tells that those before it were read a byte too late."""
    numbers = np.arange(1000, 1005)
    columns = {"a" * n_names: numbers, "last": np.arange(n_last)}
    content = pack("routing", b'{"next_id": 7}', columns)
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            try:
                raw, found = unpack("routing", bytes(changed))
            except ValueError:  # msgspec's errors are such, too
                continue
            assert (bytes(raw), found.keys()) == (b'{"next_id": 7}', columns.keys()), (place, bit)
            assert (found["a" * n_names] == numbers).all(), (place, bit)


@pytest.mark.parametrize("damage", ["zeros after its first word", "no line", "another word"])
@pytest.mark.parametrize("kind", ["routing", "ledger"])
def test_a_damaged_first_line_is_refused_by_the_name_of_the_file(tmp_path: Path, kind: str, damage: str) -> None:
    flow = flow_in(tmp_path)
    routing, ledger = flow.manifest.routing, flow.manifest.ledger
    assert routing is not None
    assert ledger is not None
    name = routing[0].name if kind == "routing" else ledger.name
    victim = tmp_path / "ck" / name
    content = victim.read_bytes()
    first = content.index(b"\n")
    victim.write_bytes(
        {
            "zeros after its first word": content[:10] + bytes(len(content) - 10),
            "no line": content[:first] + content[first + 1 :].replace(b"\n", b" "),
            "another word": content[:first] + b" 1" + content[first:],
        }[damage]
    )
    assert [one.path for one in verify(Checkpoint(flow._root)).damaged] == [str(victim)]
    with pytest.raises(DamagedState) as caught:
        _ = Checkpoint(flow._root).latest().directory.next_id
    assert caught.value.path == str(victim)
