"""Tables for a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Iterable

import sources


def print_table(title: str, header: list[str], rows: list[list[str]], first_width: int, width: int) -> None:
    print(f"\n{title}")
    print("─" * (first_width + width * (len(header) - 1)))
    for row in [header, *rows]:
        print(row[0].ljust(first_width) + "".join(cell.rjust(width) for cell in row[1:]))
        if row is header:
            print("─" * (first_width + width * (len(header) - 1)))


def print_sources(title: str, told: dict[str, sources.Ranks], counts: Iterable[str], width: int) -> None:
    """One row a count, one column a source: sums over ranks; empty where a source cannot know."""
    rows = []
    for count in counts:
        cells = [f"{sources.total(ranks, count):,}" if any(count in rank for rank in ranks.values()) else "" for ranks in told.values()]
        if any(cells):
            rows.append([count, *cells])
    print_table(title, ["", *told], rows, 20, width)
