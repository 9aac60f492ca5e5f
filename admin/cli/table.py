"""Tables as lines of text, laid out for the width of a terminal: no number and no name is broken in two."""

import re
from collections.abc import Sequence

UNBROKEN = re.compile(r"[+-]?\d[\d.,:+\-TZ]*")  # numbers, times, addresses
NAME = re.compile(r"(?:/(?:remote-)?(?:temp-|amq/)?(?:queue|topic)/)?[\w%*>#][\w:./@%*>#~+-]*,?")  # but no path
PIECE = 12  # of a text: words that are longer and no names may be broken
LINES, PROSE = 4, 30  # a cell has about so many lines at most, unless it is as wide as that
LONGEST = 64  # of what is not broken
GAP = 2  # between two columns without borders


def bordered(names: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]) -> list[str]:
    """The table with borders, as wide as its cells need; without names it has no header."""
    head = [list(names)] if any(names) else []
    widths = [max(map(width_of, column)) for column in zip(*head, *rows, strict=True)]
    lines = [_edge("┌┬┐", widths), *(_framed(line, widths, numbers) for line in head)]
    lines += [_edge("├┼┤", widths)] * len(head)
    lines += [_framed(line, widths, numbers) for row in rows for line in _lines_of(row)]
    return [*lines, _edge("└┴┘", widths)]


def _edge(corners: str, widths: Sequence[int]) -> str:
    return corners[0] + corners[1].join("─" * (width + 2) for width in widths) + corners[2]


def _framed(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    return f"│ {' │ '.join(_pad(*each) for each in zip(cells, widths, numbers, strict=True))} │"


def fits(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Is there room for it with borders?"""
    natural = sum(max(map(width_of, column)) for column in zip(names, *rows, strict=True))
    return natural + 3 * len(names) + 1 <= width


def laid_out(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[bool],
    width: int,
    keep: bool = False,
    borders: bool = True,
) -> tuple[list[str], list[str]]:
    """The table in this width, and the names of the columns that have no room in it.

    As far as needed, or without `borders`, it has none; then its texts and header are folded, then it lacks columns,
    empty ones and the last ones first; with `keep` it then has each row as a list of names and values.
    """
    columns = [[name, *cells] for name, *cells in zip(names, *rows, strict=True)]
    natural = [max(map(width_of, column)) for column in columns]
    if borders and fits(names, rows, width):
        return bordered(names, rows, numbers), []
    least = [
        max(_head(name), *(width_of(cell) if number else _least(cell, width) for cell in cells))
        for (name, *cells), number in zip(columns, numbers, strict=True)
    ]  # fmt: skip
    if not keep and sum(least) + GAP * (len(names) - 1) > width:
        full = [at for at, (_, *cells) in enumerate(columns) if any(cells)]
        if full and len(full) < len(names):
            chosen = [[row[at] for at in full] for row in rows]
            return laid_out([names[at] for at in full], chosen, [numbers[at] for at in full], width, keep, borders)
    room = len(names)
    while room and sum(least[:room]) + GAP * (room - 1) > width:
        room -= 1
    if not room or (keep and room < len(names)):
        lines: list[str] = []
        for row in rows:
            lines += [""] * bool(lines) + listed(list(zip(names, row, strict=True)), width)
        return lines, []
    widths = _shared(natural[:room], least[:room], width - GAP * (room - 1))
    lines = []
    for cells in (names, *rows):
        folded = [fold(cell, each) for cell, each in zip(cells[:room], widths, strict=True)]
        for at in range(max(map(len, folded))):
            line = (each[at] if at < len(each) else "" for each in folded)
            padded = (_pad(*each) for each in zip(line, widths, numbers[:room], strict=True))
            lines.append((" " * GAP).join(padded).rstrip())
    return lines, list(names[room:])


def listed(pairs: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Names and values, one below another, a value below its name where it has no room beside it."""
    at = max((width_of(name) for name, _ in pairs), default=0) + GAP
    lines = []
    for name, value in pairs:
        beside = width - at >= max(_least(value, width), min(width_of(value), PIECE))
        first, *rest = fold(value, max(width - (at if beside else GAP), 1))
        if beside:
            lines.append(f"{_pad(name, at, False)}{first}".rstrip())
        else:
            lines += [name, " " * GAP + first]
        lines += [" " * (at if beside else GAP) + line for line in rest]
    return lines


def fold(text: str, width: int) -> list[str]:
    """The text in lines of this width: broken at spaces, else behind punctuation, else within words, but in no number.
    A number that is longer gets a longer line."""
    lines = []
    for whole in text.split("\n"):
        start = 0
        while width_of(line := whole[start : start + 2 * width + LONGEST]) > width:
            spans = [found.span() for found in UNBROKEN.finditer(line)]
            most = max((at for at in range(1, width + 1) if width_of(line[:at]) <= width), default=1)
            able = [at for at in range(1, most + 1) if not any(begin < at < end for begin, end in spans)]
            able = able or [spans[0][1]]  # it begins the line, and is longer than that
            blank = [at for at in able if line[at : at + 1] == " " or line[at - 1] == " "]
            mark = [at for at in able if not line[at - 1].isalnum()]
            at = (blank or mark or able)[-1]
            lines.append(line[:at].rstrip())
            start += at
            while whole[start : start + 1] == " ":
                start += 1
        if line or not start:
            lines.append(line)
    return lines


def _head(name: str) -> int:
    """The width that a header needs in two lines."""
    parts = re.findall(r"[^_ ]+_?", name)
    both = [(sum(map(len, parts[:at])), sum(map(len, parts[at:]))) for at in range(1, len(parts))]
    return min((max(each) for each in both), default=width_of(name))


def _least(text: str, width: int) -> int:
    """The width that a text needs: of its longest number or name, its longest word up to PIECE, and so that it has
    LINES lines, up to PROSE."""
    words = [(width_of(word), bool(NAME.fullmatch(word))) for word in text.split()]
    longest = max((min(length, width if name else PIECE) for length, name in words), default=0)
    prose = min(max(-(-width_of(line) // LINES) for line in text.split("\n")), PROSE)
    return max(longest, prose, *map(len, UNBROKEN.findall(text)), 0)


def _shared(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Widths between these, as even as can be, that have so much in sum, or what is natural."""
    most = max(natural)
    for cap in range(most + 1):
        widths = [max(low, min(high, cap)) for high, low in zip(natural, least, strict=True)]
        if sum(widths) > width:
            break
        found = widths
    spare = width - sum(found)
    for at, high in enumerate(natural):
        if spare > 0 and found[at] < high:
            found[at], spare = found[at] + 1, spare - 1
    return found


def _lines_of(row: Sequence[str]) -> list[list[str]]:
    cells = [cell.split("\n") for cell in row]
    return [[cell[at] if at < len(cell) else "" for cell in cells] for at in range(max(map(len, cells)))]


def _pad(text: str, width: int, number: bool) -> str:
    blank = " " * (width - width_of(text))
    return blank + text if number else text + blank


def width_of(text: str) -> int:
    """Of its longest line, in columns of a terminal."""
    if text.isascii() and "\n" not in text:
        return len(text)
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))
