"""The evaluation of `bench/evaluation`: readers, statistics, page, plan and regression marks, on records
made up here; docs/results.md is what the committed records give, and documents quote it rightly."""

import csv
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import lab as labs

sys.path.insert(0, str(labs.ROOT / "bench"))

from evaluation import agreement, marks, page, plan, ranks, scale  # noqa: E402
from evaluation.records import Records, classes, where  # noqa: E402
from evaluation.rows import MISSING, Row, missing, relative, value  # noqa: E402
from evaluation.spread import by_round, ratios, short, spread  # noqa: E402

CPU = "AMD EPYC (family 25, model 1)"
OF_RUN = dict(cpu=CPU, hop_before_ns=70, hop_after_ns=70, library="plain", bytes=8, unit="us", test="latency")


def write(folder, name, rows):
    with open(folder / f"{name}.csv", "w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return folder / f"{name}.csv"


def of_run(contender, values, **more):
    """Samples of bench/run, one for each round."""
    return [{"date": "2026-01-01T00:00:00", "round": n, "contender": contender, "value": v, "class": "near",
             **OF_RUN, **more} for n, v in enumerate(values)]


def test_records_are_found_by_kind_newest_first(tmp_path):
    for name in ("2026-01-01-0900-run", "2026-01-02-0900-run", "2026-01-02-0900-run-2",
                 "2026-01-03-0900-checksums-10gbit", "2026-01-04-sim-scale"):
        write(tmp_path, name, of_run("marline", [5]))
    write(tmp_path, "2026-01-02-0800-run", of_run("marline", [5], cpu="another"))
    (tmp_path / "notes.csv").write_text("no record\n")
    records = Records(tmp_path)
    assert records.newest("run").name == "2026-01-02-0900-run-2"
    assert len(records.newest("run").all_rows) == 2, "those of one day and machine are one"
    assert records.newest("checksums-10gbit").date == "2026-01-03"
    assert records.newest("sim-scale").cpu == CPU
    assert records.newest("run", contender="marline raw") is None
    older = records.before(records.newest("run"))
    assert older.newest("run").name == "2026-01-01-0900-run"
    assert older.newest("sim-scale"), "records of other kinds stay"


def test_comments_and_samples_that_moved_do_not_count(tmp_path):
    moved = of_run("marline", [50], **{"class": "changed"})
    path = write(tmp_path, "2026-01-01-run", of_run("marline", [5, 6]) + moved)
    path.write_text("# said of it\n" + path.read_text())
    record = Records(tmp_path).newest("run")
    assert [row["value"] for row in record.rows(contender="marline")] == ["5", "6"]
    assert classes(record.all_rows) == ["near"]
    assert where(record.all_rows, value=("6", "7")) == record.rows(value="6")


def test_a_spread_has_median_mean_and_interval():
    one = spread([4.0])
    assert (one.median, one.low, one.high, one.deviation, one.n) == (4, 4, 4, 0, 1)
    many = spread([1.0, 2.0, 3.0, 4.0, 10.0])
    assert (many.median, many.mean, many.n) == (3, 4, 5)
    assert 1 <= many.low < many.median < many.high <= 10
    assert spread([]) is None and spread([float("nan"), float("inf")]) is None


def test_ratios_are_made_within_rounds():
    ours, theirs = of_run("marline", [2, 3, 8]), of_run("tcp", [4, 6, "not done"])
    assert ratios(ours, theirs) == [0.5, 0.5]
    assert len(by_round(theirs)) == 2


@pytest.mark.parametrize("value_, text", [(0.12345, "0.123"), (5.0, "5"), (1234, "1,230"), (99.96, "100"),
                                          (-4117.5, "-4,120")])
def test_figures_have_three_digits(value_, text):
    assert short(value_) == text


def test_the_best_peer_counts_and_classes_stay_apart(tmp_path):
    rows = of_run("marline", [5, 5]) + of_run("a", [10, 10]) + of_run("b", [20, 20])
    write(tmp_path, "2026-01-01-run", rows + of_run("a", [1, 1], **{"class": "far"}))
    record = Records(tmp_path).newest("run")
    others = {name: dict(contender=name) for name in "ab"}
    row = value("x", "8 B", "", record, "us", True, ours=dict(contender="marline"), others=others)
    assert (row.peer, row.ratio.median, row.cores, row.ours.n) == ("a", 0.5, "near", 2)
    row = value("x", "8 B", "", record, "us", False, ours=dict(contender="marline"), others=others)
    assert (row.peer, row.ratio.median) == ("b", 0.25)


def test_what_was_not_measured_says_so(tmp_path):
    write(tmp_path, "2026-01-01-run", of_run("marline", [5]))
    record = Records(tmp_path).newest("run")
    for row in (value("x", "8 B", "1.4", None, "us", True, ours={}),
                value("x", "8 B", "1.4", record, "us", True, ours=dict(contender="marline raw")),
                relative("x", "8 B", "1.4", record, True, ours=dict(contender="marline"),
                         base=dict(contender="raw"))):
        assert row == missing("x", "8 B", "1.4") and MISSING in page.cells(row)


def test_a_page_without_records_has_no_figure_of_ours(tmp_path):
    (tmp_path / "record").mkdir()
    records = Records(tmp_path / "record")
    parts = page.sections(records)
    assert all(row.ours is None and row.reason for part in parts for row in part.rows)
    assert list(page.files(records, set())) == [page.PAGE] == page.stale(records, tmp_path)


def test_a_record_comes_through_to_the_page(tmp_path):
    folder = tmp_path / "record"
    folder.mkdir()
    rows = [dict(date="2026-01-01", cpu=CPU, round=n, program="cg", mpi="mpich", checksums=on, seconds=s)
            for n in range(6) for on, s in (("on", 1.03), ("off", 1.0))]
    write(folder, "2026-01-01-0900-apps", rows)
    paths = page.write(Records(folder), tmp_path, {"nas-cg"})
    assert tmp_path / page.PAGE in paths
    lines = [line for line in (tmp_path / page.PAGE).read_text().splitlines() if 'id="nas-cg"' in line]
    [cells] = [line.split("|") for line in lines]
    assert cells[2] == "1.03" and cells[6] == "6" and cells[-1] == "`2026-01-01-0900-apps`"
    assert "`2026-01-01-0900-apps`|EPYC-25-1|`bench/apps`" in (tmp_path / page.PAGE).read_text()
    assert page.stale(Records(folder), tmp_path, {"nas-cg"}) == []
    assert page.stale(Records(folder), tmp_path, set()) == [page.PAGE]


def test_anchors_of_rows_are_distinct():
    rows = [row.anchor for part in page.sections(Records()) for row in part.rows]
    assert len(rows) == len(set(rows)) > 80
    assert all(re.fullmatch(r"[a-z0-9-]+", anchor) for anchor in rows), rows


def test_pictures_are_well_formed():
    pictures = {name: text for part in page.sections(Records()) for name, text in part.pictures.items()}
    assert len(pictures) > 2
    for text in pictures.values():
        assert ElementTree.fromstring(text).tag.endswith("svg")


def test_the_page_is_that_of_the_records():
    assert page.stale(Records()) == [], "`python3 bench/evaluation --render` makes it anew"


def test_a_stale_page_is_named(tmp_path):
    """Regression: without --render, --check began to measure."""
    (tmp_path / page.PAGE).write_text("another\n")
    words = ["--check", "--records", tmp_path, "--docs", tmp_path]
    done = subprocess.run([sys.executable, labs.ROOT / "bench" / "evaluation", *words],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"not as the records have it: {page.PAGE}" in done.stderr


def quoted():
    """(document, text, anchor) of each link to a row of the page."""
    pages = [labs.ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    for document in [*pages, *sorted((labs.ROOT / "docs").rglob("*.md"))]:
        for text, anchor in re.findall(r"\[([^]]+)\]\([^)]*results\.md#([^)]+)\)", document.read_text()):
            yield document.name, " ".join(text.split()), anchor


def numbers(text):
    """Numbers as they are written."""
    return [figure.replace(",", "") for figure in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def quotes(figure, row):
    """Whether a figure is one of a row's, or that rounded."""
    places = len(figure.partition(".")[2])
    *cells, _record = row.split("|")
    return any(f"{float(number):.{places}f}" == figure for cell in cells[1:] for number in numbers(cell))


def test_figures_are_compared_as_they_are_rounded():
    row = '<a id="stall-3"></a>stall 9|4 F5|3.25|ms,≤1,290|`2026-01-07-run`'
    assert quotes("3", row) and quotes("3.2", row) and quotes("3.25", row) and quotes("1290", row)
    assert not quotes("2026", row) and not quotes("9", row) and not quotes("3.3", row)


def test_documents_quote_the_page_rightly():
    """The figures in a link's text are those of its row; links without one lead to a heading."""
    rows = {}
    for line in (labs.ROOT / "docs" / page.PAGE).read_text().splitlines():
        if found := re.match(r'<a id="([^"]+)"></a>', line):
            rows[found[1]] = line
    links = [(document, text, anchor) for document, text, anchor in quoted() if anchor in rows or numbers(text)]
    assert len(links) > 10
    for document, text, anchor in links:
        wrong = [figure for figure in numbers(text) if not quotes(figure, rows.get(anchor, ""))]
        assert anchor in rows and not wrong, f"{document}: {wrong or anchor} of {text!r} not in {rows.get(anchor)}"


def with_interval(low, middle, high, n=7):
    return spread([low, low, middle, middle, middle, high, high][:n])


@pytest.mark.parametrize("before, after, less, expected", [
    ((5.0, 5.1, 5.2), (6.0, 6.1, 6.2), True, True),
    ((5.0, 5.1, 5.2), (6.0, 6.1, 6.2), False, False),
    ((6.0, 6.1, 6.2), (5.0, 5.1, 5.2), False, True),
    ((5.0, 5.1, 6.1), (6.0, 6.1, 6.2), True, False),
    ((5.0, 5.01, 5.02), (5.1, 5.11, 5.12), True, False),
    ((5.0, 5.1, 5.2), (6.0, 6.1, 6.2), None, False),
], ids=["slower", "faster", "less bandwidth", "intervals meet", "under 5 %", "no direction"])
def test_a_fall_is_more_than_the_interval(before, after, less, expected):
    assert marks.fell(with_interval(*before), with_interval(*after), less) is expected


def test_few_rounds_tell_no_fall():
    assert not marks.fell(spread([5.0] * 4), spread([9.0] * 7), True)


def both(ours, peer, **more):
    return of_run("marline", ours, **more) + of_run("mpich tcp", peer, **more)


def compare(tmp_path, before, after):
    old, new = write(tmp_path, "2026-01-01-0900-run", before), write(tmp_path, "2026-01-02-0900-run", after)
    return subprocess.run([sys.executable, labs.ROOT / "bench" / "run", "--read", new, "--against", old],
                          capture_output=True, text=True)


def test_a_fall_is_named_and_gives_the_status(tmp_path):
    done = compare(tmp_path, both([5, 5.1, 5.2, 5, 5.1], [10] * 5), both([8, 8.1, 8.2, 8, 8.1], [10] * 5))
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"fell: marline, latency, 8 B, cores near: 0.81, before 0.51 \(over mpich tcp\)", done.stdout)


def test_a_slower_machine_is_no_fall(tmp_path):
    """Both take twice as long."""
    done = compare(tmp_path, both([5, 5.1, 5.2, 5, 5.1], [10] * 5), both([10, 10.1, 10.2, 10, 10.1], [20] * 5))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing fell" in done.stdout


def test_one_round_of_many_sizes_is_judged_together(tmp_path):
    def sizes(factor):
        return [row for n in range(6) for row in both([5 * factor], [10], bytes=8 << n, test="curve-latency")]

    done = compare(tmp_path, sizes(1), sizes(1.5))
    assert done.returncode == 1 and "all 6 sizes, cores near: worse by 1.5" in done.stdout, done.stdout + done.stderr
    assert compare(tmp_path, sizes(1), sizes(1.03)).returncode == 0


def test_the_last_record_is_that_of_the_same_processor_and_build(tmp_path):
    write(tmp_path, "2026-01-01-0900-run", both([5], [10]))
    write(tmp_path, "2026-01-02-0900-run", both([5], [10], cpu="another"))
    write(tmp_path, "2026-01-03-0900-run", both([5], [10], library="guided"))
    write(tmp_path, "2026-01-04-0900-run", both([5], [10]))
    now = [{key: str(text) for key, text in row.items()} for row in both([5], [10])]
    assert marks.last(Records(tmp_path), now, tmp_path / "2026-01-04-0900-run.csv").name == "2026-01-01-0900-run"
    assert marks.last(Records(tmp_path), [{**row, "cpu": "new"} for row in now]) is None


def kernels(seconds):
    return [dict(date="2026-01-01", cpu=CPU, round=n, program="cg", mpi="mpich", checksums=on, seconds=s)
            for n in range(6) for on, s in (("on", seconds + n / 1000), ("off", 1.0))]


def test_rows_are_compared_with_the_record_before(tmp_path):
    write(tmp_path, "2026-01-01-0900-apps", kernels(1.0))
    write(tmp_path, "2026-01-02-0900-apps", kernels(1.2))
    records = Records(tmp_path)
    text = page.files(records, set())[page.PAGE]
    assert "0 of 1 rows" in text and "- cg: 1, `2026-01-01-0900-apps`" in text
    assert len(agreement.fallen(page.sections(records), records)) == 1
    words = [sys.executable, labs.ROOT / "bench" / "evaluation", "--compare", "--records", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and "fell: cg: 1.2, before 1" in done.stderr


def test_the_plan_keeps_its_time():
    for quick, limit_s in ((False, plan.FULL_S), (True, plan.QUICK_S)):
        steps = [step for step in plan.STEPS if step.words(quick)]
        assert sum(step.limit_s(quick) for step in steps) <= limit_s
        assert all((labs.ROOT / "bench" / step.program).is_file() for step in steps)


def test_steps_without_time_are_named():
    now, ran = [0.0], []

    def run(step, words, limit_s, env):
        ran.append((step.program, limit_s))
        now[0] += 0.9 * plan.QUICK_S
        return step.program == "a"

    steps = [plan.Step(name, "", 0, "", seconds) for name, seconds in (("a", 500), ("b", 100), ("c", 100))]
    left_out = plan.run_all(True, "folder", steps=steps, clock=lambda: now[0], run=run)
    assert ran == [("a", 500), ("b", pytest.approx(90))]
    assert [text.split(":") for text in left_out] == [["b ", " failed"], ["c ", " no time left"]]


def test_an_interrupted_step_writes_what_it_has():
    program = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what runs in the background
try:
    print("begun", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("kept")
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                             start_new_session=True)
    assert child.stdout.readline() == "begun\n"
    assert plan.interrupt(child) and child.stdout.read() == "kept\n"


def test_a_step_that_fails_is_none_that_ended_well():
    step = plan.Step("fails", "", 1, "", 1)
    assert not plan.run(step, [sys.executable, "-c", "raise SystemExit(3)"], 60, {})


@pytest.mark.parametrize("growth", scale.GROWTHS)
def test_growth_is_fitted(growth):
    f = scale.GROWTHS[growth]
    assert scale.fit([(n, 5 + 2 * f(n)) for n in (16, 64, 256, 1024, 4096)])[0] == growth


@pytest.mark.parametrize("head, line", [
    ("work,hosts,virtual_us,seconds", "start,{n},{value},9"),
    ("part,quantity,unit,endpoints,value", "start,virtual us,us,{n},{value}\nstart,wall time,s,{n},9"),
], ids=["a column for each", "a row for each"])
def test_growth_of_both_forms_of_records(tmp_path, head, line):
    lines = [line.format(n=n, value=10 * n) for n in (16, 64, 256)]
    (tmp_path / "2026-01-01-0900-scale.csv").write_text("\n".join(["# said of it", head, *lines, ""]))
    part = scale.section(Records(tmp_path))
    assert [(row.name, row.ours) for row in part.rows] == [("start-virtual-us", "160→2,560")]
    assert part.rows[0].unit.endswith("N") and "results-scale.svg" in part.pictures


def test_many_ranks_stand_beside_tcp(tmp_path):
    measured = {column: 4 for column in ranks.MEASURES}
    of_job = dict(date="2026-01-01", cpu=CPU, round=0, mpi="mpich", ranks=64)
    rows = [{**of_job, "way": "tcp", **measured}, {**of_job, "way": "marline", **measured, "start_s": 2},
            {**of_job, "ranks": 128, "way": "marline", **dict.fromkeys(measured, "")}]
    write(tmp_path, "2026-01-01-0900-ranks", rows)
    found = {row.name: row for row in ranks.job_rows(Records(tmp_path))}
    row = found["mpich-64-start"]
    assert (row.ours.median, row.unit, row.peer, row.ratio.median) == (2, "s", "TCP", 0.5)
    assert found["mpich-128-start"].reason == ranks.UNENDED


def test_texts_of_several_figures_stand_as_they_are():
    record = Records().newest("run")
    assert page.cells(Row("x", "rc", "1/2", "3/4", "us", record=record))[1:5] == ["1/2", "3/4", "us", ""]
