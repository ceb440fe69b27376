"""The site's made pages say all that the code says, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import braidstream
from tools.site.__main__ import elsewhere
from tools.site.api_page import api_page
from tools.site.cli_page import cli_page
from tools.site.hooks import examples_page, turned
from tools.site.job_file_page import job_file_page
from tools.site.messages_page import messages, messages_page

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "braidstream"


def test_every_public_name_is_in_the_reference() -> None:
    page = api_page(PACKAGE)
    for name in set(braidstream.__all__) - {"__version__"}:
        assert f"### {name}\n" in page
        assert f"### {name}\n\nIn `" not in page, f"{name} was not found in the sources"
    assert re.search(r"^- `\.files\(name: str, path: .*`: ", page, re.MULTILINE)
    assert "controller: Controller | bool | None=True" in page
    query = page.partition("### ContinuousQuery\n")[2].partition("###")[0]
    assert re.findall(r"^- `\.(\w+)\(", query, re.MULTILINE) == ["to", "table", "late"]
    assert "MetricsListener(registry: CollectorRegistry | None=None)" in page


def test_every_command_and_option_is_in_the_reference() -> None:
    page = cli_page()
    for command in ("new", "doctor", "run", "check", "explain", "state", "plan", "bench", "paper"):
        assert f"## braid {command}\n" in page
    assert "| `--wait` |" in page
    assert "    braid run job.toml --json > progress.jsonl" in page


def test_the_job_file_has_every_table_and_its_lines() -> None:
    page = job_file_page()
    for line in ('checkpoint = "ck"', "controller = false", 'time = "ts"', "certainty = 0.0"):
        assert line in page


def test_messages_are_read_from_the_sources(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'raise InputError(f"there is no use {use.name!r}", "one of " + "these", fix=f"did you mean {near(x)}?")\n'
        'raise RunError(wrong)\nraise DamagedState(path, "the manifest is missing")\n'
    )
    found = messages(tmp_path)
    assert [(one.kind, one.wrong, one.expected, one.fix) for one in found] == [
        ("InputError", "there is no use {name}", "one of these", "did you mean {near}?"),
        ("DamagedState", "{path}: the manifest is missing", "", ""),
    ]
    assert len(messages(PACKAGE)) > 200
    assert "`there is no job file {path}`" in messages_page(PACKAGE)


@pytest.mark.parametrize(
    ("folder", "page", "link", "expected"),
    [
        ("", "index.md", "[g](docs/guide.md#sinks)", "[g](guide.md#sinks)"),
        ("", "index.md", "![p](docs/images/a.png)", "![p](images/a.png)"),
        ("docs", "guide.md", "[r](../README.md#a-job-file)", "[r](index.md#a-job-file)"),
        ("docs/howto", "howto/joins.md", "[e](../../examples/one_line.py)", "[e](../examples.md#one-linepy)"),
        ("docs", "guide.md", "[t](../tools/docs.py)", "t"),
        ("docs", "guide.md", "[w](https://example.org/x)", "[w](https://example.org/x)"),
        ("docs", "guide.md", "```text\n[t](../tools/docs.py)\n```", "```text\n[t](../tools/docs.py)\n```"),
        ("docs", "guide.md", "<!-- no-run: a fragment -->", "*Not run by the checks: a fragment.*\n"),
    ],
)
def test_links_are_turned_to_the_pages_of_the_site(folder: str, page: str, link: str, expected: str) -> None:
    assert turned(link, folder, page) == expected


def test_what_a_browser_would_fetch_is_found() -> None:
    html = '<a href="https://a.org">x</a><script src="https://b.org/x.js"></script><link rel="x" href="//c.org/y.css">'
    assert elsewhere(html) == ["https://b.org/x.js", "//c.org/y.css"]
    assert elsewhere('<link rel="canonical" href="https://a.org/"><img src="images/a.png">') == []


def test_every_example_is_on_its_page() -> None:
    page = examples_page(ROOT / "examples")
    for kind in ("*.py", "*.toml", "*.ipynb"):
        for file in (ROOT / "examples").glob(kind):
            assert f"## {file.name} " in page
    notebook = page.partition("## hot_key.ipynb")[2]
    assert "impressions and clicks, are joined on the ad" in notebook
    assert "    # # A hot key is split while you watch" in notebook
    assert '"cell_type"' not in notebook


def test_the_examples_of_real_uses_have_their_pictures_on_the_site() -> None:
    page = examples_page(ROOT / "examples")
    for use in ("attribution", "payments", "sensors", "trades", "near-duplicates"):
        assert f"(images/example-{use}.png)" in page
