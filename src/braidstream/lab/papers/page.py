"""The report's HTML: a summary with links, and a section for each paper with each figure beside what the paper says.

Invariant: everything is inside the page (pictures and style), nothing is fetched, no script runs; every text of a
result is escaped. A claim that did not hold, a run that failed and an experiment that was not run are shown as such.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from urllib.parse import quote

from braidstream.lab.papers.bibliography import BIBLIOGRAPHY, HOW, figure_name
from braidstream.lab.papers.plot import n_panels, svg
from braidstream.lab.papers.registry import PAPERS, Declaration, Series
from braidstream.lab.papers.results import Result

__all__ = ["page"]

Results = Mapping[tuple[str, str], Result]
MOST_ROWS = 60
ON_SPARK = "-spark"
"""How the figures that run on Spark end, beside the simulated or exact form of the same."""


def page(declared: Sequence[Declaration], results: Results) -> str:
    """The whole page: the declared experiments in order, each with its result if there is one."""
    style = resources.files("braidstream.lab.papers").joinpath("report.css").read_text(encoding="utf-8")
    body = [_head(declared, results), _summary(declared, results)]
    body += [_paper(name, [one for one in declared if one.paper == name], results) for name in PAPERS]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Braidstream: the papers' figures</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, body))
        + f"\n{_footer(results)}\n</body>\n</html>\n"
    )


def _head(declared: Sequence[Declaration], results: Results) -> str:
    counts = Counter(_status(one, results) for one in declared)
    order = ("held", "did not hold", "failed", "not run")
    words = {"held": "claims held", "did not hold": "did not hold", "failed": "failed to run", "not run": "not run"}
    scores = "".join(f"<div><b>{counts[s]}</b>{words[s]}</div>" for s in order if counts[s] or s in order[:2])
    used = {one.how for one in declared}
    kinds = " ".join(f"<i>{kind}</i>: {_text(meaning)}." for kind, meaning in HOW.items() if kind in used)
    return f"""<header>
