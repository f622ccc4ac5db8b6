"""The pictures of the documents: the page of a report in a browser, and `marline top` on a terminal, of
a job whose cable is cut. `make pictures` keeps them in docs."""

import itertools
import os
import re
from html import escape
from pathlib import Path

import pytest

import lab as labs
from test_browser import opened
from test_faults import assert_right, lasts, under_way
from test_report import report
from test_top import OnTerminal

pytestmark = [pytest.mark.packages, pytest.mark.alone]
LARGEST = 150_000  # bytes of a picture
# Colours of a terminal by pyte's names.
COLOURS = {"default": "#d0d0d0", "black": "#202124", "cd0000": "#f28b82", "00cd00": "#81c995", "cdcd00": "#fdd663"}
WIDE, HIGH = 8, 17  # pixels of a character


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's statistics")


@pytest.fixture
def folder(tmp_path):
    """The folder of the pictures."""
    return Path(os.environ.get("MARLINE_PICTURES_DIR", tmp_path))


def colour(name):
    return COLOURS.get(name) or f"#{name}"


def style(char):
    """Colour, background and weight of a character on a terminal."""
    front, back = colour(char.fg), None if char.bg == "default" else colour(char.bg)
    if char.reverse:
        front, back = back or COLOURS["black"], front
    return front, back, "bold" if char.bold else "normal"


def svg(screen):
    """A terminal's screen as a drawing."""
    width, height = screen.columns * WIDE + 16, screen.lines * HIGH + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="13.3" '
           'font-family="monospace">',
           f'<rect width="{width}" height="{height}" rx="6" fill="{COLOURS["black"]}"/>']
    for row in range(screen.lines):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        for (front, back, weight), run in itertools.groupby(enumerate(cells), lambda cell: style(cell[1])):
            run = list(run)
            x, y, text = 8 + run[0][0] * WIDE, 8 + row * HIGH, "".join(char.data for _, char in run)
            if back:
                out.append(f'<rect x="{x}" y="{y}" width="{len(run) * WIDE}" height="{HIGH}" fill="{back}"/>')
            # A drawing would put spaces in a row together.
            for words in re.finditer(r"\S+( \S+)*", text):
                out.append(f'<text x="{x + words.start() * WIDE}" y="{y + 13}" textLength="{len(words[0]) * WIDE}" '
                           f'fill="{front}" font-weight="{weight}">{escape(words[0])}</text>')
    return "\n".join([*out, "</svg>", ""])


def test_the_pictures_are_small_and_show_the_cut(stress, mpich, tmp_path, folder):
    """A cable is cut for two seconds."""
    pages = tmp_path / "pages"
    pages.mkdir()
    env = {"FI_MARLINE_STATS_DIR": pages}
    with labs.Lab("job", hosts=3) as lab:
        lab.meet()
        with under_way(lab, stress, mpich, "marline", 6, n=6, env=env) as job:
            with OnTerminal(pages) as terminal:
                terminal.wait_for("h2:rail1 +up")
                lasts(job, 2)
                lab.fault("h2:1", "down")
                terminal.wait_for("^\\S*h2:rail1 +link down ")
                terminal.wait_for("q quit")
                lasts(job, 2)
                terminal.take(1)
                (folder / "top.svg").write_text(svg(terminal.screen))
                terminal.press(b"q")
                assert terminal.ended() == 0
            lab.clear()
        assert_right(job.result)
    picture = folder / "report.png"
    report(pages, "--html", tmp_path / "report.html")
    opened(tmp_path / "report.html", tmp_path, f"--screenshot={picture}", "--hide-scrollbars",
           "--window-size=900,1000")
    assert 20_000 < picture.stat().st_size < LARGEST, picture.stat()
    assert "link down" in (folder / "top.svg").read_text()
    assert (folder / "top.svg").stat().st_size < LARGEST
