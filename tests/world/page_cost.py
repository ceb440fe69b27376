"""What the dashboard's server costs for a large flow: 1,000 epochs of 256 slots in its history, and an epoch a second.

    python -m tests.world.page_cost [SECONDS]

The history is told, not run (`tests.watch.histories`); the page has one reader, who opens a session as a browser does
and draws nothing. Prints the share of a core that the server took while epochs came, and while none did.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bokeh.client import pull_session

from tests.watch.histories import Story
from tests.world.test_dashboard import Watching

N_EPOCHS, N_SLOTS, N_GROUPS = 1000, 256, 2048


def main() -> None:
    """Measure and print."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder) / "ck", slots=N_SLOTS, groups=N_GROUPS).start()
        for _ in range(N_EPOCHS // 10):
            story.run(10).write()
        with Watching(Path(folder) / "ck") as watching:
            began = watching.cpu_s()
            session = pull_session(url=watching.url)
            print(f"opened for {watching.cpu_s() - began:.2f} s of a core", flush=True)
            with session:
                for what, n_epochs in (("an epoch a second", 1), ("no epochs", 0)):
                    print(f"{what}: {_share(watching, story, seconds, n_epochs):.1%} of a core", flush=True)


def _share(watching: Watching, story: Story, seconds: int, n_epochs: int) -> float:
    began, spent = time.monotonic(), watching.cpu_s()
    for second in range(seconds):
        if n_epochs:
            story.run(n_epochs).write()
        time.sleep(max(began + second + 1 - time.monotonic(), 0))
    return (watching.cpu_s() - spent) / (time.monotonic() - began)


if __name__ == "__main__":
    main()