<h1>The papers&#8217; figures, measured again</h1>
<p class="lead">Braidstream is one system built from the ideas of five papers. This page sets every figure and table in
which they report a result beside what the same mechanism does here: the claim in our words, a check that can fail, the
numbers the paper states next to ours, and, where the two differ, why.</p>
<div class="scores">{scores}</div>
<p class="meta">{kinds}</p>
<p class="meta">{_provenance(results)}</p>
</header>"""


def _provenance(results: Results) -> str:
    """On what the results were obtained: each distinct machine and set of versions once."""
    told = []
    for one in results.values():
        machine = ", ".join(f"{value} cores" if name == "cores" else value for name, value in one.machine.items())
        versions = ", ".join(f"{name} {value}" for name, value in one.versions.items())
        told.append(f"{machine}. {versions}.")
    kinds = {result.quick for result in results.values()}
    scale = {
        frozenset({True}): "All runs are quick ones: fewer points, and where a figure says so, smaller settings.",
        frozenset({False}): "All runs are full ones.",
    }.get(frozenset(kinds), "Some runs are quick ones; each figure says so.")
    return " ".join(_text(one) for one in [*dict.fromkeys(told), scale])


def _summary(declared: Sequence[Declaration], results: Results) -> str:
    rows = []
    for name in PAPERS:
        some = [one for one in declared if one.paper == name]
        paper = BIBLIOGRAPHY[name]
        rows.append(
            f'<tr class="group"><td colspan="5"><a href="#{name}">{_text(paper.short)}</a> &#183; '
            f"{_text(paper.title)}</td></tr>"
        )
        rows += [_summary_row(one, results) for one in some]
        if not some:
            rows.append('<tr><td colspan="5">no experiment yet</td></tr>')
    return (
        '<table class="summary"><thead><tr><th>figure</th><th>what is claimed</th><th class="optional">how</th>'
        '<th class="n optional">paper / here</th><th>verdict</th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table>"
    )


def _summary_row(one: Declaration, results: Results) -> str:
    result = results.get((one.paper, one.figure))
    pairs = list(_pairs(result)) if result else []
    shown = "<br>".join(f"{_number(stated)} / {_number(ours)}" for _, stated, ours in pairs[:2])
    link = f'<a href="#{_anchor(one)}">{_text(figure_name(one.figure))}</a>'
    return (
        f"<tr><td>{link}</td><td>{_text(_sentence(one.claim))}</td>"
        f'<td class="optional">{one.how}</td><td class="n optional">{shown}</td><td>{_verdict(one, results)}</td></tr>'
    )


def _paper(name: str, declared: Sequence[Declaration], results: Results) -> str:
    paper = BIBLIOGRAPHY[name]
    cited = ". ".join(filter(None, [paper.authors, paper.title, paper.venue]))
    forms = {one.figure: one for one in declared}
    alone = [one for one in declared if one.figure.removesuffix(ON_SPARK) == one.figure or not _other(one, forms)]
    shown = (_pair(one, other, results) if (other := _other(one, forms)) else _article(one, results) for one in alone)
    body = "\n".join(shown) or "<p>No experiment yet.</p>"
    head = f'<h2>{_text(paper.short)}</h2>\n<p class="cited">{_text(cited)}.</p>'
    return f'<section id="{name}">\n{head}\n{body}\n</section>'


def _other(one: Declaration, forms: Mapping[str, Declaration]) -> Declaration | None:
    """The other form of a figure: on Spark, or not."""
    is_spark = one.figure.endswith(ON_SPARK)
    return forms.get(one.figure.removesuffix(ON_SPARK) if is_spark else one.figure + ON_SPARK)


def _pair(one: Declaration, on_spark: Declaration, results: Results) -> str:
    """The two forms of a figure side by side, and whether they agree."""
    both = f"{_article(one, results)}\n{_article(on_spark, results)}"
    return f'<div class="pair">\n{both}\n{_agreement(one, on_spark, results)}\n</div>'


def _agreement(one: Declaration, on_spark: Declaration, results: Results) -> str:
    found = [results.get((form.paper, form.figure)) for form in (one, on_spark)]
    if None in found:
        return '<p class="agree"><b>Side by side</b>One of the two was not run.</p>'
    is_alike = len({_status(form, results) for form in (one, on_spark)}) == 1
    forms = zip((one, on_spark), found, strict=True)
    told = [f"{form.how}: {_status(form, results)}{_failing(result)}" for form, result in forms]
    words = f"The two forms {'agree' if is_alike else 'disagree'}. {'; '.join(told)}."
    return f'<p class="agree{"" if is_alike else " apart"}"><b>Side by side</b>{_text(words)}</p>'


def _failing(result: Result | None) -> str:
    failing = [check.what for check in result.outcome.checks if check.word == "no"] if result else []
    return f" ({', '.join(failing)})" if failing else ""


def _article(one: Declaration, results: Results) -> str:
    result = results.get((one.paper, one.figure))
    title = _text(one.title[:1].upper() + one.title[1:])
    heading = f'<h3><span class="number">{_text(figure_name(one.figure))}</span>{title}</h3>'
    verdict = _verdict(one, results)
    if result is None:
        asked = f"<code>braid paper {_text(one.name)}</code>"
        body = (
            f'<div><p class="claim">{_text(_sentence(one.claim))} {verdict}</p><p class="told">Run {asked}.</p></div>'
        )
        return f'<article id="{_anchor(one)}">\n{heading}\n{body}\n</article>'
    declared = result.declared
    wide = " class=wide" if declared.form != "table" and n_panels(result.outcome) > 1 else ""
    claim = f'<p class="claim">{_text(_sentence(declared.claim))}</p><p class="claim">{verdict}</p>'
    check, rest = _part("Check", [_sentence(declared.check)] if declared.check else []), _told(result)
    break_ = "</div><div>" if wide else ""
    text = f"<div>{claim}{_beside(result)}{check}{break_}{rest}</div>"
    return (
        f'<article id="{_anchor(one)}"{wide}>\n{heading}\n{_picture(result)}\n{text}\n{_checks(result)}'
        f"{_details(result)}\n</article>"
    )


def _picture(result: Result) -> str:
    declared, series = result.declared, result.outcome.series
    if not series:
        return f"<figure><pre>{_text(result.error)}</pre></figure>"
    if declared.form == "table":
        return f"<figure>{_table(declared, series)}</figure>"
    data = quote(svg(declared, result.outcome), safe=" /:;,=()@&!?'+*$-_.~")
    alt = f"{declared.y_label} against {declared.x_label}: {', '.join(dict.fromkeys(one.label for one in series))}"
    return f'<figure><img alt="{_text(alt)}" src="data:image/svg+xml,{_text(data)}"></figure>'


def _beside(result: Result) -> str:
    """The paper's stated numbers beside ours."""
    rows = [
        f'<tr><td>{_text(name)}</td><td class="n">{_number(stated)}</td><td class="n">{_number(ours)}</td></tr>'
        for name, stated, ours in _pairs(result)
    ]
    if not rows:
        return ""
    head = '<tr><th></th><th class="n">paper</th><th class="n">here</th></tr>'
    return f'<table class="beside"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


_CLASSES = {"yes": "held", "no": "did-not-hold", "shown": "not-run"}


