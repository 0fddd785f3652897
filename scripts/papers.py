"""Write what `scripts/recipes.py FOLDER` measured into the docs: python scripts/papers.py FOLDER

    docs/papers.md            between `<!-- paper: alti -->` and `<!-- end -->`: a row for each table and figure;
                              between `<!-- summary -->` and `<!-- end -->`: a row for each paper
    docs/papers/alti.md       every number of the paper's recipes, and its pictures

No number is typed by hand. A row shows the cells of `HEADLINES`; without them, each row of the column that sums the
recipe up (a mean, the last layer). A cell is our mean ± half its 99 % interval, with the paper's number in brackets.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wherefrom.papers import Recipe, recipes

DOCS = Path(__file__).resolve().parent.parent / "docs"
SECTION = re.compile(r"<!-- paper: (?P<name>[\w-]+) -->\n.*?<!-- end -->\n", re.DOTALL)
Cells = dict[tuple[str, str], dict[str, str]]
SUMMARY = re.compile(r"<!-- summary -->\n.*?<!-- end -->\n", re.DOTALL)
CLAIM = re.compile(r"^- (?P<says>.*) \*\*(?P<verdict>.*?)\.\*\*$", re.MULTILINE)
SIGNS = {"Holds here": "✓", "Does not hold here": "✗", "Cannot be told here": "?"}
DEVIATION, INTERVAL = "± standard deviation", "± half the 99 % interval"
SHOWN = 10  # cells of a row without a headline

# The place in the paper of a recipe that is no table or figure there.
SECTIONS = {
    "abnar2020/evenness": "Section 4",
    "abnar2020/appendix-heads": "Appendix A.1",
    "attcat/appendix-k": "Appendix, other K",
    "decompx/aopc": "AOPC",
    "alti-logit/blimp": "BLiMP",
}
# The cells that sum up a recipe: (row, column).
HEADLINES: dict[str, tuple[tuple[str, str], ...]] = {
    "abnar2020/table1": (("Raw", "L6"), ("Rollout", "L6"), ("Flow", "L6")),
    "abnar2020/table2": (("Raw", "L6"), ("Rollout", "L6"), ("Flow", "L6")),
    "abnar2020/table3": (("Raw", "last"), ("Rollout", "last"), ("Flow", "last")),
    "globenc/table1": tuple((row, name) for name in ("SST2", "MNLI", "HateXplain") for row in ("W", "N", "N_Enc")),
    "globenc/table2": (("N_Enc indiv.", "last"), ("N_Enc rollout", "last"), ("N_Enc rollout", "MAX")),
    "alti/table2": tuple(
        (row, name) for name in ("SST2 BERT", "SVA BERT") for row in ("Attn Rollout", "Norm Rollout", "ALTI")
    ),
    "value-zeroing/table1": (("all", "accuracy PT"), ("all", "accuracy FT")),
    **{
        f"value-zeroing/{name}": tuple(
            (row, f"{metric} mean")
            for metric in ("dot", "AP")
            for row in ("Attn", "Attn-norm", "ALTI", "Value Zeroing")
        )
        for name in ("figure1", "figure2")
    },
    "value-zeroing/table2": (
        ("Value Zeroing", "PT"),
        ("Value Zeroing", "FT"),
        ("Attn-norm", "PT"),
        ("Attn-norm", "FT"),
    ),
    "value-zeroing/table3": (("Value Zeroing", "PT"), ("Value Zeroing", "FT"), ("DL", "PT"), ("DL", "FT")),
    "attcat/table1": tuple(
        ("AttCAT", f"{name} {metric}")
        for name in ("SST2", "QQP", "MNLI", "Amazon", "Yelp", "IMDB")
        for metric in ("AOPC", "LOdds")
    ),
    "attcat/table2": tuple(("AttCAT", name) for name in ("SST2", "QQP", "MNLI", "Amazon", "Yelp", "IMDB")),
}
# Tables that are drawn beside their numbers, with the suffix of the file; every figure is.
DRAWN_TABLES = {"abnar2020/table1": "", "abnar2020/table2": ""}
PICTURE_WIDTH, PICTURE_COLORS = 1100, 64
# Recipes about a model that was not at hand: another stands in, and the claims are not asked.
STAND_INS = {"globenc/table-a1", "globenc/table-a2", "value-zeroing/figure-a3", "value-zeroing/figure-a4"}


def title(recipe: Recipe) -> str:
    """The name of a table or figure as the paper prints it: "Table A.1" for table-a1."""
    kind, number = re.fullmatch(r"([a-z]+)-?(.*)", recipe.short).groups()  # type: ignore[union-attr]
    if kind not in ("table", "figure"):
        return SECTIONS.get(recipe.name, recipe.short.replace("-", " ").capitalize())
    return f"{kind.capitalize()} " + re.sub(r"^([a-z])(?=[0-9])", lambda letter: f"{letter[1].upper()}.", number)


def read_cells(path: Path) -> Cells:
    """Every cell of a recipe's csv file."""
    with path.open(encoding="utf-8", newline="") as stream:
        return {(line["row"], line["column"]): line for line in csv.DictReader(stream)}


