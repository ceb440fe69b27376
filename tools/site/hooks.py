"""MkDocs' hooks: pages that are made, and links that lead out of docs/.

The site has the README as its first page, the changelog, a page of examples with their sources, and the reference, none
of which is a file below docs/. Links are written for the repository, where they are read too; here those to the README
and the changelog lead to their pages, and what is nowhere on the site loses its link and keeps its text.

Invariant: nothing is written into the repository. Cost: seconds, most of them MkDocs' own.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from tools.site.api_page import api_page
from tools.site.cli_page import cli_page
from tools.site.job_file_page import job_file_page
from tools.site.messages_page import messages_page

__all__ = ["made_pages", "on_files", "on_page_markdown"]

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "examples": "examples.md"}
"""What of the repository is a page of the site."""
_LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]\n]*(?:\n[^\]\n]*)?)\]\((?P<target>[^)\s]+)\)")
_SKIPPED = re.compile(r"^<!-- no-run: (?P<reason>.*?) -->$", re.MULTILINE)
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    for name, text in made_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn the links of a page that lead out of docs/."""
    if page.file.src_uri in PAGES.values():
        return markdown  # turned when it was made
    return turned(markdown, posixpath.dirname(f"docs/{page.file.src_uri}"), page.file.src_uri)


def made_pages() -> dict[str, str]:
    """Every page that is made, by its place on the site."""
    package = ROOT / "src" / "braidstream"
    return {
        "index.md": turned((ROOT / "README.md").read_text(encoding="utf-8"), "", "index.md"),
        "changelog.md": turned((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "", "changelog.md"),
        "examples.md": examples_page(ROOT / "examples"),
        "reference/api.md": api_page(package),
        "reference/cli.md": cli_page(),
        "reference/job-file.md": job_file_page(),
        "reference/messages.md": messages_page(package),
    }


def turned(text: str, folder: str, page: str) -> str:
    """A text of the repository's `folder` as the page of that name, with its links turned; code stays as it is.

    Why a block is not run in the checks is told to readers too.
    """
    parts = _FENCED.split(_SKIPPED.sub(r"*Not run by the checks: \g<reason>.*\n", text))
    return "".join(
        part if at % 2 else _LINK.sub(lambda found: _turned(found, folder, page), part) for at, part in enumerate(parts)
    )


def _turned(link: re.Match[str], folder: str, page: str) -> str:
    target, _, anchor = link["target"].partition("#")
    if "://" in target or not target:
        return link[0]
    place = posixpath.normpath(posixpath.join(folder, target))
    there = PAGES.get(place) or (place.removeprefix("docs/") if place.startswith("docs/") else None)
    if there is None and place.startswith("examples/"):
        there, anchor = PAGES["examples"], posixpath.basename(place).replace("_", "-").replace(".", "")
    if there is None:
        return link["text"]
    relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
    return f"{link['mark']}[{link['text']}]({relative}{f'#{anchor}' if anchor else ''})"


def examples_page(folder: Path) -> str:
    """Every example with what it says of itself, its picture where it has one, and its source."""
    lines = ["# Examples\n", "Scripts and job files of the folder `examples`, with their sources.\n"]
    for file in sorted([*folder.glob("*.py"), *folder.glob("*.toml"), *folder.glob("*.ipynb")]):
        source = file.read_text(encoding="utf-8")
        about = ast.get_docstring(ast.parse(source)) if file.suffix == ".py" else ""
        if file.suffix == ".ipynb":
            about, source = _notebook(source)
        lines.append(f"## {file.name} {{ #{file.name.replace('_', '-').replace('.', '')} }}\n")
        lines += [(about or "").split("\n\n")[0] + "\n"] if about else []
        picture = f"images/example-{file.stem.replace('_', '-')}.png"
        lines += [f"![What {file.name} draws]({picture})\n"] if (ROOT / "docs" / picture).is_file() else []
        kind = {".toml": "toml"}.get(file.suffix, "python")
        lines.append(f'??? note "Source"\n\n{_indented(source, kind)}')
    return "\n".join(lines)


def _notebook(text: str) -> tuple[str, str]:
    """What a notebook says first, without its title, and its cells as a script with the words as comments."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    about = next((source for kind, source in cells if kind == "markdown"), "")
    about = "\n".join(line for line in about.splitlines() if not line.startswith("#")).strip()
    shown = [source if kind == "code" else re.sub("^", "# ", source, flags=re.MULTILINE) for kind, source in cells]
    return about, "\n\n".join(shown) + "\n"


def _indented(source: str, kind: str) -> str:
    fenced = f"```{kind}\n{source}```\n"
    return "".join(f"    {line}" if line.strip() else line for line in fenced.splitlines(keepends=True))
