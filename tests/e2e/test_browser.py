"""A browser opens a report, loads nothing else, and has the numbers of the counters on its page."""

import subprocess

import pytest

from test_faults import assert_right
from test_report import Page, assert_same_numbers, report

pytestmark = pytest.mark.packages


def opened(file, folder, *options):
    """The page after the browser's work."""
    words = ["chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={folder / 'profile'}", *options, file.as_uri()]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)


def test_a_browser_shows_the_numbers_of_the_counters(lab, stress, mpich, tmp_path):
    pages, file, picture = tmp_path / "pages", tmp_path / "report.html", tmp_path / "report.png"
    pages.mkdir()
    env = {"FI_MARLINE_STATS_DIR": pages}
    assert_right(lab.run(mpich, stress(mpich, "--iterations", 1, "--max-size", 65536), env=env))
    report(pages, "--html", file)
    done = opened(file, tmp_path, "--dump-dom")
    # The browser refuses what the page's policy forbids, and says so.
    assert "Content Security Policy" not in done.stderr, done.stderr
    page = Page(done.stdout)
    assert_same_numbers(pages, page)
    assert page.findings[0] == "no rail, path or peer has failed", page.findings
    opened(file, tmp_path, f"--screenshot={picture}", "--window-size=1100,2000")
    # A page without content would be some hundred bytes.
    assert picture.stat().st_size > 20_000, picture.stat()
