"""`wherefrom cite`: what to write into a bibliography."""

from __future__ import annotations

from typing import Annotated

import typer

from wherefrom.cli.flags import complete_method
from wherefrom.spec import split
from wherefrom.version import __version__

RELEASED = 2026  # as CITATION.cff has it
OURS = f"""@software{{wherefrom,
  title = {{{{wherefrom: where a Transformer's answer comes from}}}},
  author = {{{{The wherefrom developers}}}},
  year = {{{RELEASED}}},
  version = {{{__version__}}},
}}"""


def register(app: typer.Typer) -> None:
    """Add this file's command to the application."""
    app.command("cite")(cite_command)


def cite_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Methods, as `wherefrom methods` lists them, separated by blanks or commas.",
            autocompletion=complete_method,
        ),
    ] = None,
) -> None:
    """Print the BibTeX entries of the papers that methods come from; without a name, wherefrom's own."""
    if not names:
        print(OURS)
        return
    from wherefrom.method import lookup

    every = [each for name in names for each in split(name)]
    papers = [method.paper if preset is None else preset.paper for method, preset in map(lookup, every)]
    print("\n\n".join(paper.bibtex for paper in dict.fromkeys(papers)))
