"""Reports: `marline report` names the rail that the lab cuts, its hosts and the times, and its page has
the numbers of the counters."""

import json
import re
import subprocess
import time
from html.parser import HTMLParser

import pytest

import lab as labs
from schemas import assert_conforms
from test_faults import assert_right, under_way


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's statistics")


def report(folder, *options):
    words = [str(labs.MARLINE), "report", *map(str, options), str(folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def outages(folder):
    [job] = json.loads(report(folder, "--json"))["jobs"]
    return job["outages"]


def job_with_a_cut(lab, stress, mpi, folder, target, *fault):
    """A job with a rail that fails in its middle and comes back; returns the seconds since 1970
    before the fault and after the job. Reports are made while it runs, too."""
    env = {"FI_MARLINE_STATS_DIR": folder}

    def until(reached):
        limit = time.monotonic() + 60
        while not reached(outages(folder)):
            assert job.running() and time.monotonic() < limit, job.output()

    with under_way(lab, stress, mpi, "marline", 4, env=env) as job:
        began = time.time()
        lab.fault(target, *fault)
        until(lambda found: any(one["to_unix_ns"] is None for one in found))
        lab.clear()
        until(lambda found: all(one["to_unix_ns"] for one in found))
    assert_right(job.result)
    return began, time.time()


class Page(HTMLParser):
    """The findings and the table of rails of a page; each element that opens has to close."""

    VOID = {"meta", "br", "hr", "img", "input", "link"}

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.findings, self.bars, self.curves = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        assert not {"src", "href", "srcset"} & set(named), attributes
        if tag not in self.VOID:
            self.open.append((tag, named.get("class", "")))
        if tag == "tr":
            self.rows.append([])
        if tag == "data":
            value = named["value"]
            self.rows[-1].append(float(value) if "." in value else int(value))
        if tag == "rect" and named.get("class") == "down":
            self.bars.append("")

    def handle_endtag(self, tag):
        assert self.open and self.open.pop()[0] == tag, (tag, self.open)

    def handle_data(self, text):
        tags = [tag for tag, _ in self.open]
        if tags[-2:] == ["tr", "td"]:
            self.rows[-1].append(text)
        if ("g", "curve") in self.open and tags[-1] == "text":
            self.curves.append(text)
        if ("ul", "findings") in self.open:
            self.findings.append(text)
        if tags[-2:] == ["rect", "title"] and self.bars:
            self.bars[-1] += text

    def rails(self):
        """Cells of the table of rails by host and rail."""
        named = [row for row in self.rows if row and re.search(r":rail\d$", str(row[0]))]
        return {row[0]: row[1:] for row in named}


# Columns of the page, and the members of rails in JSON.
COLUMNS = ["bytes_sent", "bytes_received", "packets_sent", "lost", "resent", "resent_spurious", "corrupt",
           "failovers"]


def assert_has_waits(job, page):
    """The page has the classes of waits, and the sentence of the longest wait, which is in the last class."""
    bounds = [wait["up_to_ns"] or float("inf") for wait in job["waits"]]
    counts = [[wait["eager"], wait["rendezvous"]] for wait in job["waits"]]
    used = [n for n, both in enumerate(counts) if any(both)]
    assert used, job
    shown = [row[1:] for row in page.rows if row and re.match("up to .*s$|longer", str(row[0]))]
    assert shown == counts[used[0]:used[-1] + 1], (shown, counts)
    assert [0, *bounds][used[-1]] < job["message_wait_max_ns"] <= bounds[used[-1]], job
    assert any(text.startswith("the longest wait of any message was ") for text in page.findings), page.findings


def assert_same_numbers(folder, page):
    """Page, JSON and `marline stats` have the same numbers."""
    [job] = assert_conforms("report", report(folder, "--json"))["jobs"]
    shown = page.rails()
    assert shown.keys() == {f"{rail['host']}:{rail['rail']}" for rail in job["rails"]}, shown
    for rail in job["rails"]:
        assert shown[f"{rail['host']}:{rail['rail']}"] == [rail[name] for name in COLUMNS], rail
    stats = subprocess.run([labs.MARLINE, "stats", "--json", folder], capture_output=True, text=True,
                           check=True).stdout
    for sums in assert_conforms("stats", stats)["jobs"][0]["rails"]:
        ours = [rail for rail in job["rails"] if rail["rail"] == sums["name"]]
        for name in ("lost", "corrupt", "failovers"):
            assert sum(rail[name] for rail in ours) == sums[name], (name, sums, ours)
        for name, counter in (("bytes_sent", "wire_bytes_sent"), ("packets_sent", "wire_packets_sent")):
            assert sum(rail[name] for rail in ours) == sums["rail"][counter], (name, sums, ours)
    assert all(rail["packets_sent"] for rail in job["rails"] if rail["rail"] in ("rail0", "rail1")), job["rails"]
    # The curves have the bytes of the rails, the map of hosts and the processes those of the messages.
    curves = {(curve["host"], curve["rail"]): curve for curve in job["bandwidth"]["rails"]}
    for rail in job["rails"]:
        curve = curves[rail["host"], rail["rail"]]
        assert sum(curve["sent"]) == rail["bytes_sent"] and sum(curve["received"]) == rail["bytes_received"], rail
        assert f"{rail['host']}:{rail['rail']}" in page.curves, page.curves
    between = job["between_hosts"]
    assert sum(map(sum, between["bytes"])) + between["bytes_elsewhere"] == job["bytes_sent"], between
    assert sum(talker["bytes"] for talker in job["talkers"]) == job["bytes_sent"], job["talkers"]
    assert_has_waits(job, page)
    [version] = job["versions"]
    assert version["processes"] == job["processes"] and "(wire " in version["text"], version
    assert any(one["text"].startswith("FI_MARLINE_STATS_DIR=") for one in job["settings"]), job["settings"]
    return job


def test_the_report_names_the_rail_that_was_cut(lab, stress, mpich, tmp_path):
    began, ended = job_with_a_cut(lab, stress, mpich, tmp_path, "h1:1", "down")
    file = tmp_path / "report.html"
    assert report(tmp_path, "--html", file) == ""
    text = file.read_text()
    assert "http:" not in text and "https:" not in text
    page = Page(text)
    job = assert_same_numbers(tmp_path, page)
    for outage in job["outages"]:
        assert [(end["host"][-2:], end["rail"]) for end in outage["ends"]] == [("h1", "rail1")], outage
        assert began * 1e9 <= outage["from_unix_ns"] <= outage["to_unix_ns"] <= ended * 1e9, outage
    time_of_day = r"\d\d:\d\d:\d\d"
    said = rf"rail1 on \S*h1 was down from {time_of_day} to {time_of_day} "
    found = [text for text in page.findings if re.match(said, text)]
    assert len(found) == len(job["outages"]) >= 1, page.findings
    assert f"{job['outages'][0]['packets_moved']} packet" in found[0], page.findings
    assert len(page.bars) == len(found) and re.match(r"rail1 on \S*h1, ", page.bars[0]), page.bars
    # The only pair of hosts with a bad path: the host whose system reported its rail is named.
    assert any(re.search(r"given up ends at \S*h1:rail1, which", text) for text in page.findings), page.findings
    # The same in text, whose lines are folded.
    folded = " ".join(report(tmp_path).split())
    assert found[0] in folded, folded
    assert re.search(r"What to look at - \S*h1:rail1: its cable", folded), folded
    assert not re.search(r"! rail0 ", folded), folded


def test_a_silent_rail_is_named_between_its_hosts(lab, stress, mpich, tmp_path):
    job_with_a_cut(lab, stress, mpich, tmp_path, 1, "blackhole")
    folded = " ".join(report(tmp_path, "--text").split())
    assert re.search(r"! rail1 between \S*h0 and \S*h1 was down from ", folded), folded
    assert re.search(r"- \S*h0:rail1 and \S*h1:rail1: their cables", folded), folded


def test_a_job_without_faults_has_nothing_to_look_at(lab, stress, mpich, tmp_path):
    env = {"FI_MARLINE_STATS_DIR": tmp_path}
    assert_right(lab.run(mpich, stress(mpich, "--iterations", 1, "--max-size", 65536), env=env))
    text = report(tmp_path)
    assert "- no rail, path or peer has failed" in text and "What to look at" not in text, text
