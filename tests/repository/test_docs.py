"""The documentation's code blocks: which ones run, in which order, and what happens when one fails or hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs import EXAMPLES, blocks, check_examples, check_file, main

FENCE = "```"


def fenced(language: str, text: str, mark: str = "") -> str:
    above = f"<!-- {mark} -->\n" if mark else ""
    return f"{above}{FENCE}{language}\n{text}\n{FENCE}\n\n"


def page(folder: Path, *parts: str) -> Path:
    file = folder / "page.md"
    file.write_text("# A page\n\n" + "".join(parts))
    return file


def test_blocks_carry_their_language_text_place_and_mark() -> None:
    text = (
        "intro\n" + fenced("python", "x = 1\n\ny = 2") + fenced("toml", "a = 1", "file: job.toml") + fenced("", "plain")
    )
    found = blocks(text)
    assert [(b.language, b.text, b.line, b.mark, b.name) for b in found] == [
        ("python", "x = 1\n\ny = 2\n", 3, "", ""),
        ("toml", "a = 1\n", 10, "file", "job.toml"),
        ("", "plain\n", 14, "", ""),
    ]


def test_a_block_inside_a_longer_fence_is_text() -> None:
    assert [b.language for b in blocks("````markdown\n```python\n1 / 0\n```\n````\n")] == ["markdown"]


@pytest.mark.parametrize(
    ("language", "mark", "runs"),
    [
        ("python", "", True),
        ("python", "no-run", False),
        ("toml", "", False),
        ("toml", "run", True),
        ("console", "", False),
        ("console", "run", True),
        ("text", "file: a.txt", True),
        ("text", "run", False),
    ],
)
def test_which_blocks_run(language: str, mark: str, runs: bool) -> None:
    assert [block.runs for block in blocks(fenced(language, "x", mark))] == [runs]


def test_a_page_without_blocks_passes(tmp_path: Path) -> None:
    assert check_file(page(tmp_path)) == (True, "no blocks to run")


@pytest.mark.parametrize("language", ["python", "toml", "console", "sh", "bash", "sql", "json", "scala"])
def test_code_that_does_not_run_must_say_why(language: str, tmp_path: Path) -> None:
    silent = check_file(page(tmp_path, fenced(language, "x", "no-run")))
    assert silent[0] is False
    assert "say why" in silent[1]
    assert check_file(page(tmp_path, fenced(language, "x", "no-run: it needs a server"))) == (True, "1 skipped")


@pytest.mark.parametrize("fence", ["  ```bash\n  x\n  ```\n", "~~~sh\nx\n~~~\n", "``` sh title=x\nx\n```\n"])
def test_code_is_found_however_it_is_fenced(fence: str, tmp_path: Path) -> None:
    assert check_file(page(tmp_path, f"- a list\n\n{fence}"))[0] is False


def test_blocks_share_names_and_an_empty_folder_and_skipped_ones_are_counted(tmp_path: Path) -> None:
    file = page(
        tmp_path,
        fenced("python", "from pathlib import Path\nassert not list(Path.cwd().iterdir())\nx = 20"),
        fenced("python", "1 / 0", "no-run: it fails"),
        fenced("text", "22", "file: more.txt"),
        fenced("python", "assert x + int(Path('more.txt').read_text()) == 42"),
    )
    passed, report = check_file(file)
    assert passed, report
    assert report.startswith("3 run, 1 skipped, ")
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_a_failing_block_is_shown_with_its_line_in_the_page(tmp_path: Path) -> None:
    passed, report = check_file(page(tmp_path, fenced("python", "x = 1\nassert x == 2")))
    assert not passed
    assert "AssertionError" in report
    assert 'File "page.md", line 5' in report


def test_a_page_that_hangs_is_ended_at_the_limit(tmp_path: Path) -> None:
    hanging = fenced("python", "import threading\nprint('waiting', flush=True)\nthreading.Event().wait()")
    passed, report = check_file(page(tmp_path, hanging), limit_s=2)
    assert not passed
    assert report.startswith("not finished after 2 s")


def test_console_lines_run_the_command(tmp_path: Path) -> None:
    passed, report = check_file(page(tmp_path, fenced("console", "$ braid --version\nbraid 0.0", "run")))
    assert passed, report


@pytest.mark.parametrize(
    ("language", "text", "complaint"),
    [
        ("console", "$ braid no-such-command", "ended with exit code 2"),
        ("console", "$ rm -r x", "only braid is run here, not 'rm'"),
        ("console", "braid --version", "no line starts with"),
        ("toml", "[no-such-table]", "'braid run job.toml' ended with exit code 2"),
    ],
)
def test_a_wrong_command_fails_the_page(language: str, text: str, complaint: str, tmp_path: Path) -> None:
    passed, report = check_file(page(tmp_path, fenced(language, text, "run")))
    assert not passed
    assert complaint in report


def test_a_file_mark_without_a_name_fails_the_page(tmp_path: Path) -> None:
    passed, report = check_file(page(tmp_path, fenced("toml", "a = 1", "file")))
    assert not passed
    assert "names no file" in report


def test_one_failing_page_makes_the_exit_code_1_and_the_others_still_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = page(tmp_path, fenced("python", "1 / 0"))
    good = tmp_path / "second.md"
    good.write_text(fenced("python", "1 / 1"))
    assert main([str(bad), str(good)]) == 1
    assert "second.md: 1 run, 0 skipped" in capsys.readouterr().out


def test_examples_run_one_after_the_other_and_a_wrong_answer_fails_them(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text("if __name__ == '__main__':\n    print('verified')\n")
    wrong.write_text("if __name__ == '__main__':\n    assert 1 + 1 == 3\n")
    assert check_examples([right, right])[1].startswith("2 run, ")
    passed, report = check_examples([right, wrong])
    assert not passed
    assert "wrong.py:" in report
    assert "AssertionError" in report


def test_the_examples_that_are_run_are_there() -> None:
    folder = Path(__file__).parents[2] / "examples"
    assert all("assert " in (folder / name).read_text() for name in EXAMPLES)
