"""Builds the site below build/site, strictly, and makes sure that its pages fetch nothing from elsewhere.

`python -m tools.site`; exit code 1 where a link leads nowhere, a page is not in the navigation, or something would be
fetched. `--serve` shows it on this machine instead. Cost: ten seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
_FETCHED = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?(?P<from>(?:https?:)?//[^\"\s>]+)", re.IGNORECASE
)


def main() -> int:
    """Build, then look at what was built."""
    mkdocs = [sys.executable, "-m", "mkdocs"]
    if "--serve" in sys.argv:
        return subprocess.call([*mkdocs, "serve"], cwd=ROOT)
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [*mkdocs, "build", "--strict"], cwd=ROOT, capture_output=True, text=True, check=False, env=quiet
    )
    said = (built.stdout + built.stderr).splitlines() if built.returncode else []
    pages = sorted(SITE.rglob("*.html"))
    fetched = [
        f"{page.name} fetches {place}" for page in pages for place in elsewhere(page.read_text(encoding="utf-8"))
    ]
    for line in [*(line for line in said if not line.startswith("INFO")), *fetched]:
        print(f"site: {line}")
    is_well = not built.returncode and not fetched
    print(f"site: {f'{len(pages)} pages in {SITE.relative_to(ROOT)}' if is_well else 'FAILED'}")
    return 0 if is_well else 1


def elsewhere(html: str) -> list[str]:
    """What a browser would fetch from other hosts to show a page; links that a reader may follow are none of it."""
    kept = re.sub(r"<link\b[^>]*rel=\"?canonical\"?[^>]*>", "", html)
    return [found["from"] for found in _FETCHED.finditer(kept)]


if __name__ == "__main__":
    sys.exit(main())