def _checks(result: Result) -> str:
    """What the verdict was computed from: ours beside the paper's, how far apart they may be, and whether they are."""
    rows = [
        f'<tr><td><span class="verdict {_CLASSES[one.word]}">{one.word}</span>'
        f"</td><td>{_text(one.what)}</td><td>{_text(one.ours)}</td><td>{_text(one.paper)}</td>"
        f"<td>{_text(one.tolerance)}</td></tr>"
        for one in result.outcome.checks
    ]
    if not rows:
        return ""
    head = "<tr><th></th><th>check</th><th>here</th><th>paper</th><th>may differ by</th></tr>"
    return f'<table class="checks"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


def _told(result: Result) -> str:
    declared, outcome = result.declared, result.outcome
    parts = [
        ("How", [f"{_sentence(declared.how)} {_sentence(declared.obtained or HOW[declared.how])}"]),
        ("Seen", outcome.notes),
        ("Differs", [declared.differs, *outcome.differs]),
    ]
    return "".join(_part(word, [_sentence(one) for one in some if one]) for word, some in parts)


def _part(word: str, told: Sequence[str]) -> str:
    if not told:
        return ""
    if len(told) == 1:
        return f'<p class="told"><b>{word}</b>{_text(told[0])}</p>'
    items = "".join(f"<li>{_text(one)}</li>" for one in told)
    return f'<div class="told"><b>{word}</b><ul>{items}</ul></div>'


def _details(result: Result) -> str:
    declared = result.declared
    run = {
        "run": f"{'quick' if result.quick else 'full'}, seed {result.seed}, {result.seconds:.1f} s, {result.finished}",
        **{name: _value(value) for name, value in declared.parameters.items()},
    }
    terms = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in run.items())
    data = "" if declared.form == "table" or not result.outcome.series else _table(declared, result.outcome.series)
    return f"<details><summary>Parameters, run and data</summary><dl>{terms}</dl>{data}</details>"


def _table(declared: Declaration, series: Sequence[Series]) -> str:
    """The measured numbers: a row for each series where they share few values of x, else a row for each point."""
    heads = list(dict.fromkeys(x for one in series for x in one.x))
    if len(heads) > 14:
        return _long_table(declared, series)
    cells = "".join(f'<th class="n">{_text(_value(x))}</th>' for x in heads)
    rows = [f"<tr><th>{_text(declared.x_label)}</th>{cells}</tr>"]
    for one in series:
        at = dict(zip(one.x, one.y, strict=True))
        values = "".join(f'<td class="n">{_number(at[x]) if x in at else ""}</td>' for x in heads)
        rows.append(f"<tr><td>{_text(_full_label(one))}</td>{values}</tr>")
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>'


def _long_table(declared: Declaration, series: Sequence[Series]) -> str:
    """Long series turned: a row for each value of x, thinned to what can be read."""
    heads = list(dict.fromkeys(x for one in series for x in one.x))
    step = math.ceil(len(heads) / MOST_ROWS)
    names = "".join(f'<th class="n">{_text(_full_label(one))}</th>' for one in series)
    rows = [f"<tr><th>{_text(declared.x_label)}</th>{names}</tr>"]
    found = [dict(zip(one.x, one.y, strict=True)) for one in series]
    for x in heads[::step]:
        values = "".join(f'<td class="n">{_number(at[x]) if x in at else ""}</td>' for at in found)
        rows.append(f'<tr><td class="n">{_text(_value(x))}</td>{values}</tr>')
    thinned = f"<p class=small>Every {step}th value of {len(heads)}.</p>" if step > 1 else ""
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>{thinned}'


def _full_label(one: Series) -> str:
    return f"{one.label}, {one.panel}" if one.panel else one.label


def _footer(results: Results) -> str:
    last = max((one.finished for one in results.values()), default="")
    return (
        '<footer class="small">Made by <code>braid paper report</code> from kept results'
        f"; the last one is of {_text(last)}. Pictures are drawn from the numbers in each figure&#8217;s data.</footer>"
    )


def _pairs(result: Result) -> Iterable[tuple[str, float, float]]:
    """Each stated number with ours; not a number where we have none."""
    ours = result.outcome.ours
    return ((name, value, ours.get(name, math.nan)) for name, value in result.declared.stated.items())


def _status(one: Declaration, results: Results) -> str:
    result = results.get((one.paper, one.figure))
    return result.status if result else "not run"


def _verdict(one: Declaration, results: Results) -> str:
    status = _status(one, results)
    return f'<span class="verdict {status.replace(" ", "-")}">{status}</span>'


def _anchor(one: Declaration) -> str:
    return f"{one.paper}-{one.figure}"


def _sentence(text: str) -> str:
    """With a capital (unless a formula comes first) and a full stop: claims and notes are written in either way."""
    begun = text if text[1:4] == " = " else text[:1].upper() + text[1:]
    return begun + ("" if text.endswith((".", ":", "?", "!")) else ".")


def _value(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(one) for one in value)
    return f"{value:,.10g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "&#8211;"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _text(text: str) -> str:
    return html.escape(text, quote=True)
