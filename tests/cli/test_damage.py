"""A damaged or missing file of the checkpoint stops the run with its name and the remedy, and destroys nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.workshop import Braid, Workshop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def _last(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[-1]


def _largest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: (path.stat().st_size, path.name))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


DAMAGE: dict[str, tuple[Callable[[Path], Path], Callable[[Path], None], str]] = {
    "the last manifest is missing": (lambda ck: _last(ck, "manifests/[0-9]*.root"), Path.unlink, "is missing"),
    "the last manifest is damaged": (lambda ck: _last(ck, "manifests/[0-9]*.root"), _flip, "is damaged"),
    "the last manifest is cut off": (lambda ck: _last(ck, "manifests/[0-9]*.root"), _cut, "is damaged"),
    "an older manifest is damaged": (lambda ck: sorted(ck.glob("manifests/[0-9]*.root"))[1], _flip, "is damaged"),
    "the last ledger is missing": (lambda ck: _last(ck, "manifests/*.ledger"), Path.unlink, "ledger is missing"),
    "the last ledger is damaged": (lambda ck: _last(ck, "manifests/*.ledger"), _flip, "ledger is damaged"),
    "the routing table is missing": (lambda ck: _last(ck, "manifests/*.routing"), Path.unlink, "table is missing"),
    "the routing table is damaged": (lambda ck: _last(ck, "manifests/*.routing"), _flip, "table is damaged"),
    "a section is missing": (
        lambda ck: _last(ck, "sections/*.section"),
        Path.unlink,
        "section of a manifest is missing",
    ),
    "a section is damaged": (lambda ck: _last(ck, "sections/*.section"), _flip, "section of a manifest is damaged"),
    "a section is cut off": (lambda ck: _last(ck, "sections/*.section"), _cut, "section of a manifest is damaged"),
    "a segment is missing": (lambda ck: _largest(ck, "segments/*.arrow"), Path.unlink, "is missing"),
    "a segment is cut off": (lambda ck: _largest(ck, "segments/*.arrow"), _cut, "bytes, its manifest says"),
    "the identity is missing": (lambda ck: ck / "flow.json", Path.unlink, "identity is missing"),
    "the identity is damaged": (lambda ck: ck / "flow.json", _cut, "identity is damaged"),
}


@pytest.mark.parametrize("command", ["check", "run", "run with other slots"])
@pytest.mark.parametrize(("choose", "damage", "told"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named_and_nothing_is_destroyed(
    braid: Braid,
    copied: Workshop,
    command: str,
    choose: Callable[[Path], Path],
    damage: Callable[[Path], None],
    told: str,
) -> None:
    victim = choose(copied.folder / "ck")
    damage(victim)
    job = copied.job(("slots = 2", "slots = 3")) if "other" in command else copied.job()
    before = copied.tree()
    outcome = braid(command.split(maxsplit=1)[0], job)
    assert outcome.code == 3, outcome
    assert str(victim) in outcome.err
    assert told in outcome.err
    assert "hint: restore" in outcome.err
    assert "nothing was changed" in outcome.err
    assert copied.tree() == before


def test_state_names_the_damage_too(braid: Braid, copied: Workshop) -> None:
    victim = _largest(copied.folder / "ck", "segments/*.arrow")
    victim.unlink()
    outcome = braid("state", copied.folder / "ck")
    assert outcome.code == 3
    assert str(victim) in outcome.err


def test_a_rollback_that_was_begun_is_told_by_check_too(braid: Braid, copied: Workshop) -> None:
    (copied.folder / "ck" / "rollback.json").write_text('{"epoch": 1, "last": 2}')
    before = copied.tree()
    for command in ("check", "run"):
        outcome = braid(command, copied.job())
        assert outcome.code == 3, outcome
        assert "a rollback to epoch 1 was begun and not finished" in outcome.err
        assert f"finish it: braid rollback {copied.folder / 'ck'} --to 1" in outcome.err
    assert copied.tree() == before


def test_damage_that_shows_only_while_running_stops_the_run(braid: Braid, workshop: Workshop) -> None:
    """A segment of the right size whose content is no Arrow file is found when its slot opens it."""
    braid("run", workshop.job(), "--quiet")
    victim = _largest(workshop.folder / "ck", "segments/*.arrow")
    victim.write_bytes(bytes(victim.stat().st_size))
    for name in "RS":
        files = sorted((workshop.folder / name).glob("*.parquet"))
        shutil.copy2(files[-1], files[-1].with_name("00003.parquet"))
    manifests, segments = workshop.tree("ck/manifests"), workshop.tree("ck/segments")
    outcome = braid("run", workshop.job())
    assert outcome.code == 3, outcome
    assert str(victim) in outcome.err
    assert "hint: restore the file from a copy" in outcome.err
    assert workshop.tree("ck/manifests") == manifests
    assert segments.items() <= workshop.tree("ck/segments").items()
