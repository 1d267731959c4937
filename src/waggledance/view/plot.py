"""Curves in characters: series of points in, rows of text out, each exactly as wide as asked.

Braille gives every character two by four dots. A row is a tuple of runs (text, series name), so that whoever
shows it chooses the colours; a dashed series is told from a solid one without any.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Run = tuple[str, str]
"""A stretch of text and the name of the series it belongs to, "" for axes and space."""
Row = tuple[Run, ...]

_DOT_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLOCKS = "▁▂▃▄▅▆▇█"
_ROUND_NUMBERS = (1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_LEAST_WITH_AXES = (14, 4)


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


class _Canvas:
    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._bits = [[0] * width for _ in range(height)]
        self._owners = [[""] * width for _ in range(height)]

    def dot(self, x: int, y: int, owner: str) -> None:
        row, column = y // 4, x // 2
        self._bits[row][column] |= _DOT_BITS[x % 2][y % 4]
        self._owners[row][column] = owner

    def rows(self) -> list[Row]:
        return [_runs(bits, owners) for bits, owners in zip(self._bits, self._owners, strict=True)]


def draw(
    series: Sequence[Series],
    width: int,
    height: int,
    *,
    x_end: float | None = None,
    x_name: str = "",
) -> list[Row]:
    """Line curves from (0, 0) to (`x_end`, a round number above all values); later series lie on top."""
    finite = [Series(s.name, [p for p in s.points if math.isfinite(p[1])], s.dashed) for s in series]
    x_top = max([x_end or 0.0, 1.0, *(x for s in finite for x, _ in s.points)])
    y_top = round_number_above(max((y for s in finite for _, y in s.points), default=0.0))
    margin = max(len(_number(y_top)), len(_number(y_top / 2))) + 1
    if width < margin + _LEAST_WITH_AXES[0] or height < _LEAST_WITH_AXES[1]:
        return _drawn(finite, _Canvas(width, height), x_top, y_top)
    canvas = _Canvas(width - margin - 1, height - 1)
    labels = [""] * canvas.height
    labels[0] = _number(y_top)
    if canvas.height >= 5:
        labels[canvas.height // 2] = _number(y_top / 2)
    rows = _drawn(finite, canvas, x_top, y_top)
    body: list[Row] = [
        ((f"{label:>{margin - 1}} {'┤' if label else '│'}", ""), *row)
        for label, row in zip(labels, rows, strict=True)
    ]
    return [*body, ((f"{'0':>{margin - 1}} └{_x_axis(canvas.width, x_name, _number(x_top))}", ""),)]


def as_lines(rows: Sequence[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def spark(values: Sequence[float], width: int, top: float | None = None) -> str:
    """The values as one line of blocks, the newest at the right; 0 is the lowest block, `top` the highest."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite or width < 1:
        return " " * max(0, width)
    columns = min(width, len(finite))
    means = [
        math.fsum(part) / len(part)
        for part in (
            finite[column * len(finite) // columns : (column + 1) * len(finite) // columns]
            for column in range(columns)
        )
    ]
    highest = max([*means, 0.0]) if top is None else top
    if highest <= 0.0:
        return (_BLOCKS[0] * columns).ljust(width)
    levels = (min(7, max(0, int(mean / highest * 7.999))) for mean in means)
    return "".join(_BLOCKS[level] for level in levels).ljust(width)


def round_number_above(value: float) -> float:
    """Where an axis ends: the least of 1, 1.2, 1.6, 2 … 8 times a power of ten that is not below."""
    if value <= 0.0:
        return 0.1
    power = 10.0 ** math.floor(math.log10(value))
    return next((factor * power for factor in _ROUND_NUMBERS if factor * power >= value), 10.0 * power)


def _drawn(series: Sequence[Series], canvas: _Canvas, x_top: float, y_top: float) -> list[Row]:
    for one in series:
        columns: dict[int, list[float]] = {}
        for x, y in one.points:
            column = round(min(1.0, max(0.0, x / x_top)) * (2 * canvas.width - 1))
            columns.setdefault(column, []).append(y)
        corners: list[tuple[int, int]] = []
        for column in sorted(columns):
            mean = math.fsum(columns[column]) / len(columns[column])
            level = round(min(1.0, max(0.0, mean / y_top)) * (4 * canvas.height - 1))
            corners.append((column, 4 * canvas.height - 1 - level))
        for start, end in zip(corners, corners[1:] or corners, strict=False):
            _line(canvas, start, end, one)
    return canvas.rows()


def _line(canvas: _Canvas, start: tuple[int, int], end: tuple[int, int], series: Series) -> None:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    for step in range(steps + 1):
        x = round(start[0] + (end[0] - start[0]) * step / steps)
        y = round(start[1] + (end[1] - start[1]) * step / steps)
        if not (series.dashed and x // 2 % 2):
            canvas.dot(x, y, series.name)


def _runs(bits: Sequence[int], owners: Sequence[str]) -> Row:
    runs: list[Run] = []
    for bit, owner in zip(bits, owners, strict=True):
        character = chr(0x2800 + bit) if bit else " "
        if runs and runs[-1][1] == owner:
            runs[-1] = (runs[-1][0] + character, owner)
        else:
            runs.append((character, owner))
    return tuple(runs)


def _x_axis(width: int, name: str, end: str) -> str:
    middle = f" {name} " if name and width > len(name) + 2 * len(end) + 8 else ""
    return f"{middle:─^{width - len(end) - 1}} {end}" if width > len(end) + 1 else "─" * width


def _number(value: float) -> str:
    return f"{value:.0f}" if 1000 <= value < 1e7 else f"{value:.3g}"
