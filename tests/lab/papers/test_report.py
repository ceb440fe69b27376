"""The report: self-contained, complete, honest about what did not hold; and it renders in Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from braidstream.lab.papers.plot import svg
from braidstream.lab.papers.registry import Check, Experiment, Outcome, Run, Series, judged
from braidstream.lab.papers.report import write
from braidstream.lab.papers.results import Result, attempt
from tests.lab.papers.invented import FAILS, HOLDS, HOLDS_NOT, LINES, PARTS, TABLE, invented

NOT_RUN = invented("fig9", Outcome(True, ()))
LONG = invented("fig10", Outcome(True, [Series("minutes", list(range(240)), [float(i) for i in range(240)])]))
RUN = [HOLDS, HOLDS_NOT, FAILS, PARTS, LONG, TABLE]
VOID = {"meta", "img", "br", "link", "hr"}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of six results and one experiment that was not run."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    write([*RUN, NOT_RUN], results_of(RUN), path)
    return path


def results_of(chosen: list[Experiment]) -> dict[tuple[str, str], Result]:
    return {(one.paper, one.figure): attempt(one, Run(quick=True)) for one in chosen}


class Page(HTMLParser):
    """Collects elements, texts and whether every element is closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_well_formed_and_needs_nothing_else(report: Path) -> None:
    page = Page(report.read_text())
    assert not page.open
    assert not {"script", "link", "iframe"} & {tag for tag, _ in page.elements}
    references = [value for _, held in page.elements for name, value in held.items() if name in ("src", "href")]
    assert all(value and value.startswith(("#", "data:image/svg+xml,")) for value in references)
    assert not re.search(r"url\((?!#)|@import", unquote(report.read_text()))


def test_every_link_of_the_summary_leads_somewhere(report: Path) -> None:
    page = Page(report.read_text())
    ids = [held["id"] for _, held in page.elements if "id" in held]
    links = {(held["href"] or "")[1:] for tag, held in page.elements if tag == "a"}
    assert len(ids) == len(set(ids))
    assert links <= set(ids)
    assert {f"wsj-{one.figure}" for one in [*RUN, NOT_RUN]} <= links


def test_verdicts_are_those_of_the_runs(report: Path) -> None:
    articles = dict(
        re.findall(r'<article id="wsj-(\w+)".*?<span class="verdict ([\w-]+)">', report.read_text(), re.DOTALL)
    )
    assert articles == {
        "fig5": "held",
        "fig6": "did-not-hold",
        "fig7": "failed",
        "fig8": "held",
        "fig9": "not-run",
        "fig10": "held",
        "table1": "held",
    }


def test_a_figure_shows_claim_numbers_notes_differences_and_parameters(report: Path) -> None:
    text = Page(report.read_text()).text
    for told in (
        "A & b < c.",
        "Delays rise.",
        "Seen <once>.",
        "Fitted on one point.",
        "Quick: smaller.",
        "RuntimeError: no [memory] left",
        "numpy",
        "seed 1",
    ):
        assert told in text, told
    assert re.search(r'delay \(s\)</td><td class="n">2</td><td class="n">1.6</td>', report.read_text())
    assert re.search(r'rate</td><td class="n">4,000</td><td class="n">&#8211;</td>', report.read_text())


def test_pictures_are_whole_and_light(report: Path) -> None:
    pictures = re.findall(r'src="data:image/svg\+xml,([^"]+)"', report.read_text())
    assert len(pictures) == 4
    for picture in pictures:
        text = unquote(picture)
        assert text.startswith("<svg")
        assert text.endswith("</svg>")
        assert len(picture) < 100_000
    assert sorted(path.name for path in report.parent.glob("*.png")) == [
        f"wsj-{name}.png" for name in ("fig10", "fig5", "fig6", "fig8", "table1")
    ]


def test_the_two_forms_of_a_figure_stand_side_by_side(tmp_path: Path) -> None:
    off = judged(LINES, [Check("the delay rises", False, "falls")])
    pairs = [(HOLDS, HOLDS.function(Run()), "agree"), (HOLDS, off, "disagree")]
    for one, other, said in pairs:
        beside = invented("fig5-spark", other, how="spark")
        write([one, beside], results_of([one, beside]), tmp_path / "report.html")
        text = (tmp_path / "report.html").read_text()
        inside = re.search(r'<div class="pair">(.*?)\n</div>\n', text, re.DOTALL)
        assert inside
        assert re.findall(r'<article id="wsj-([\w-]+)"', inside[1]) == ["fig5", "fig5-spark"]
        assert f"The two forms {said}." in inside[1]
    assert "spark: did not hold (the delay rises)" in text


def test_the_same_numbers_give_the_same_picture() -> None:
    outcome = HOLDS.function(Run())
    assert svg(HOLDS, outcome) == svg(HOLDS, outcome)


@pytest.fixture(scope="module")
def chromium() -> str:
    """A Chromium or Chrome; without one the page cannot be rendered here."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        pytest.skip("no Chromium or Chrome on the PATH: the report was not rendered (apt-get install chromium)")
    return found


LOOK = """<script>
window.addEventListener("load", () => {
  const images = [...document.images];
  const broken = images.filter(i => !i.complete || i.naturalWidth < 100).length;
  const wide = document.documentElement.scrollWidth > window.innerWidth ? "too wide" : "fits";
  const fetched = performance.getEntriesByType("resource").filter(r => !r.name.startsWith("data:")).length;
  document.title = `images ${images.length} broken ${broken} ${wide} fetched ${fetched}`;
});
window.addEventListener("error", e => console.error("seen", e.message));
</script></head>"""


@pytest.mark.parametrize("width", [1280, 600])
def test_the_page_renders_in_chromium_without_errors(width: int, report: Path, chromium: str, tmp_path: Path) -> None:
    """A copy with a script looks at what was loaded; the page itself has none."""
    copy = tmp_path / "page.html"
    copy.write_text(report.read_text().replace("</head>", LOOK, 1))
    common = (chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}")
    options = ("--enable-logging=stderr", "--virtual-time-budget=5000", f"--window-size={width},900", "--dump-dom")
    done = subprocess.run([*common, *options, copy.as_uri()], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "<title>images 4 broken 0 fits fetched 0</title>" in done.stdout
    assert "CONSOLE" not in done.stderr