def headline(recipe: Recipe, cells: Cells) -> str:
    """The numbers of a recipe's row: its headline, or every row of the column that sums it up."""
    places = [place for place in HEADLINES.get(recipe.name, ()) if place in cells]
    if not places and not recipe.texts:
        columns = list(dict.fromkeys(column for (_, column), cell in cells.items() if cell["mean"]))
        averages = [column for column in columns if column in ("mean", "last", "all") or column.endswith(" mean")]
        layers = [column for column in columns if re.search(r"L\d+$", column)]
        column = (averages or layers[-1:] or columns)[0]
        places = [place for place, cell in cells.items() if place[1] == column and cell["mean"]][:SHOWN]
    places = places or [place for place, cell in cells.items() if cell["mean"] and cell["paper"]][:SHOWN]
    lines = [f"{row}, {column}: {show_cell(cells[row, column])}" for row, column in places]
    return "<br>".join(lines).replace("|", "\\|") or f"[each token]({link(recipe)})"


def link(recipe: Recipe) -> str:
    """The place of a recipe's numbers, from docs/papers.md."""
    return f"papers/{recipe.paper}.md#{recipe.name.replace('/', '').lower()}"


def anchor(heading: str) -> str:
    """The anchor of a heading in the book and on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def show_cell(cell: dict[str, str]) -> str:
    """Our mean ± half its interval, and the paper's number in brackets."""
    interval = f" ± {float(cell['interval']):.2f}" if cell["interval"] else ""
    paper = f" ({float(cell['paper']):.2f})" if cell["paper"] else ""
    return (f"{float(cell['mean']):.2f}" if cell["mean"] else "–") + interval + paper


def show_claims(markdown: str) -> str:
    """The claims under a recipe's table, each with a sign; a claim about several columns once, with all of them."""
    claims = [(*claim["says"].partition(": ")[::2], claim["verdict"]) for claim in CLAIM.finditer(markdown)]
    endings = [says for _, says, _ in claims]
    lines: dict[str, dict[str, list[str]]] = {}
    for column, says, verdict in claims:
        if not says or endings.count(says) < 2:  # not about columns
            column, says = "", f"{column}: {says}" if says else column
        sign, _, untested = verdict.partition(", ")
        signs = lines.setdefault(f"{says} *(no test)*" if untested else says, {})
        signs.setdefault(SIGNS[sign], []).append(column)
    shown = [
        "; ".join(f"{sign} {', '.join(filter(None, columns))}".strip() for sign, columns in signs.items())
        + (f": {says}" if any(map(any, signs.values())) else f" {says}")
        for says, signs in lines.items()
    ]
    return "<br>".join(shown).replace("|", "\\|") or "–"


def show_calls(stem: str, record: list[dict[str, Any]]) -> str:
    """The commands of a recipe, with date and time."""
    calls = [call for call in record if call["recipe"] == stem]
    lines = [f"`{call['command']}` ({call['date']}, {show_time(call['seconds'])}, {call['device']})" for call in calls]
    return "<br>".join(lines).replace("|", "\\|")


def show_sizes(cells: Cells) -> str:
    """The numbers of examples behind the cells, from the smallest to the largest."""
    sizes = sorted({int(cell["n"]) for cell in cells.values() if cell["n"]})
    if not sizes or sizes[-1] == 1:
        return ""
    return f"n = {sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"n = {sizes[0]:,}"


def show_time(seconds: float) -> str:
    """Seconds as hours, or as minutes where they are few."""
    return f"{seconds / 3600:.1f} h" if seconds >= 360 else f"{max(seconds / 60, 0.1):.1f} min"


def stems(recipe: Recipe, folder: Path) -> list[str]:
    """The files of a recipe, without their ending: with its default options, then with others."""
    others = sorted((folder / recipe.paper).glob(f"{recipe.short}-*=*.csv"))
    return [recipe.name, *(f"{recipe.paper}/{path.stem}" for path in others)]


def row(recipe: Recipe, stem: str, folder: Path, record: list[dict[str, Any]]) -> str:
    """The row of a recipe in docs/papers.md."""
    cells = read_cells(folder / f"{stem}.csv")
    markdown = (folder / f"{stem}.md").read_text(encoding="utf-8")
    parts = [
        f"[{title(recipe)}]({link(recipe)}). {recipe.about}",
        "<br>".join(filter(None, [show_calls(stem, record), show_sizes(cells)])),
        headline(recipe, cells),
        "not asked: another model stands in" if recipe.name in STAND_INS else show_claims(markdown),
    ]
    return f"| {' | '.join(parts)} |"


def section(paper: str, folder: Path, record: list[dict[str, Any]]) -> str:
    """The table of a paper, a row for each recipe that was made."""
    rows = [row(recipe, stem, folder, record) for recipe in made(paper, folder) for stem in stems(recipe, folder)]
    heading = ["| In the paper | Command | Ours (theirs) | Claims |", "|---|---|---|---|"]
    return f"<!-- paper: {paper} -->\n" + "\n".join([*heading, *rows]) + "\n<!-- end -->\n"


