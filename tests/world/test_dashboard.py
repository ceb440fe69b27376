"""The dashboard in a browser: headless Chromium from Debian's packages, driven by Selenium.

Nothing here asserts a time: a page is waited for until it shows what it must, for at most `PATIENCE_S`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.cli.workshop import Workshop
from tests.watch.histories import Story

pytestmark = pytest.mark.world

PATIENCE_S = 60.0
_GROUPS = """
  const found = Bokeh.documents[0].get_model_by_name("groups").data;
  return Array.from(found["group"]).map((one, at) => [Number(one), Number(found["slot"][at])]);
"""
_EPOCH = """
  const shown = Bokeh.documents[0].get_model_by_name("times").data["epoch"]; return shown[shown.length - 1];
"""
_EPOCHS = 'return Array.from(Bokeh.documents[0].get_model_by_name("times").data["epoch"]).map(Number)'
_IDLE = "return window.Bokeh !== undefined && Bokeh.documents.length > 0 && Bokeh.documents[0].is_idle"
_TEXT = """
  const parts = [];
  const walk = (node) => { if (node.shadowRoot) walk(node.shadowRoot); if (node.nodeType === 3) parts.push(node.data);
    for (const one of node.childNodes || []) walk(one); };
  walk(document.body); return parts.join(" ");
"""


_WORDS = """
  const models = Array.from(Bokeh.documents[0]._all_models.values());
  return models.filter((one) => one.type === "Label" && one.visible).map((one) => one.text);
"""
NOTHING = {
    "no epoch yet": 3, "no state yet": 1, "no groups yet": 1, "no stream has a watermark yet": 1,
    "no row was late": 1, "complete: nothing was shed": 1,
}  # fmt: skip
"""What plots say that have nothing to draw, and how many say it."""


def chromium() -> Any:
    """A headless browser that keeps what was logged and asked for."""
    options = webdriver.ChromeOptions()
    for one in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(one)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.binary_location = "/usr/bin/chromium"
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = chromium()
    yield driver
    driver.quit()


class Watching:
    """`braid watch` in a process of its own."""

    def __init__(self, *checkpoints: Path) -> None:
        command = [sys.executable, "-m", "braidstream", "watch", *map(str, checkpoints), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def cpu_s(self) -> float:
        parts = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def until(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "the page never showed it"
        time.sleep(0.1)
    return found


def opened(browser: Any, url: str, theme: str = "light", width: int = 1280) -> None:
    browser.set_window_size(width, 1000)
    browser.get("about:blank")  # the page of the test before complains that its server has gone
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(f"{url}?theme={theme}")
    until(lambda: browser.execute_script(_IDLE))


def complaints(browser: Any) -> list[str]:
    """Errors on the console; Bokeh warns of plots that are empty so far ("could not set initial ranges")."""
    return [one["message"] for one in browser.get_log("browser") if one["level"] == "SEVERE"]


def asked(browser: Any) -> set[str]:
    """The places that the page has asked for something since it was opened, sockets included."""
    found = set()
    for entry in browser.get_log("performance"):
        told = json.loads(entry["message"])["message"]
        if told["method"] == "Network.requestWillBeSent":
            found.add(told["params"]["request"]["url"])
        elif told["method"] == "Network.webSocketCreated":
            found.add(told["params"]["url"].replace("ws://", "http://"))
    return {one for one in found if not one.startswith(("data:", "about:", "chrome"))}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 1920])
def test_the_page_loads_without_errors_and_asks_nobody_else(
    browser: Any, tmp_path: Path, theme: str, width: int
) -> None:
    Story(tmp_path / "ck").start().run(30, late=2).write()
    with Watching(tmp_path / "ck") as watching:
        opened(browser, watching.url, theme, width)
        until(lambda: "rows a second" in browser.execute_script(_TEXT))
        assert complaints(browser) == []
        places = asked(browser)
        assert any(one.startswith(f"{watching.url}ws") for one in places)
        assert [one for one in places if not one.startswith(watching.url)] == []
        sideways = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
        assert sideways <= 0


def test_every_panel_says_so_if_it_has_nothing_to_show(browser: Any, tmp_path: Path) -> None:
    Story(tmp_path / "ck").start(queries={}).write()
    with Watching(tmp_path / "ck") as watching:
        opened(browser, watching.url)
        text = until(lambda: (found := browser.execute_script(_TEXT)) and "nothing heavy" in found and found)
        for words in ("nothing was decided", "no watermark yet", "none of any stream", "nothing shed", "no query runs"):
            assert words in text
        assert Counter(browser.execute_script(_WORDS)) == NOTHING
        assert complaints(browser) == []


def test_a_page_of_many_slots_and_epochs_costs_little(browser: Any, tmp_path: Path) -> None:
    """1,000 epochs, 256 slots: for an epoch a second, 5% of a core is 50 ms of the server's processor time."""
    story = Story(tmp_path / "ck", slots=256, groups=2048).start()
    for _ in range(20):
        story.run(50).write()
    with Watching(tmp_path / "ck") as watching:
        opened(browser, watching.url)
        until(lambda: browser.execute_script(_EPOCH) == 999)
        spent = watching.cpu_s()
        for epoch in range(1000, 1020):
            story.run(1).write()
            until(lambda epoch=epoch: browser.execute_script(_EPOCH) == epoch)
        assert (watching.cpu_s() - spent) / 20 < 0.05
        assert complaints(browser) == []


