"""Pictures of curves over message sizes, as SVG: one panel or several below each other."""

import math
from dataclasses import dataclass, field
from html import escape

WIDTH, LEFT, RIGHT, TOP, GAP = 960, 70, 190, 40, 56
COLOURS = ("#c0392b", "#e67e22", "#8e44ad", "#2c7fb8", "#1b7837", "#555555", "#a6761d", "#17a2b8")


@dataclass
class Line:
    """One curve: (x, y) or (x, y, low, high), which is drawn with its interval."""

    label: str
    points: list
    dashed: bool = False


@dataclass
class Panel:
    """One pair of axes. Both are logarithmic, of `values` only if `log`, and x not if it is `time`."""

    title: str
    values: str
    lines: list
    log: bool = True
    height: int = 300
    levels: list = field(default_factory=list)  # horizontal lines that matter
    unit: str = ""  # what x counts, if not bytes
    time: bool = False


def size_text(size):
    """A number of bytes, short."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size:g} B"


def _ticks(low, high, log):
    if not log:
        step = 10 ** math.floor(math.log10(max(high - low, 1e-9)))
        while (high - low) / step < 4:
            step /= 2
        return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**p for p in powers for m in (1, 2, 5)]
    return [t for t in ticks if low <= t <= high]


def _spans(panel):
    xs = [p[0] for line in panel.lines for p in line.points]
    ys = [y for line in panel.lines for p in line.points for y in p[1:]] + panel.levels
    low, high = min(ys), max(ys)
    pad = 1.08 if panel.log else 1
    more = 0 if panel.log else max(0.05 * (high - low), 1e-9)
    return min(xs), max(xs), low / pad - more, high * pad + more


def _panel(panel, top):
    x0, x1, y0, y1 = _spans(panel)
    wide, tall = WIDTH - LEFT - RIGHT, panel.height
    scale = math.log if panel.log else float

    def x(value):
        if panel.time:
            return LEFT + wide * (value - x0) / ((x1 - x0) or 1)
        return LEFT + wide * (math.log(value / x0) / math.log(x1 / x0) if x1 > x0 else 0.5)

    def y(value):
        return top + tall * (1 - (scale(value) - scale(y0)) / (scale(y1) - scale(y0)))

    out = [f'<text x="{LEFT}" y="{top - 12}" font-size="15">{escape(panel.title)}</text>',
           f'<rect x="{LEFT}" y="{top}" width="{wide}" height="{tall}" fill="none" stroke="#999"/>',
           f'<text transform="translate(16 {top + tall / 2}) rotate(-90)" text-anchor="middle">'
           f'{escape(panel.values)}</text>']
    for tick in _ticks(y0, y1, panel.log):
        out.append(f'<path d="M{LEFT} {y(tick):.1f}h{wide}" stroke="#e5e5e5"/>'
                   f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    sizes = sorted({p[0] for line in panel.lines for p in line.points})
    if panel.time:
        sizes = _ticks(x0, x1, log=False)
    for size in sizes[::2 if len(sizes) > 12 else 1]:
        name = f"{size:g} {panel.unit}" if panel.unit else size_text(size)
        out.append(f'<path d="M{x(size):.1f} {top}v{tall}" stroke="#e5e5e5"/>'
                   f'<text x="{x(size):.1f}" y="{top + tall + 16}" text-anchor="middle" '
                   f'font-size="10">{name}</text>')
    for level in panel.levels:
        out.append(f'<path d="M{LEFT} {y(level):.1f}h{wide}" stroke="#000" stroke-dasharray="2 3"/>')
    for number, line in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        dash = ' stroke-dasharray="6 4"' if line.dashed else ""
        path = " ".join(f"{x(p[0]):.1f},{y(p[1]):.1f}" for p in line.points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
        for point in [] if panel.time else line.points:
            out.append(f'<circle cx="{x(point[0]):.1f}" cy="{y(point[1]):.1f}" r="2.2" fill="{colour}"/>')
            if len(point) > 2:
                out.append(f'<path d="M{x(point[0]):.1f} {y(point[2]):.1f}V{y(point[3]):.1f}" '
                           f'stroke="{colour}"/>')
        at = top + 14 + 18 * number
        out.append(f'<path d="M{WIDTH - RIGHT + 10} {at - 4}h24" stroke="{colour}" stroke-width="2"{dash}/>'
                   f'<text x="{WIDTH - RIGHT + 40}" y="{at}">{escape(line.label)}</text>')
    return out


def picture(panels):
    """The text of a picture."""
    top, out = TOP, []
    for panel in panels:
        out += _panel(panel, top)
        top += panel.height + GAP
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" '
            f'viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="12">')
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *out, "</svg>", ""])