def summary(papers: Sequence[tuple[str, str]], folder: Path) -> str:
    """How many claims of each paper hold, do not, and cannot be told; in brackets those without a test."""
    lines = ["| Paper | Recipes | ✓ holds | ✗ does not | ? cannot be told |", "|---|---|---|---|---|"]
    for paper, heading in papers:
        recipes_made = list(made(paper, folder))
        texts = [
            (folder / f"{recipe.name}.md").read_text(encoding="utf-8")
            for recipe in recipes_made
            if recipe.name not in STAND_INS
        ]
        verdicts = [claim["verdict"] for text in texts for claim in CLAIM.finditer(text)]
        cells = []
        for sign in SIGNS:
            alike = [verdict for verdict in verdicts if verdict.startswith(sign)]
            untested = sum(verdict.endswith("untested") for verdict in alike)
            cells.append(f"{len(alike)} ({untested})" if untested else str(len(alike)))
        lines.append(f"| [{heading}](#{anchor(heading)}) | {len(recipes_made)} | {' | '.join(cells)} |")
    return "<!-- summary -->\n" + "\n".join(lines) + "\n<!-- end -->\n"


def made(paper: str, folder: Path) -> Iterator[Recipe]:
    """The recipes of a paper that have a result in the folder."""
    return (recipe for recipe in recipes() if recipe.paper == paper and (folder / f"{recipe.name}.csv").is_file())


def page(paper: str, heading: str, folder: Path) -> str:
    """The page with every number of a paper's recipes."""
    blocks = [
        f"# {heading}: every number",
        "Written by `python scripts/papers.py` from the files of `wherefrom reproduce`. In a cell: our mean ± half its "
        "99 % interval, and the paper's number in brackets. Standard deviations and counts are in the csv files that "
        "the commands write. [All papers](../papers.md).",
    ]
    files = [(each, stem) for each in made(paper, folder) for stem in stems(each, folder)]
    for recipe, stem in files:
        text = (folder / f"{stem}.md").read_text(encoding="utf-8").strip().replace(recipe.name, stem, 1)
        lines = text.replace("### ", "## ", 1).replace(DEVIATION, INTERVAL).splitlines()
        table = [number for number, line in enumerate(lines) if line.startswith("|")]
        above, below = lines[: table[0]], lines[table[-1] + 1 :]
        blocks += ["\n".join(above).strip(), full_table(folder / f"{stem}.csv"), "\n".join(below).strip()]
        blocks += [f"![{name}](../img/papers/{copy_picture(path)})" for name, path in pictures_of(recipe, folder)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def pictures_of(recipe: Recipe, folder: Path) -> list[tuple[str, Path]]:
    """The pictures of a figure, or of a table in `DRAWN_TABLES`."""
    if recipe.name in DRAWN_TABLES:
        return [(recipe.name, folder / f"{recipe.name}{DRAWN_TABLES[recipe.name]}.png")]
    if not recipe.short.startswith("figure"):
        return []
    paths = sorted((folder / recipe.paper).glob(f"{recipe.short}.png")) + sorted(
        path for path in (folder / recipe.paper).glob(f"{recipe.short}-*.png") if "=" not in path.stem
    )
    return [(f"{recipe.paper}/{path.stem}", path) for path in paths]


def copy_picture(path: Path) -> str:
    """Copy a picture beside the pages, in few colors; its name there."""
    from PIL import Image

    name = f"{path.parent.name}-{path.name}"
    (DOCS / "img" / "papers").mkdir(parents=True, exist_ok=True)
    with Image.open(path) as picture:
        height = round(picture.height * PICTURE_WIDTH / picture.width)
        small = picture.convert("RGB").resize((PICTURE_WIDTH, height)) if picture.width > PICTURE_WIDTH else picture
        small.convert("RGB").quantize(PICTURE_COLORS).save(DOCS / "img" / "papers" / name, optimize=True)
    return name


def full_table(path: Path) -> str:
    """Every cell of a csv file as a Markdown table."""
    cells = read_cells(path)
    rows, columns = (list(dict.fromkeys(place[i] for place in cells)) for i in (0, 1))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [
        [row, *(show_cell(cells[row, column]) if (row, column) in cells else "" for column in columns)] for row in rows
    ]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def main(folder: Path) -> None:
    record = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "calls").glob("*.json"))]
    text = (DOCS / "papers.md").read_text(encoding="utf-8")
    (DOCS / "papers").mkdir(exist_ok=True)
    for found in list(SECTION.finditer(text)):
        paper = found["name"]
        heading = re.findall(r"^## (.*)$", found.string[: found.start()], re.MULTILINE)[-1]
        (DOCS / "papers" / f"{paper}.md").write_text(page(paper, heading, folder), encoding="utf-8")
        text = text.replace(found[0], section(paper, folder, record))
    headings = re.findall(r"^## (.*)\n(?:(?!^## ).*\n)*?<!-- paper: ([\w-]+) -->", text, re.MULTILINE)
    text = SUMMARY.sub(lambda _: summary([(paper, heading) for heading, paper in headings], folder), text)
    (DOCS / "papers.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
