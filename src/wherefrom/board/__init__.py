"""The leaderboard: every method by every metric on models and data at hand, and who stands where.

`choosing` says what is measured, `measuring` measures it, `reading` ranks what was saved, `writing` makes the page.
"""

from wherefrom.board.measuring import PARTS, Measuring, measure
from wherefrom.board.reading import Board, read_board
from wherefrom.board.writing import write_page, write_record

__all__ = ["PARTS", "Board", "Measuring", "measure", "read_board", "write_page", "write_record"]
