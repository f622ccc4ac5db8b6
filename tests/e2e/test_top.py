"""`marline top` shows the rail that the lab cuts, as text, as data and on a terminal, and `marline events
--follow` prints the events as they come."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from contextlib import contextmanager

import pyte
import pytest

import lab as labs
from schemas import assert_conforms
from test_faults import assert_right, under_way


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's statistics")


def top(folder, *options):
    words = [str(labs.MARLINE), "top", *options, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


@contextmanager
def following(folder, *options):
    """`marline events --follow`, with a function that returns the next line with a text."""
    words = [str(labs.MARLINE), "events", "--follow", *options, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        def line_with(text):
            lines = []
            for line in process.stdout:
                lines.append(line)
                if text in line:
                    return line
            raise AssertionError((text, lines, process.stderr.read()))
        try:
            yield line_with
        finally:
            process.kill()


def states(folder):
    """The states of rails by host (the last two characters) and name."""
    rails = json.loads(top(folder, "--json", "--interval", "0.2"))["rails"]
    return {(rail["host"][-2:], rail["rail"]): rail for rail in rails}


def until(job, folder, **wanted):
    """Waits until the rails have these states, by host; returns the rows."""
    limit = time.monotonic() + 60
    while True:
        rails = states(folder)
        if all(rails[host, "rail1"]["state"] == state for host, state in wanted.items()):
            return rails
        assert job.running() and time.monotonic() < limit, (rails, job.output())


class OnTerminal:
    """`marline top` on a terminal of 80 columns and 24 lines."""

    def __init__(self, folder):
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before, self.out = termios.tcgetattr(self.theirs), b""
        self.screen = pyte.Screen(80, 24)
        self.stream = pyte.ByteStream(self.screen)
        words = [str(labs.MARLINE), "top", str(folder)]
        env = {**labs.clean_env({}), "TERM": "xterm-256color"}
        self.process = subprocess.Popen(words, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs, env=env)

    def lines(self):
        """The screen as a user sees it."""
        return [line.rstrip() for line in self.screen.display]

    def rails(self):
        """Hosts and names of the rows of rails, in their order."""
        rows = self.lines()
        end = next((n for n, line in enumerate(rows) if line.startswith("WORST")), len(rows))
        found = [re.match(r"\S*(h\d:rail\d) ", line) for line in rows[:end]]
        return [row[1] for row in found if row]

    def take(self, seconds):
        if select.select([self.ours], [], [], seconds)[0]:
            read = os.read(self.ours, 65536)
            self.out += read
            self.stream.feed(read)

    def until(self, shown):
        limit = time.monotonic() + 60
        while not shown():
            assert time.monotonic() < limit, self.lines()
            self.take(1)

    def wait_for(self, pattern):
        self.until(lambda: re.search(pattern, "\n".join(self.lines()), re.MULTILINE))

    def press(self, keys):
        os.write(self.ours, keys)

    def ended(self):
        """The exit status; the terminal is as it was."""
        status = self.process.wait(60)
        while select.select([self.ours], [], [], 0)[0]:
            self.take(0)
        assert termios.tcgetattr(self.theirs) == self.before
        assert self.out.rstrip().count(b"\x1b[?1049l") == 1, self.out[-200:]
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


def try_keys(terminal):
    """Filter, of events too, and order; afterwards the view is as before."""
    terminal.press(b"/rail rail1 is down\r")
    terminal.until(lambda: terminal.rails() == [])
    terminal.wait_for(r"^\d\d:\d\d:\d\d\.\d{3} rank \d on \S*h1: rail rail1 is down:")
    terminal.press(b"\x1b")
    # Esc with a key right behind it would be Alt with that key.
    terminal.until(lambda: len(terminal.rails()) == 4)
    terminal.press(b"/h0:rail0\r")
    terminal.until(lambda: terminal.rails() == ["h0:rail0"])
    terminal.press(b"\x1b")
    terminal.until(lambda: len(terminal.rails()) == 4)
    by_name = ["h0:rail0", "h0:rail1", "h1:rail0", "h1:rail1"]
    terminal.press(b"s" * 8)
    terminal.until(lambda: terminal.rails() == by_name)
    terminal.press(b"r")
    terminal.until(lambda: terminal.rails() == by_name[::-1])
    terminal.wait_for("sorted by name reversed")
    terminal.press(b"rs")
    terminal.wait_for("sorted by state$|sorted by state,")


def test_a_cut_rail_is_shown_while_the_job_runs(lab, stress, mpich, tmp_path):
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    with under_way(lab, stress, mpich, "marline", 4, env=env) as job, following(tmp_path) as line_with:
        until(job, tmp_path, h0="up", h1="up")
        lab.fault("h1:1", "down")
        assert re.search(r" on \S*h1: rail rail1 is down: ", line_with("rail rail1 is down"))
        rails = until(job, tmp_path, h0="down", h1="link_down")
        assert rails["h0", "rail0"]["state"] == rails["h1", "rail0"]["state"] == "up", rails
        assert rails["h1", "rail1"]["up"] == 0 < rails["h0", "rail1"]["up"], rails
        text = top(tmp_path, "--once")
        rows = text.splitlines()
        assert re.search(r"^\S*h1:rail1 +link down ", rows[3]), text
        assert re.search(r"^\S*h0:rail1 +down ", rows[4]), text
        assert len(re.findall(r"^\S*h[01]:rail0 +up ", text, re.MULTILINE)) == 2, text
        assert re.search(r"^\d\d:\d\d:\d\d\.\d{3} rank \d on \S*h1: rail rail1 is down:", text, re.MULTILINE), text
        with OnTerminal(tmp_path) as terminal:
            terminal.wait_for(r"^\S*h1:rail1 +link down ")
            # The worst are first; the keys are in the last line.
            terminal.until(lambda: terminal.rails() == ["h1:rail1", "h0:rail1", "h0:rail0", "h1:rail0"])
            terminal.until(lambda: len(terminal.lines()) == 24 and "q quit" in terminal.lines()[-1])
            try_keys(terminal)
            terminal.press(b"f")
            terminal.wait_for("FROZEN")
            lab.clear()
            line_with("rail rail1 is up again")
            until(job, tmp_path, h0="up", h1="up")
            terminal.take(1)
            assert re.search(r"h1:rail1 +link down ", "\n".join(terminal.lines())), terminal.lines()
            terminal.press(b"f")
            terminal.wait_for(r"^\S*h1:rail1 +up ")
            terminal.press(b"q")
            assert terminal.ended() == 0
        with OnTerminal(tmp_path) as terminal:
            terminal.wait_for("q quit")
            terminal.process.terminate()
            assert terminal.ended() == 0
        until(job, tmp_path, h0="up", h1="up")
    assert_right(job.result)
    assert {rail["state"] for rail in states(tmp_path).values()} == {"ended"}


def test_events_are_followed_as_json_until_the_job_ends(lab, stress, mpich, tmp_path):
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    with under_way(lab, stress, mpich, "marline", 4, env=env) as job:
        number = json.loads(top(tmp_path, "--json"))["jobs"][0]["job"]
        options = ("--json", "--job", str(number))
        with following(tmp_path, *options) as line_with:
            lab.fault(1, "blackhole")
            event = assert_conforms("follow", line_with('"path-down"'))
            assert (event["job"], event["rail"]) == (number, "rail1"), event
            lab.clear()
            line_with('"path-up"')
    assert_right(job.result)
    # A job that has ended is told of once, and the command ends.
    words = [str(labs.MARLINE), "events", "--follow", *options, str(tmp_path)]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert '"path-down"' in told


def test_top_without_a_terminal_names_the_way_out(tmp_path):
    words = [str(labs.MARLINE), "top", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 125 and "--once" in done.stderr, done
