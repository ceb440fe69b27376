"""Each rule of the repository finds its breach in a small tree, leaves a sound tree alone, and holds here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.rules import RULES, Rule, Tree
from tools.rules.cycles import no_import_cycles
from tools.rules.dependencies import every_dependency_is_explained, every_import_is_declared
from tools.rules.imports import (
    nothing_is_unpickled,
    planes_keep_to_their_imports,
    pyspark_stays_where_it_is_allowed,
)
from tools.rules.layout import (
    LONGEST,
    a_file_name_means_one_thing,
    files_stay_short,
    modules_open_with_a_docstring,
    no_utils_module,
)
from tools.rules.options import the_options_page_is_as_made
from tools.rules.papers import the_papers_map_names_what_exists
from tools.rules.private import no_machine_paths, no_registry_hosts
from tools.rules.types import MOST_MAPPINGS, few_mappings_of_anything, no_cast_to_any, no_guessed_attributes

ROOT = Path(__file__).parents[2]
PACKAGE = "src/braidstream"
SLASH = "/"  # the texts below are put together, so that they do not break the rules themselves
DOT = "."

ROWS = "".join(f"| `{name}` | earns its place |\n" for name in ("hatchling", "numpy", "pyarrow", "pyspark", "ruff"))

BREACHES = [
    ("a pickle is read", nothing_is_unpickled, f"{PACKAGE}/state/manifest.py", "import pickle"),
    (
        "a pickle is read in a function",
        nothing_is_unpickled,
        f"{PACKAGE}/a.py",
        "def f():\n    from dill import load\n",
    ),
    ("NumPy reads pickles", nothing_is_unpickled, f"{PACKAGE}/a.py", "np.load(x, allow_pickle=True)"),
    ("a text is evaluated", nothing_is_unpickled, f"{PACKAGE}/a.py", "ev" + "al(text)"),
    ("a kernel imports pyspark", planes_keep_to_their_imports, f"{PACKAGE}/kernels/join.py", "import pyspark"),
    (
        "a kernel imports the control plane in a function",
        planes_keep_to_their_imports,
        f"{PACKAGE}/kernels/join.py",
        "def f():\n    from braidstream.control.load import Directory\n",
    ),
    (
        "a kernel imports state relatively",
        planes_keep_to_their_imports,
        f"{PACKAGE}/kernels/join.py",
        "from ..state import x",
    ),
    (
        "a kernel imports a plane from the package",
        planes_keep_to_their_imports,
        f"{PACKAGE}/kernels/a/b.py",
        "from braidstream import spark",
    ),
    (
        "a relative import of the package itself",
        planes_keep_to_their_imports,
        f"{PACKAGE}/kernels/join.py",
        "from .. import state",
    ),
    (
        "control imports Arrow",
        planes_keep_to_their_imports,
        f"{PACKAGE}/control/policy.py",
        "import pyarrow.compute as pc",
    ),
    (
        "control imports kernels for its types only",
        planes_keep_to_their_imports,
        f"{PACKAGE}/control/policy.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from braidstream.kernels import join\n",
    ),
    (
        "control imports by a string",
        planes_keep_to_their_imports,
        f"{PACKAGE}/control/policy.py",
        "import importlib\nimportlib.import_module('pyarrow')\n",
    ),
    (
        "a plan asks Spark",
        planes_keep_to_their_imports,
        f"{PACKAGE}/plan/planner.py",
        "from braidstream.spark.meaning import SparkMeaning",
    ),
    (
        "a plan knows of epochs",
        planes_keep_to_their_imports,
        f"{PACKAGE}/plan/explain.py",
        "from braidstream.epoch import spiller",
    ),
    (
        "a function's epoch asks Spark",
        planes_keep_to_their_imports,
        f"{PACKAGE}/functions/function_epoch.py",
        "from braidstream.spark.sinks import deliver",
    ),
    (
        "epochs know of functions",
        planes_keep_to_their_imports,
        f"{PACKAGE}/epoch/runner.py",
        "from braidstream.functions import nodes",
    ),
    ("state imports pyspark", planes_keep_to_their_imports, f"{PACKAGE}/state/files.py", "from pyspark.sql import Row"),
    (
        "the simulator imports the Spark plane",
        planes_keep_to_their_imports,
        f"{PACKAGE}/lab/sim/run.py",
        "import braidstream.spark",
    ),
    ("the simulator imports pyspark", pyspark_stays_where_it_is_allowed, f"{PACKAGE}/lab/sim/run.py", "import pyspark"),
    (
        "the overlay imports pyspark",
        pyspark_stays_where_it_is_allowed,
        f"{PACKAGE}/lab/overlay/chord.py",
        "import pyspark",
    ),
    ("a query imports pyspark", pyspark_stays_where_it_is_allowed, f"{PACKAGE}/query/model.py", "import pyspark.sql"),
    (
        "a module named like an allowed one",
        pyspark_stays_where_it_is_allowed,
        f"{PACKAGE}/query/__init__.py",
        "import pyspark",
    ),
    (
        "two modules that import each other, one of them in a function",
        no_import_cycles,
        f"{PACKAGE}/kernels/plan.py",
        "def f():\n    from braidstream.kernels.join import g\n",
    ),
    (
        "a circle through a package",
        no_import_cycles,
        f"{PACKAGE}/state/__init__.py",
        "from braidstream.epoch.step import f\n",
    ),
    (
        "a circle between folders for types only",
        no_import_cycles,
        f"{PACKAGE}/state/kept.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from braidstream.epoch import step\n",
    ),
    (
        "a circle at the top of a command",
        no_import_cycles,
        f"{PACKAGE}/cli/words.py",
        "from braidstream.cli.commands import show\n",
    ),
    ("a name that two planes use", a_file_name_means_one_thing, f"{PACKAGE}/slot/join.py", ""),
    ("a name on the table that occurs once", a_file_name_means_one_thing, f"{PACKAGE}/query/meaning.py", ""),
    ("a module named utils", no_utils_module, "tests/utils.py", ""),
    ("a package named utils", no_utils_module, f"{PACKAGE}/utils/text.py", ""),
    ("a module without a docstring", modules_open_with_a_docstring, f"{PACKAGE}/state/files.py", "x = 1"),
    ("an empty package", modules_open_with_a_docstring, f"{PACKAGE}/state/__init__.py", ""),
    ("a comment in place of a docstring", modules_open_with_a_docstring, f"{PACKAGE}/state/a.py", "# idea\nx = 1\n"),
    ("one line too many", files_stay_short, "tests/test_long.py", "\n" * (LONGEST + 1)),
    ("a home folder", no_machine_paths, "docs/guide.md", f"cd {SLASH}home/ann/braidstream"),
    ("a temporary folder in quotes", no_machine_paths, "examples/a.py", f'path = "{SLASH}tmp/out"'),
    ("the superuser's folder alone", no_machine_paths, "Makefile", f"HOME={SLASH}root"),
    ("a file address", no_machine_paths, "a.toml", f"path = 'file://{SLASH}work/x'"),
    ("a public registry", no_registry_hosts, "README.md", f"see https:{SLASH}{SLASH}pypi{DOT}org/project/x"),
    ("a private mirror", no_registry_hosts, "pip.conf", f"url = https:{SLASH}{SLASH}nexus.example.com/simple"),
    ("a map that names a missing module", the_papers_map_names_what_exists, "docs/papers.md", "`kernels/gone.py`"),
    (
        "a map that names a missing test file",
        the_papers_map_names_what_exists,
        "docs/papers.md",
        "`tests/test_gone.py::test_a`",
    ),
    (
        "a map that names a missing dotted module",
        the_papers_map_names_what_exists,
        "docs/papers.md",
        "`braidstream.gone`",
    ),
    ("a map that names a missing folder", the_papers_map_names_what_exists, "docs/papers.md", "`tests/gone/`"),
    ("a map that names nothing", the_papers_map_names_what_exists, "docs/papers.md", "WSJ II is `here`"),
    (
        "a mapping of anything too many",
        few_mappings_of_anything,
        f"{PACKAGE}/state/kept.py",
        "one: Mapping[str, Any]\n" * (MOST_MAPPINGS + 1),
    ),
    ("a cast to Any", no_cast_to_any, f"{PACKAGE}/state/kept.py", 'x = cast("Any", y)'),
    ("a cast to Any without quotes", no_cast_to_any, f"{PACKAGE}/state/kept.py", "x = cast(Any, y)"),
    ("an attribute that may be missing", no_guessed_attributes, f"{PACKAGE}/state/kept.py", 'x = getattr(y, "z", 1)'),
    ("a file on the table that guesses nothing", no_guessed_attributes, f"{PACKAGE}/spark/causes.py", "x = 1"),
    ("a page of options that is behind", the_options_page_is_as_made, "docs/options.md", "# Options\n"),
    ("an import of what is not required", every_import_is_declared, "tests/test_a.py", "import requests.adapters"),
    ("a dependency without a row", every_dependency_is_explained, "docs/dependencies.md", ROWS.replace("| `ruff`", "")),
]

SOUND = {
    f"{PACKAGE}/__init__.py": '"""The package."""\nimport pyspark\n',
    f"{PACKAGE}/kernels/join.py": '"""Joins."""\nimport numpy, pyarrow\nfrom . import plan\n',
    f"{PACKAGE}/kernels/plan.py": '"""A text that says `import pyspark` imports nothing."""\nsize = 1\n',
    f"{PACKAGE}/control/policy.py": '"""Decides."""\nfrom braidstream.control import directory\n',
    f"{PACKAGE}/spark/run.py": '"""Runs."""\nfrom pyspark.sql import SparkSession\nimport braidstream.kernels\n',
    f"{PACKAGE}/spark/causes.py": '"""Asks others."""\nx = getattr(error, "_desc", "")\nz = getattr(error, "args")\n',
    f"{PACKAGE}/epoch/step.py": '"""Steps."""\nfrom braidstream.state import kept\n',
    f"{PACKAGE}/cli/commands.py": '"""Shows."""\nfrom braidstream.cli import words\n',
    f"{PACKAGE}/cli/words.py": '"""Says."""\ndef late():\n    from braidstream.cli.commands import show\n',
    f"{PACKAGE}/slot/whole.py": '"""Has a part."""\nfrom braidstream.slot.part import Part\n',
    f"{PACKAGE}/slot/part.py": '"""Knows it."""\nif TYPE_CHECKING:\n    from braidstream.slot.whole import Whole\n',
    f"{PACKAGE}/lab/overlay/sweep.py": '"""Sweeps."""\nimport pyspark\n',
    "tests/kernels/test_join.py": "def test_it(): ...\n\nclass TestMore:\n    def test_that(self): ...\n",
    "tests/test_longest.py": "\n" * LONGEST,
    "docs/papers.md": """`t - W`, `kernels/join.py`, `src/braidstream/kernels/plan.py`, `braidstream.kernels.plan.size`,
        `braidstream.spark`, `tests/kernels/`, `tests/kernels/test_join.py::test_it`,
        `tests/kernels/test_join.py::TestMore::test_that`""",
    "docs/guide.md": "src%work%x ~%work ${HERE}%tmp %workloads https:%%a.org%home\n".replace("%", SLASH),
    "docs/dependencies.md": ROWS,
    "pyproject.toml": """
        build-system.requires = ["hatchling"]
        project.name = "x"
        project.dependencies = ["numpy>=2; python_version > '3'", "pyarrow", "pyspark>=4.1,<5"]
        project.optional-dependencies.dev = ["x[plot]", "ruff"]
        """,
    "picture.png": f"\0{SLASH}tmp{SLASH}x",
}


def written(root: Path, files: dict[str, str]) -> Tree:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Tree.of(root)


@pytest.mark.parametrize(("rule", "path", "text"), [case[1:] for case in BREACHES], ids=[case[0] for case in BREACHES])
def test_a_rule_finds_its_breach(rule: Rule, path: str, text: str, tmp_path: Path) -> None:
    findings = list(rule(written(tmp_path, SOUND | {path: text})))
    assert len(findings) == 1
    assert findings[0].path == path


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_leaves_a_sound_tree_alone(rule: Rule, tmp_path: Path) -> None:
    assert [str(finding) for finding in rule(written(tmp_path, SOUND))] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_has_a_test_of_its_breach(rule: Rule) -> None:
    assert rule in {case[1] for case in BREACHES}


@pytest.fixture(scope="module")
def whole() -> Tree:
    """This repository, read once for all rules."""
    return Tree.of(ROOT)


@pytest.mark.slow  # `make check` says it too
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_this_repository_keeps_the_rule(whole: Tree, rule: Rule) -> None:
    assert [str(finding) for finding in rule(whole)] == []


def test_a_row_for_a_package_that_is_not_required_is_found(tmp_path: Path) -> None:
    tree = written(tmp_path, SOUND | {"docs/dependencies.md": ROWS + "| `left-pad` | pads |\n"})
    findings = list(every_dependency_is_explained(tree))
    assert [str(f) for f in findings] == ["docs/dependencies.md:6: `left-pad` is not required by pyproject.toml"]


def test_relative_imports_are_ours(tmp_path: Path) -> None:
    tree = written(tmp_path, SOUND | {"examples/pair/a.py": "from . import b\nfrom .b import c\n"})
    assert [str(f) for f in every_import_is_declared(tree)] == []


def test_a_missing_test_in_an_existing_file_is_found(tmp_path: Path) -> None:
    tree = written(tmp_path, SOUND | {"docs/papers.md": "`kernels/join.py`\n`tests/kernels/test_join.py::test_gone`\n"})
    assert [finding.line for finding in the_papers_map_names_what_exists(tree)] == [2]


def test_a_long_file_needs_an_explanation_and_a_short_one_must_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.rules.layout.LONG_FILES", {"a.py": "a table of constants", "b.py": "was long once"})
    tree = written(tmp_path, {"a.py": "\n" * (LONGEST + 1), "b.py": "\n"})
    assert [finding.path for finding in files_stay_short(tree)] == ["b.py"]


def test_in_a_checkout_new_files_count_and_ignored_ones_do_not(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    tree = written(tmp_path, {".gitignore": "build/\n", "new.py": "", "build/made.py": ""})
    assert tree.files == (".gitignore", "new.py")
