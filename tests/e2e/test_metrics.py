"""`marline stats --prometheus`: metrics by host and rail of jobs that the lab disturbs. Prometheus' own
tool, promtool, checks them, and the alerts that they raise."""

import json
import os
import re
import signal
import subprocess
import time
from collections import defaultdict

import pytest

import lab as labs
from test_faults import assert_right, under_way
from test_group_keys import attacked as group_attacked, four, stranger  # noqa: F401
from test_multicast import assert_right as assert_multicast_right, survivors
from test_strangers import KEY_OF_ANOTHER_JOB, attacked, three, with_key  # noqa: F401

PROMTOOL = labs.MPI_DIR / "promtool"
FILES = labs.ROOT / "packaging" / "prometheus"
RULES = FILES / "marline-rules.yml"
SLURM_JOB = "4711"


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's statistics")


class Scraped:
    """Metrics of one scrape: values by name and labels."""

    LINE = re.compile(r'(\w+)(?:\{((?:\w+="[^"]*",?)+)\})? (\S+)')

    def __init__(self, text):
        self.text, self.samples = text, {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = self.LINE.fullmatch(line).groups()
            key = name, tuple(re.findall(r'(\w+)="([^"]*)"', labels or ""))
            assert key not in self.samples, line
            self.samples[key] = float(value)

    def value(self, name, host="", **labels):
        """The sum of the samples with these labels; of the host, the end of its name."""
        found = [value for (known, pairs), value in self.samples.items()
                 if known == name and dict(pairs).get("host", "").endswith(host)
                 and labels.items() <= dict(pairs).items()]
        assert found, (name, host, labels, self.text)
        return sum(found)

    def counters(self):
        return {key: value for key, value in self.samples.items() if key[0].endswith("_total")}


class Collector:
    """Writes the metrics of a folder to a file, as the timer does."""

    def __init__(self, pages, file):
        self.pages, self.file = pages, file
        self.before = {}

    def look(self):
        words = [labs.MARLINE, "stats", "--prometheus", "--textfile", self.file, self.pages]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stdout + done.stderr, done.stdout + done.stderr
        assert self.file.stat().st_mode & 0o777 == 0o644
        scraped = Scraped(self.file.read_text())
        now = scraped.counters()
        backwards = [key for key, value in self.before.items() if now[key] < value]
        assert not backwards, backwards
        self.before = now
        return scraped

    def until(self, job, reached):
        limit = time.monotonic() + 60
        while not reached(scraped := self.look()):
            assert job.running() and time.monotonic() < limit, (scraped.text, job.output())
        return scraped


@pytest.fixture
def collector(tmp_path):
    for name in ("pages", "metrics"):
        (tmp_path / name).mkdir()
    return Collector(tmp_path / "pages", tmp_path / "metrics" / "marline.prom")


def in_slurm(stress):
    """The program as if a job of Slurm had started it."""
    return lambda *words: ["env", f"SLURM_JOB_ID={SLURM_JOB}", *stress(*words)]


def test_a_cut_rail_and_the_job_are_in_the_metrics(lab, stress, mpich, collector):
    """Counters outlive the processes and their pages."""
    idle = collector.look()
    assert idle.value("marline_processes") == 0
    env = {"FI_MARLINE_STATS_DIR": collector.pages}
    with under_way(lab, in_slurm(stress), mpich, "marline", env=env, n=4) as job:
        up = collector.until(job, lambda now: now.value("marline_processes") == 4)
        assert up.value("marline_processes", "h1", slurm_job_id=SLURM_JOB) == 2, up.text
        for rail in ("rail0", "rail1"):
            assert up.value("marline_rail_state", "h1", rail=rail, state="up") == 1, up.text
        lab.fault("h1:1", "down")
        collector.until(job, lambda now: now.value("marline_rail_state", "h1", rail="rail1", state="link_down"))
        down = collector.until(job, lambda now: now.value("marline_rail_state", "h0", rail="rail1", state="down"))
        assert down.value("marline_rail_state", rail="rail0", state="up") == 2, down.text
        lab.clear()
        collector.until(job, lambda now: now.value("marline_rail_state", rail="rail1", state="up") == 2)
    assert_right(job.result)
    ended = collector.look()
    assert ended.value("marline_processes") == 0
    assert ended.value("marline_rail_downs_total", "h1", rail="rail1") == 2
    for histogram in ("marline_message_size_bytes", "marline_message_wait_seconds", "marline_outage_wait_seconds"):
        everything = ended.value(histogram + "_count")
        assert everything > 0 and ended.value(histogram + "_bucket", le="+Inf") == everything
    for kind in ("eager", "rendezvous"):
        assert ended.value("marline_message_wait_seconds_count", kind=kind) > 0, ended.text
    assert ended.value("marline_peers_sent_bytes_total", "h0") > 0
    for page in collector.pages.iterdir():
        page.unlink()
    assert collector.look().counters() == ended.counters()


def promtool(*words, **options):
    """Runs Prometheus' tool, which has to be content."""
    if not PROMTOOL.exists():
        pytest.fail(f"{PROMTOOL} is missing: run `scripts/install-deps packages`")
    done = subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stdout + done.stderr


def by_minute(scrapes):
    """Series of promtool's tests, with a scrape each minute."""
    series = defaultdict(lambda: ["_"] * len(scrapes))
    for minute, scraped in enumerate(scrapes):
        for (name, labels), value in scraped.samples.items():
            pairs = ",".join(f'{label}="{text}"' for label, text in labels)
            series[f"{name}{{{pairs}}}"][minute] = repr(value)
    return {name: " ".join(values) for name, values in series.items()}


def assert_alerts(folder, series, by_time):
    """At these minutes, so many alerts fire of each name, and no others."""
    def test(minute, alerts):
        samples = [{"labels": f'{{alertname="{name}"}}', "value": count} for name, count in alerts.items()]
        return {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{minute}m",
                "exp_samples": samples}

    inputs = [{"series": name, "values": values} for name, values in series.items()]
    tests = [test(minute, alerts) for minute, alerts in by_time.items()]
    text = {"rule_files": [str(RULES)], "evaluation_interval": "30s",
            "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}]}
    file = folder / "rules-test.json"
    file.write_text(json.dumps(text))
    promtool("test", "rules", file)


@pytest.mark.packages
def test_promtool_is_content_with_the_files(tmp_path):
    promtool("check", "rules", RULES)
    dashboard = json.loads((FILES / "marline-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = {"$__rate_interval": "5m", "$host": ".*", "$rail": ".*"}
    rules = []
    for number, text in enumerate(expressions):
        for variable, value in variables.items():
            text = text.replace(variable, value)
        rules.append({"record": f"panel:{number}", "expr": text})
    assert len(rules) > 15, rules
    file = tmp_path / "panels.json"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", file)


@pytest.mark.packages
def test_alerts_of_a_job_with_a_cut_and_a_corrupting_rail(wire_lab, stress, mpich, collector, tmp_path):
    """A minute for each scrape of the job: three in peace, then those of the faults."""
    env = {"FI_MARLINE_STATS_DIR": collector.pages}
    with under_way(wire_lab, in_slurm(stress), mpich, "marline", env=env, n=4) as job:
        collector.until(job, lambda now: now.value("marline_processes") == 4)
        scrapes = [collector.look() for _ in range(3)]
        promtool("check", "metrics", input=scrapes[-1].text)
        wire_lab.fault(0, "corrupt=0.005")

        def corrupts(now):
            counters = ("marline_rail_corrupt_heads_total", "marline_paths_corrupt_payloads_total")
            return all(sum(now.value(name, host, rail="rail0") for name in counters) > 20 for host in ("h0", "h1"))

        scrapes.append(collector.until(job, corrupts))
        wire_lab.clear()
        # Paths are given up for damage, too.
        collector.until(job, lambda now: now.value("marline_rail_state", rail="rail0", state="up") == 2)
        wire_lab.fault("h1:1", "down")

        def is_cut(now):
            wanted = {"h0": "down", "h1": "link_down"}
            return all(now.value("marline_rail_state", host, rail="rail1", state=state) for host, state in wanted.items())

        scrapes += 2 * [collector.until(job, is_cut)]
        wire_lab.clear()
    assert_right(job.result)
    scrapes += 8 * [collector.look()]
    promtool("check", "metrics", input=scrapes[-1].text)
    assert_alerts(tmp_path, by_minute(scrapes), {
        2: {}, 3: {"MarlineCorruption": 2}, 5: {"MarlineCorruption": 2, "MarlineRailDown": 2}, 12: {}})


@pytest.mark.packages
def test_alerts_of_an_unprotected_job(lab, stress, mpich, collector, tmp_path):
    env = {"FI_MARLINE_STATS_DIR": collector.pages, "FI_MARLINE_CHECKSUM": "none"}
    name = "marline_unprotected_processes"
    with under_way(lab, stress, mpich, "marline", env=env) as job:
        seen = collector.until(job, lambda now: now.value("marline_processes") and now.value(name) == 2)
    assert_right(job.result)
    assert seen.value(name, reason="no_checksums") == 2, seen.text
    assert_alerts(tmp_path, by_minute(3 * [seen] + 2 * [collector.look()]), {2: {"MarlineUnprotected": 2}, 4: {}})


@pytest.mark.packages
def test_a_healthy_job_raises_no_alert(lab, stress, mpich, collector, tmp_path):
    """From before its begin to after its end."""
    scrapes = [collector.look()]
    env = {"FI_MARLINE_STATS_DIR": collector.pages}
    with under_way(lab, in_slurm(stress), mpich, "marline", env=env, n=4) as job:
        scrapes += 3 * [collector.until(job, lambda now: now.value("marline_processes") == 4)]
    assert_right(job.result)
    scrapes += 3 * [collector.look()]
    assert scrapes[-1].value("marline_peers_messages_sent_total") > 0
    file = collector.file.stat()
    series = by_minute(scrapes) | age(collector.file, [time.time() - file.st_mtime] * len(scrapes))
    assert_alerts(tmp_path, series, dict.fromkeys(range(len(scrapes)), {}))


def age(file, ages_s):
    """The series of a file's time, of which these are the ages at each minute of promtool's clock."""
    values = " ".join(str(60 * minute - seconds) for minute, seconds in enumerate(ages_s))
    return {f'node_textfile_mtime_seconds{{file="{file}"}}': values}


@pytest.mark.packages
def test_metrics_that_are_not_written_any_more(collector, tmp_path):
    collector.look()
    fresh = time.time() - collector.file.stat().st_mtime
    ages = 3 * [fresh] + [fresh + 60 * minutes for minutes in range(1, 9)] + [fresh]
    assert_alerts(tmp_path, age(collector.file, ages), {2: {}, 6: {}, 8: {"MarlineMetricsOld": 1}, 11: {}})


@pytest.mark.packages
def test_alerts_of_a_dead_peer(lab, stress, mpich, collector, tmp_path):
    """A rank is killed; the other one lives long enough to say so."""
    words, env = survivors(mpich)
    env |= {"FI_MARLINE_STATS_DIR": collector.pages, "FI_MARLINE_PEER_TIMEOUT_MS": 2000}

    def outliving(*args):
        return [*words, *stress(*args)]

    with under_way(lab, outliving, mpich, "marline", env=env) as job:
        scrapes = 3 * [collector.until(job, lambda now: now.value("marline_processes") == 2)]
        ranks = job.descendants(f"^{mpich.program('stress')} ")
        os.kill(max(ranks), signal.SIGKILL)
    assert job.result.code != 0, job.result.tail()
    dead = collector.look()
    assert dead.value("marline_process_peers_dead_total") == 1, dead.text
    scrapes += 12 * [dead]
    assert_alerts(tmp_path, by_minute(scrapes), {2: {}, 3: {"MarlinePeersDead": 1}, 14: {}})


@pytest.mark.packages
def test_alerts_of_a_stranger(three, stress, mpich, tmp_path):
    """A stranger sends packets in the names of a rank, with the key of another job. A handful is no alert."""
    with attacked(three, stress, mpich, tmp_path, with_key()) as it:
        collector = Collector(it.folder / "stats", tmp_path / "marline.prom")
        scrapes = 3 * [collector.until(it.job, lambda now: now.value("marline_processes") == 2)]

        def knocks(count, wanted):
            before = it.count("forged")
            it.attack("hello", f"key={KEY_OF_ANOTHER_JOB}", f"count={count}")
            it.counts("forged", before, wanted)
            reached = it.count("forged")
            forged = "marline_rail_forged_total"
            return collector.until(it.job, lambda now: now.value(forged, "h1", rail="rail0") >= reached)

        scrapes += 2 * [knocks(4, 2)]
        scrapes += 12 * [knocks(60, 30)]
    assert_right(it.job.result)
    assert_alerts(tmp_path, by_minute(scrapes), {2: {}, 4: {}, 5: {"MarlineAuthRefusals": 1}, 16: {}})


@pytest.mark.packages
def test_alerts_of_packets_that_are_sent_again(four, mpich, tmp_path):
    """A host that has joined the group of a job repeats its packets."""
    name = "marline_rail_replayed_total"
    with group_attacked(four, mpich, tmp_path, with_key()) as (job, _, recording):
        collector = Collector(tmp_path / "stats", tmp_path / "marline.prom")
        scrapes = 3 * [collector.look()]
        stranger(four, "replay", f"recording={recording}", "count=60")
        heard = lambda now: any(now.value(name, host) >= 30 for host in ("h0", "h1", "h2"))  # noqa: E731
        scrapes += 12 * [collector.until(job, heard)]
    assert_multicast_right(job.result)
    refused = [value for (known, _), value in scrapes[-1].samples.items() if known == name and value > 10]
    alerts = {"MarlineAuthRefusals": len(refused)}
    assert_alerts(tmp_path, by_minute(scrapes), {2: {}, 3: alerts, 14: {}})


@pytest.mark.packages
def test_alerts_of_another_queue_key(tmp_path):
    """Adapters count such datagrams: made-up series."""
    labels = '{host="n1",rail="mlx5_0"}'
    inputs = {f"marline_rail_{other}_total{labels}": "0x13" for other in ("forged", "replayed")}
    inputs["marline_rail_qkey_violations" + labels] = "0 0" + 12 * " 50"
    assert_alerts(tmp_path, inputs, {1: {}, 3: {"MarlineAuthRefusals": 1}, 13: {}})
