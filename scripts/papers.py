"""Put what `wherefrom reproduce` wrote into docs/papers.md: python scripts/papers.py FOLDER

Between the comments `<!-- result: abnar2020/table1 -->` and `<!-- end -->` of the page stands the Markdown of that
recipe, taken from FOLDER/abnar2020/table1.md, so that no number is typed by hand. `| columns: dot mean, AP mean` keeps
these columns alone; `| picture: -dot` copies the recipe's picture of that name (`plain`: it has one) beside the page.
`<!-- verdicts -->` collects the claims of all results on the page.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "papers.md"
IMAGES = PAGE.parent / "img" / "papers"
RESULT = re.compile(r"<!-- result: (?P<name>[^|>]+?)(?P<options>(?: \|[^>]*?)?) -->\n.*?<!-- end -->\n", re.DOTALL)
VERDICTS = re.compile(r"<!-- verdicts -->\n.*?<!-- end -->\n", re.DOTALL)
MORE = "The command prints more columns."
CLAIM = re.compile(r"^- (?P<says>.*) \*\*(?P<verdict>.*?)\.\*\*$", re.MULTILINE)


def options(text: str) -> dict[str, str]:
    """`| columns: a, b | picture: x` as a dictionary."""
    pairs = (part.partition(":") for part in text.split("|") if part.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def chosen(markdown: str, columns: str) -> str:
    """The Markdown with the first column of its table and these alone, and a word on the others."""
    wanted = [each.strip() for each in columns.split(",")]
    lines = markdown.splitlines()
    heading = next(line for line in lines if line.startswith("|"))
    cells = [cell.strip() for cell in heading.strip("|").split("|")]
    kept = [0, *(cells.index(each) for each in wanted)]

    def cut(line: str) -> str:
        parts = [cell.strip() for cell in line.strip("|").split("|")]
        return f"| {' | '.join(parts[i] for i in kept)} |"

    last = max(number for number, line in enumerate(lines) if line.startswith("|"))
    said = [cut(line) if line.startswith("|") else line for line in lines]
    return "\n".join([*said[: last + 1], *(["", MORE] if len(kept) < len(cells) else []), *said[last + 1 :]])


def block(folder: Path, name: str, given: str) -> str:
    asked = options(given)
    text = (folder / f"{name}.md").read_text(encoding="utf-8").strip()
    if "columns" in asked:
        text = chosen(text, asked["columns"])
    if "picture" in asked:
        IMAGES.mkdir(parents=True, exist_ok=True)
        source = folder / f"{name}{asked['picture'].removeprefix('plain')}.png"
        target = IMAGES / f"{name.replace('/', '-')}{asked['picture'].removeprefix('plain')}.png"
        shutil.copyfile(source, target)
        text += f"\n\n![{name}](img/papers/{target.name})"
    text = "\n".join(
        line.replace("### ", "#### ", 1) if line.startswith("### ") else line for line in text.splitlines()
    )
    return f"<!-- result: {name}{given} -->\n{text}\n<!-- end -->\n"


def verdicts(folder: Path, page: str) -> str:
    """Every claim of the results on the page, and whether it holds."""
    lines = ["| result | claim | here |", "|---|---|---|"]
    for found in RESULT.finditer(page):
        text = (folder / f"{found['name']}.md").read_text(encoding="utf-8")
        lines += [f"| {found['name']} | {claim['says']} | {claim['verdict']} |" for claim in CLAIM.finditer(text)]
    return "<!-- verdicts -->\n" + "\n".join(lines) + "\n<!-- end -->\n"


def main(folder: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    page = RESULT.sub(lambda found: block(folder, found["name"], found["options"]), page)
    page = VERDICTS.sub(lambda _: verdicts(folder, page), page)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
