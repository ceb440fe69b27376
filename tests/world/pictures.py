"""The pictures of the dashboard in docs/images: of an invented history, in which something of every kind happens.

    python -m tests.world.pictures [FOLDER]

Writes a light and a dark one, 1280 pixels wide; other widths with `WIDTH=1920`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from braidstream.state.history import Deciding, HeavyWords, Words
from tests.watch.histories import Story
from tests.world.test_dashboard import Watching, chromium, complaints, opened, until

HEAVY = (
    HeavyWords("ad=17", 0.31, {"impressions[ad]": 41_200, "clicks[ad]": 9_300}, (2, 4), (0, 1, 2, 3, 4, 5, 6, 7)),
    HeavyWords("ad=4", 0.08, {"impressions[ad]": 9_200, "clicks[ad]": 1_200}, (1, 3), (2, 5, 6)),
)
DECIDED = (
    Deciding(
        "suppliers", "slot 1 is a supplier and yields group 9 to consumer slot 2",
        instructions=({"kind": "move", "group": 9, "slot": 2},), n_instructions=1,
    ),
    Deciding(
        "splitting", "group 3 of supplier slot 3 is too large to be placed well",
        instructions=({"kind": "split", "group": 3, "slot": 5},), n_instructions=1,
    ),
    Deciding(
        "merging", "groups 40 and 41 are buddies and small", "one adaptation at a time, and this epoch's is for load",
        ({"kind": "merge", "group": 40},), 1,
    ),
)  # fmt: skip
LATE = "stream clicks: 1.4% of its rows were late in this epoch; a delay of 12 seconds would have been enough"


def story(folder: Path) -> Story:
    """Groups that move and split, heavy keys, late rows, shedding, a query that comes, a process that was lost."""
    told = Story(folder).start(host="node1", process=4242, queries=_queries()).run(100)
    again = {"host": "node2", "process": 4711}
    told.mark("start", name="ads", **again, took_over=True, replays=100, queries=_queries("rare"))
    _run_by(told, **again)
    shed = {"complete": {"pairs": (0.95, 0.93, 0.97)}, "complete_so_far": {"pairs": (0.97, 0.95, 0.98)}}
    told.run(39, told=Words(heavy=HEAVY[:1], **shed), late=12)
    told.move(9, 2)
    told.split(3, 5)
    told.run(1, told=Words(heavy=HEAVY, decisions=DECIDED, warnings=(LATE,), **shed), late=80, pushed=True)
    return told.run(3, told=Words(heavy=HEAVY, **shed), pushed=True).write()  # what was placed anew is still outlined


def _run_by(told: Story, **who: object) -> None:
    """The lease is that of a process elsewhere, which is alive as long as its time to live lasts."""
    owner = next((Path(told.checkpoint.root) / "lease").glob("*/owner.json"))
    elsewhere = dict.fromkeys(("machine", "boot", "space"), "elsewhere")
    owner.write_text(json.dumps({**json.loads(owner.read_text()), **elsewhere, **who}))


def _queries(*more: str) -> dict[str, str]:
    window = "[RANGE 10 MINUTES]"
    text = f"SELECT * FROM impressions {window}, clicks {window} WHERE impressions.ad = clicks.ad"
    return {"pairs": text, **{name: text.replace("10 MINUTES", "1 MINUTE") for name in more}}


def main() -> None:
    """Draw them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "docs" / "images"
    with tempfile.TemporaryDirectory() as place:
        story(Path(place) / "ck")
        browser = chromium()
        try:
            with Watching(Path(place) / "ck") as watching:
                for theme in ("light", "dark"):
                    _draw(browser, watching.url, theme, folder / f"dashboard-{theme}.png")
        finally:
            browser.quit()


def _draw(browser: Any, url: str, theme: str, file: Path) -> None:
    width = int(os.environ.get("WIDTH", "1280"))
    opened(browser, url, theme, width)
    height = browser.execute_script("return document.documentElement.scrollHeight")
    frame = browser.execute_script("return outerHeight - innerHeight")
    browser.set_window_size(width, height + frame)
    until(lambda: browser.execute_script("return innerHeight") >= height)
    browser.execute_async_script("setTimeout(arguments[0], 1000)")  # plots are drawn anew
    browser.save_screenshot(str(file))
    print(f"{file.name}: {width} x {height}", *complaints(browser), flush=True)


if __name__ == "__main__":
    main()