def test_a_moved_group_changes_its_slot_on_the_page_within_two_epochs(browser: Any, tmp_path: Path) -> None:
    story = Story(tmp_path / "ck").start().run(5).write()
    with Watching(tmp_path / "ck") as watching:
        opened(browser, watching.url)
        assert dict(until(lambda: browser.execute_script(_GROUPS)))[9] == 1
        story.move(9, 2)
        story.run(1).write()
        until(lambda: dict(browser.execute_script(_GROUPS))[9] == 2)
        story.run(1).write()
        assert dict(browser.execute_script(_GROUPS))[9] == 2
        assert complaints(browser) == []


def test_two_flows_have_a_page_each(browser: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        Story(tmp_path / name).start(name=f"flow {name}").run(3).write()
    with Watching(tmp_path / "a", tmp_path / "b") as watching:
        opened(browser, f"{watching.url}flow2")
        until(lambda: "flow b" in browser.execute_script(_TEXT))


def answers(url: str) -> bool:
    try:
        with urlopen(url):
            return True
    except OSError:  # refused, or reset while it ended
        return False


def test_a_killed_flow_shows_its_last_epochs_and_why_it_ended(browser: Any, tmp_path: Path) -> None:
    """A real run with a page, which is killed with SIGKILL and looked at afterwards; its page ends with it."""
    shop = Workshop.make(tmp_path, files=40)
    shop.job(('epoch = "available"', 'epoch = "1 second"'))
    command = [sys.executable, "-m", "braidstream", "run", "job.toml", "--json", "--master", "local[2]", "--dashboard"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=shop.folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stderr is not None
    own_page = process.stderr.readline().split()[-1]
    epochs = [line for line, _ in zip(process.stdout, range(4), strict=False)]
    assert len(epochs) == 4
    until(lambda: any((shop.folder / "ck" / "history").glob("*.arrow")))
    with urlopen(own_page) as answer:
        assert "Braidstream" in answer.read().decode()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not answers(own_page))
    with Watching(shop.folder / "ck") as watching:
        opened(browser, watching.url)
        text = until(lambda: (found := browser.execute_script(_TEXT)) and "killed" in found and found)
        assert f"process {process.pid}" in text
        assert len(until(lambda: browser.execute_script(_GROUPS))) == 8
        shown = browser.execute_script(_EPOCHS)
        assert shown == list(range(len(shown)))
        assert len(shown) >= 3  # the last second may be lost


def test_nothing_but_this_machine_reaches_it_unless_asked(tmp_path: Path) -> None:
    Story(tmp_path / "ck").start().run(1).write()
    with Watching(tmp_path / "ck") as watching:
        assert watching.url.startswith("http://127.0.0.1:")
        with urlopen(watching.url) as answer:
            page = answer.read().decode()
        assert "cdn." not in page
        listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
        port = f"{int(watching.url.rstrip('/').rpartition(':')[2]):04X}"
        places = {one.split()[1].partition(":")[0] for one in listening if one.split()[1].endswith(f":{port}")}
        assert places == {"0100007F"}
