"""Tables for people: in the terminal, as Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from wherefrom.data.example import titled
from wherefrom.errors import InvalidOption
from wherefrom.evaluation.clock import span
from wherefrom.evaluation.run import Compared, Run
from wherefrom.evaluation.summary import RECORDS, SUMMARY_CSV, Key, count_reasons
from wherefrom.extras import need
from wherefrom.metric.correlation import Summary
from wherefrom.metric.names import metric_of

Rows = list[list[str]]  # the heading first
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\^{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}


def export(run: Run, form: str, *, layers: bool = False) -> str:
    """The summary of a run as csv (every number), md or latex (a table of means)."""
    if form == "csv":
        run.table("summary")  # says what is wrong with a run that is not finished
        with run.reading(SUMMARY_CSV):
            if written := (run.path / SUMMARY_CSV).read_text(encoding="utf-8"):
                return written
            raise ValueError("it is empty")
    return _written(means(run), form) + ("\n" + _written(by_layer(run), form) if layers and by_layer(run)[1:] else "")


def export_comparison(compared: Sequence[Compared], form: str) -> str:
    return _written(comparison(compared), form)


def means(run: Run) -> Rows:
    """A row for each method, a column for each metric; `mean ± half the 99 % interval`, the best one marked."""
    summary = run.summary
    whole = _answers(summary)
    metrics = list(dict.fromkeys(key.metric for key in whole))
    methods = list(dict.fromkeys(key.method for key in summary if metric_of(key.metric).probe is None or key in whole))
    marked = {metric: _best(metric, whole) for metric in metrics}
    rows = [["method", *metrics]]
    for method in methods:
        cells = [(metric, whole.get(Key(method, metric, None))) for metric in metrics]
        rows.append([method, *(_cell(found, marked[metric] == method) for metric, found in cells)])
    return rows


def _answers(summary: dict[Key, Summary]) -> dict[Key, Summary]:
    """What each metric says of the final scores or, where it has layers alone, of the last layer."""
    found: dict[Key, Summary] = {}
    for metric in dict.fromkeys(key.metric for key in summary):
        mine = {key: each for key, each in summary.items() if key.metric == metric}
        layers = [key.layer for key in mine if key.layer is not None]
        answered = any(key.layer is None and each.count for key, each in mine.items())
        layer = None if answered or not layers else max(layers)
        name = metric if layer is None else f"{metric} {metric_of(metric).at} {layer}"
        found |= {Key(key.method, name, None): each for key, each in mine.items() if key.layer == layer}
    return found


def by_layer(run: Run, digits: int = 3) -> Rows:
    """A row for each metric and method, a column for each layer."""
    summary = run.summary
    layers = sorted({key.layer for key in summary if key.layer is not None})
    pairs = dict.fromkeys((key.metric, key.method) for key in summary if key.layer is not None)
    rows = [["metric", "method", *map(str, layers)]]
    for metric, method in pairs:
        found = [summary.get(Key(method, metric, layer)) for layer in layers]
        rows.append([metric, method, *("" if each is None else f"{each.mean:.{digits}f}" for each in found)])
    return rows


def comparison(compared: Sequence[Compared]) -> Rows:
    """A row for each comparison; a column for the layer where there are any."""
    layered = any(each.layer is not None for each in compared)
    named = any(each.method for each in compared)
    head = ["metric", *(["layer"] if layered else []), *(["method"] if named else [])]
    head += ["first", "second", "difference", "99 % interval"]
    rows = [[*head, "p (t)", "p (W)", "d", "n"]]
    for each in compared:
        found, layer = each.found, ["" if each.layer is None else str(each.layer)] if layered else []
        interval = f"{_signed(found.interval[0])} {_signed(found.interval[1])}"
        chances = (f"{found.t_p:.1g}", f"{found.wilcoxon_p:.1g}", f"{found.effect:.2f}", str(found.count))
        layer += [each.method] if named else []
        rows.append([each.metric, *layer, each.first, each.second, _signed(found.difference), interval, *chances])
    return rows


def legend(compared: Sequence[Compared]) -> str:
    """What the columns of a comparison mean."""
    return (
        f"difference: the mean over n examples of first − second, with its bootstrap interval. p (t), p (W): of the "
        f"paired t test and of Wilcoxon's signed-rank test, corrected by Holm for all {len(compared)} comparisons "
        f"here. d: the mean difference in standard deviations of the differences (Cohen's d_z)."
    )


def _signed(value: float) -> str:
    """Three decimals; what they would show as 0 and is none, by its size."""
    return f"{value:+.3f}" if not value or abs(value) >= 5e-4 else f"{value:+.1e}"


def _best(metric: str, whole: dict[Key, Summary]) -> str | None:
    """The method that does best; none where no direction is better."""
    other = metric.partition(" against ")[2]  # a correlation is best towards where that one is
    better = metric_of(other or metric).better
    means = [(each.mean, key.method) for key, each in whole.items() if key.metric == metric and each.count]
    if not better or len(means) < 2:
        return None
    return (max if better == "higher" else min)(means)[1]


def _cell(found: Summary | None, best: bool) -> str:
    if found is None or not found.count:
        return "–"
    # What rounds to nothing says how small it is; a single value has no interval.
    form = ".3f" if not found.mean or max(abs(found.mean), found.interval) >= 5e-4 else ".0e"
    text = f"{found.mean:{form}}" + (f" ± {found.interval:{form}}" if found.interval == found.interval else "")
    text += f" (n = {found.count})" if found.undefined else ""  # a mean over fewer examples than its neighbours
    return f"**{text}**" if best else text


# Forms ----------------------------------------------------------------------------------------------------


def _written(rows: Rows, form: str) -> str:
    forms: dict[str, Callable[[Rows], str]] = {"csv": _csv, "md": _markdown, "latex": _latex}
    if form not in forms:
        raise InvalidOption(f"unknown format {form!r}; expected one of {', '.join(forms)}")
    return forms[form](rows)


def _csv(rows: Rows) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[cell.strip("*") for cell in row] for row in rows])
    return text.getvalue()


def _markdown(rows: Rows) -> str:
    lines = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    ruled = [lines[0], ["---"] * len(rows[0]), *lines[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in ruled)


def _latex(rows: Rows) -> str:
    def cell(text: str) -> str:
        plain = "".join(LATEX.get(char, char) for char in text.strip("*"))
        plain = plain.replace("±", r"$\pm$").replace("–", "--")
        plain = re.sub(r"^-(?=\d)", "$-$", plain)  # in text it would be a hyphen
        return rf"\textbf{{{plain}}}" if text.startswith("**") else plain

    lines = [" & ".join(map(cell, row)) + r" \\" for row in rows]
    body = [lines[0], r"\midrule", *lines[1:]]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}"
    return "\n".join([begin, r"\toprule", *body, r"\bottomrule", r"\end{tabular}", ""])


def show(run: Run, *, layers: bool = False) -> None:
    """What a run is, its means, and what failed."""
    from rich.console import Console

    console = Console()
    for line in described(run):
        console.print(line, markup=False, highlight=False)
    if run.finished is None:
        return
    for part in _narrow(means(run), console.width):
        console.print(_terminal(part))
    head, *rows = by_layer(run, digits=2)
    if layers and not rows:
        console.print("\nno metric of this run has layers; one that does: spearman:METHOD@layers", markup=False)
    for metric in dict.fromkeys(row[0] for row in rows if layers):  # narrow tables, one each
        console.print(f"\n{metric}, by layer", markup=False, highlight=False)
        console.print(_terminal([head[1:], *(row[1:] for row in rows if row[0] == metric)]))


def show_comparison(compared: Sequence[Compared]) -> None:
    """A narrow table for each metric and what its columns mean; where two runs are compared, which stands above."""
    from rich.console import Console

    console, said = Console(), {"metric"}
    if compared[0].method:
        said |= {"first", "second"}
        console.print(f"first: {compared[0].first}\nsecond: {compared[0].second}", markup=False, highlight=False)
    for metric in dict.fromkeys(each.metric for each in compared):
        rows = comparison([each for each in compared if each.metric == metric])
        shown = [i for i, name in enumerate(rows[0]) if name not in said]
        console.print(f"\n{metric}", markup=False, highlight=False)
        console.print(_fitting([[row[i] for i in shown] for row in rows], console.width))
    console.print(f"\n{legend(compared)}", markup=False, highlight=False)


def _fitting(rows: Rows, width: int) -> Any:
    """The table; where it is too wide, the names that are compared in one column, which may break."""
    names = ("first", "second")
    sizes = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    if sum(sizes) <= width or names[0] not in rows[0]:
        return _terminal(rows)
    at = rows[0].index(names[0])
    return _terminal([[*row[:at], f"{row[at]} − {row[at + 1]}", *row[at + 2 :]] for row in rows], " − ".join(names))


def described(run: Run) -> list[str]:
    """A run in a few lines."""
    known, finished = run.manifest, run.finished
    data, model = known["data"], known["model"]
    lines = [
        f"{run.path}: {model['name']} ({model['device']}, {model['dtype']}) on {titled(data['name'], data['split'])}",
        f"{data['rows']} rows" + (f", {data['dropped']} more dropped in reading" if data["dropped"] else ""),
    ]
    if known.get("dropped"):
        lines.append(f"dropped: {known['dropped']}")
    if finished is None:
        return [*lines, f"not finished; the same command resumes it: {run.command}"]
    for reason, count in finished["failures"].items():
        such = "" if count == 1 else ", for one"
        lines.append(f"{count} could not be explained{such}: {reason}")
    for metric, why, count in undefined(run):
        lines.append(f"{count} times no value of {metric}: {why}")
    if finished["seconds"]:
        spent = ", ".join(f"{name} {span(seconds)}" for name, seconds in finished["seconds"].items())
        lines.append(f"time of the explanations: {spent}")
    return lines


def undefined(run: Run) -> list[tuple[str, str, int]]:
    """How often a metric had no value, and why."""
    if not any(found.undefined for found in run.summary.values()):
        return []
    parquet, compute = need("pyarrow.parquet", extra="eval"), need("pyarrow.compute", extra="eval")
    counts: dict[str, dict[str, int]] = {}
    with run.reading(RECORDS):
        for batch in parquet.ParquetFile(run.path / RECORDS).iter_batches(columns=["metric", "why"]):
            chosen = batch.filter(compute.is_valid(batch["why"]))
            for metric, why in zip(chosen["metric"].to_pylist(), chosen["why"].to_pylist(), strict=True):
                count_reasons(counts.setdefault(metric, {}), [why])
    return [(metric, why, count) for metric, found in counts.items() for why, count in found.items()]


def _narrow(rows: Rows, width: int) -> list[Rows]:
    """A table as several beside whose first column as many others stand as fit, so that no number is cut."""
    sizes = [max(len(cell.strip("*")) for cell in column) + 2 for column in zip(*rows, strict=True)]
    groups: list[list[int]] = [[]]
    for i, size in enumerate(sizes[1:], 1):
        if groups[-1] and sizes[0] + sum(sizes[j] for j in groups[-1]) + size > width:
            groups.append([])
        groups[-1].append(i)
    return [[[row[0], *(row[i] for i in group)] for row in rows] for group in groups]


def _terminal(rows: Rows, breaks: str | None = None) -> Any:
    """As a table of rich's: names of methods stay whole or, where one column is said to break, all others do."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(name, no_wrap=name == "method" if breaks is None else name != breaks)
    for row in rows[1:]:
        table.add_row(*(Text(cell.strip("*"), style="bold" if cell.startswith("**") else "") for cell in row))
    return table
