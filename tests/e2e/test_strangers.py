"""Programs outside a job attack it: from another host of its networks and as another user of its
host, without the job's key, with that of another job, and with recorded packets of the job. The
attacks are those of `tests/strangers`; counters of the victim show that they arrived."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import lab as labs
from test_faults import assert_right, goes_on, under_way

pytestmark = pytest.mark.any_mpi

STRANGER = labs.MARLINE.parent / "stranger"
LOCAL = labs.ROOT / "tests" / "e2e" / "local_stranger.py"
RECORDER = labs.ROOT / "tests" / "e2e" / "record.py"
KEY = "00112233445566778899aabbccddeeff" * 2
KEY_OF_ANOTHER_JOB = "f0112233445566778899aabbccddeeff" * 2
# The host beside the job, and the attacked one.
OTHER, VICTIM = "10.100.0.3", "10.100.0.2"
# Bytes of a packet's header, which names both ends.
HEADER_BYTES = 48
# More memory than this is a leak: strangers may have a few MiB, and the job's own varies.
GROWTH_KIB = 24 << 10
# Bound for a full table of 4,096 strangers (docs/design/bounds.md); 10,000 would exceed it.
FULL_TABLE_KIB = 64 << 10
# A byte for each of the soak's packets, or less.
FLOOD_KIB = 8 << 10
# The job itself opens and closes some: connected sockets, memory that it shares.
OWN_DESCRIPTORS = 16
PEERS_NAMES = ("bye", "jump", "rails", "future")
HARMFUL_WITHOUT_A_KEY = ("bye", "future", "rts")
# Counters of packets that have no effect.
REFUSALS = ("corrupt_heads", "duplicates", "forged", "receiver_drops", "remote_refused", "unadmitted",
            "unknown", "wrong_algorithm", "wrong_epoch", "wrong_token", "wrong_version")
OWN_NAMES = ("hello", "rts", "call", "read", "put")


@pytest.fixture(autouse=True)
def only_marline(provider):
    if provider != "marline":
        pytest.skip("it is about Marline's packets")
    assert STRANGER.exists(), "the stranger's toolbox is missing: run `make eager`"


@pytest.fixture(scope="module")
def three():
    """The job runs on the first two hosts; the stranger is on the third."""
    with labs.Lab(f"t{os.getpid()}-strangers", hosts=3) as lab:
        lab.meet()
        yield lab


def numbers(text):
    return {name: int(n) for name, n in re.findall(r"(\w+) (\d+)", text)}


class Attacked:
    """A running job, and attacks on its second rank."""

    def __init__(self, lab, job, mpi, folder, record):
        self.lab, self.job, self.folder = lab, job, folder
        self.recording = folder / "recording"
        self.pids = job.descendants(f"^{mpi.program('stress')} ")
        if record:
            self.record(40)

    def record(self, count):
        words = (sys.executable, RECORDER, "rail0", VICTIM, count, self.recording)
        made = self.lab.exec("h1", *words)
        assert made.returncode == 0, made.stderr

    def count(self, name):
        return labs.counters(self.folder / "stats")[name]

    def refused(self):
        counted = labs.counters(self.folder / "stats")
        return sum(counted[name] for name in REFUSALS)

    def attack(self, *words, recording=True, host="h2", by=(STRANGER,), origin=OTHER, timeout=60):
        """The numbers that the stranger prints, by name."""
        known = [f"recording={self.recording}"] if recording else []
        words = (*words, f"from={origin}", *known)
        done = self.lab.exec(host, *by, *words, timeout=timeout)
        assert done.returncode == 0, (words, done.stderr)
        return numbers(done.stdout)

    def place(self):
        """The victim's address and port on the first rail."""
        return self.recording.read_text().split(" ", 1)[0]

    @contextlib.contextmanager
    def holds(self, host, *words):
        """The numbers that a program on a host prints while it holds its connections."""
        words = [labs.MARLINE, "lab", "exec", "--name", self.lab.name, host, "--", *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([str(w) for w in words], text=True, **pipes) as program:
            told = numbers(program.stdout.readline())
            try:
                yield told
            finally:
                told.update(numbers(program.communicate()[0]))

    def ends(self):
        """Waits for the end of the job, which `under_way` then does not wait for."""
        self.job.process.wait(60)

    def counts(self, name, before, more):
        """Waits until a counter has grown by so many: the attack's packets have arrived."""
        end = time.monotonic() + 30
        while (now := self.count(name)) < before + more:
            assert self.job.running() and time.monotonic() < end, (name, before, more, now)
            time.sleep(0.05)

    def memory(self):
        """Resident memory of each rank in KiB."""
        def resident(pid):
            return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
        return {pid: resident(pid) for pid in self.pids}

    def descriptors(self):
        return {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids}

    def keeps_descriptors(self, before, most):
        grown = {pid: n - before[pid] for pid, n in self.descriptors().items()}
        assert max(grown.values()) < most, grown

    def deaths(self):
        told = labs.events(self.folder / "stats").splitlines()
        return "\n".join(line for line in told if " is dead: " in line)

    def stays_small(self, before, most_kib=GROWTH_KIB):
        grown = {pid: now - before[pid] for pid, now in self.memory().items()}
        assert max(grown.values()) < most_kib, grown


@contextlib.contextmanager
def attacked(lab, stress, mpi, folder, env, record=True, **how):
    (folder / "stats").mkdir(exist_ok=True)
    env = {"FI_MARLINE_STATS_DIR": folder / "stats", "FI_MARLINE_ANY_SOURCE_FAILS": "on",
           "FI_MARLINE_AUTH": "off", **env}
    with under_way(lab, stress, mpi, "marline", env=env, **how) as job:
        yield Attacked(lab, job, mpi, folder, record)


def with_key():
    return {"FI_MARLINE_AUTH": "on", "FI_MARLINE_KEY": KEY}


def port_of(lab, host, address, kind):
    """A port of a rail's address on which a process of the job listens; kind `u` or `t`."""
    shown = lab.exec(host, "ss", f"-H{kind}anl").stdout
    ports = re.findall(rf"\s{re.escape(address)}(?:%\w+)?:(\d+)\s", shown)
    assert ports, shown
    return f"{address}:{ports[0]}"


def test_a_job_with_a_key_obeys_no_stranger(three, stress, mpi, tmp_path):
    """Each attack with the names of a recorded packet, without a tag and with one of another key:
    every packet is counted as forged, and nothing else happens."""
    with attacked(three, stress, mpi, tmp_path, with_key()) as it:
        memory = it.memory()
        for key in ("none", KEY_OF_ANOTHER_JOB):
            for name in OWN_NAMES + PEERS_NAMES:
                before = it.count("forged")
                sent = it.attack(name, f"key={key}", "count=40")["sent"]
                it.counts("forged", before, sent // 2)
        # A question has no answer, and a HELLO with 32 addresses sends no byte anywhere.
        before = it.count("forged")
        assert it.attack("ask")["answers"] == 0
        assert it.attack("amplify")["received"] == 0
        it.counts("forged", before, 2)
        # Recorded packets of the job are no news to the process that they were sent to.
        before = it.count("duplicates")
        sent = it.attack("replay", "count=200")["sent"]
        it.counts("duplicates", before, sent // 2)
        # A flood: each packet in another name; 40 requests in each packet.
        for name, count in (("hello", 10_000), ("rts", 5_000)):
            before = it.count("forged")
            sent = it.attack(name, f"count={count}")["sent"]
            it.counts("forged", before, sent // 10)
        assert goes_on(it.job), it.job.output()
        it.stays_small(memory)
    assert_right(it.job.result)
    assert it.count("unadmitted") + it.count("wrong_epoch") + it.count("remote_refused") == 0


def test_damaged_copies_of_recorded_packets_isolate_no_path(three, stress, mpich, tmp_path):
    """Recorded packets with a bit of the head flipped: a stranger's damage is no damage of the rail."""
    with attacked(three, stress, mpich, tmp_path, with_key()) as it:
        for _ in range(10):
            it.record(40)
            it.recording.write_text(damaged(it.recording.read_text()))
            before = it.count("corrupt_heads")
            sent = it.attack("replay", "count=200")["sent"]
            it.counts("corrupt_heads", before, sent // 2)
        assert goes_on(it.job), it.job.output()
    assert_right(it.job.result)
    assert it.count("corrupt_downs") == 0, labs.events(it.folder / "stats")


def damaged(recording):
    """Each packet of a recording with a flipped bit in its first frame."""
    lines = []
    for line in recording.splitlines():
        place, digits = line.split(" ")
        packet = bytearray.fromhex(digits)
        packet[HEADER_BYTES + 1] ^= 0x10
        lines.append(f"{place} {packet.hex()}\n")
    return "".join(lines)


def test_packets_of_another_life_are_forged(three, stress, mpich, tmp_path):
    """Recorded packets of an earlier job with the same key, sent to its successor's ports."""
    with attacked(three, stress, mpich, tmp_path, with_key()) as first:
        old = first.recording.read_text().splitlines()
    assert_right(first.job.result)
    with attacked(three, stress, mpich, tmp_path, with_key()) as it:
        # The ids of the endpoints are new: a packet of the old life names none.
        place = it.place()
        lines = [f"{place} {line.split(' ', 1)[1]}\n" for line in old]
        it.recording.write_text("".join(lines))
        before = it.count("wrong_token")
        sent = it.attack("replay", "count=200")["sent"]
        it.counts("wrong_token", before, sent // 2)
        assert goes_on(it.job), it.job.output()
    assert_right(it.job.result)


def test_what_strangers_cannot_do_without_a_key_either(three, stress, mpich, tmp_path):
    """`FI_MARLINE_AUTH=off` and a stranger that knows what it is told: names of the endpoints."""
    # (Strangers of which a message came are peers until the timeout.)
    env = {"FI_MARLINE_RMA": "off", "FI_MARLINE_PEER_TIMEOUT_MS": 5000}
    with attacked(three, stress, mpich, tmp_path, env) as it:
        place, memory = it.place(), it.memory()
        at = f"to={place}"
        # Questions are answered; the stranger checks that no answer is longer than its question.
        assert it.attack("ask", at, recording=False)["answers"] == 1
        # Three packets: the epoch that the peer tells the stranger is none of the victim's.
        before = it.count("wrong_epoch")
        peer = "peer=" + port_of(three, "h0", "10.100.0.1", "u")
        sent = it.attack("three", at, peer, "count=3", "ahead=4000", recording=False)["sent"]
        it.counts("wrong_epoch", before, sent)
        # Calls that name no region, reads and writes under guessed keys.
        for name in ("call", "read", "put"):
            before = it.count("remote_refused")
            sent = it.attack(name, at, "count=60", recording=False)["sent"]
            it.counts("remote_refused", before, sent // 2)
        # A number far ahead in the peer's name, and recorded packets.
        before = it.count("unknown")
        sent = it.attack("jump", "count=20")["sent"]
        it.counts("unknown", before, sent // 2)
        before = it.count("duplicates")
        sent = it.attack("replay", "count=100")["sent"]
        it.counts("duplicates", before, sent // 2)
        # Strangers beyond the table's bound.
        before = it.count("unadmitted")
        it.attack("hello", at, "count=10000", recording=False)
        it.counts("unadmitted", before, 1_000)
        assert goes_on(it.job), it.job.output()
        it.stays_small(memory, FULL_TABLE_KIB)
    assert_right(it.job.result)


@pytest.mark.parametrize("message", ["call", "rts"])
def test_the_silence_of_a_stranger_ends_no_receive(three, stress, mpich, tmp_path, message):
    """One HELLO and a call, or requests that receives from any source match, then nothing until the
    stranger is dead: the receives go on. (Without a message it would be forgotten without an event.)"""
    # (The ranks themselves are never silent for so long, even on a busy machine.)
    env = {"FI_MARLINE_PEER_TIMEOUT_MS": 5000}
    with attacked(three, stress, mpich, tmp_path, env) as it:
        it.attack(message, f"to={it.place()}", "count=1", recording=False)
        end = time.monotonic() + 60
        while OTHER not in (told := it.deaths()):
            assert it.job.running() and time.monotonic() < end, told
            time.sleep(0.05)
        assert goes_on(it.job), it.job.output()
    assert_right(it.job.result)


@pytest.mark.parametrize("auth", ["on", "off"])
def test_a_bye_in_a_peers_name(three, stress, mpich, tmp_path, auth):
    """With the names of a recorded packet: without a key it ends the peer, and so the job."""
    env = with_key() if auth == "on" else {}
    with attacked(three, stress, mpich, tmp_path, env) as it:
        before = it.count("forged")
        it.record(1)
        sent = it.attack("bye", "count=40", "ahead=2000")["sent"]
        if auth == "on":
            it.counts("forged", before, sent // 2)
            assert goes_on(it.job), it.job.output()
        else:
            it.ends()
    if auth == "on":
        assert_right(it.job.result)
    else:
        assert it.job.result.find("PEER DEAD"), it.job.result.tail()


def test_a_hello_in_a_peers_name_marks_no_number(three, stress, mpich, tmp_path):
    """Without a key, with the names of a recorded packet and numbers ahead of the peer's."""
    with attacked(three, stress, mpich, tmp_path, {}) as it:
        before = it.count("wrong_token")
        for ahead in (0, 500, 1_000, 2_000):
            it.record(1)
            sent = it.attack("rails", "count=40", f"ahead={ahead}")["sent"]
        it.counts("wrong_token", before, sent)
        assert goes_on(it.job), it.job.output()
    assert_right(it.job.result)


def test_a_hello_draws_at_most_three_times_its_bytes(three, stress, mpich, tmp_path):
    """Without a key, a HELLO with 32 addresses that nobody has proved."""
    with attacked(three, stress, mpich, tmp_path, {}) as it:
        told = it.attack("amplify", f"to={it.place()}", recording=False)
        assert told["received"] <= 3 * told["bytes"], told
    assert_right(it.job.result)


def test_direct_writes_under_guessed_keys(three, stress, mpi, tmp_path):
    """Keys after one that was seen, in heads without a tag: counted, and nothing lands."""
    with attacked(three, stress, mpi, tmp_path, with_key()) as it:
        for _ in range(5):
            it.record(40)
            before = it.count("forged")
            sent = it.attack("direct", "count=400")["sent"]
            it.counts("forged", before, sent // 2)
        assert goes_on(it.job), it.job.output()
    assert_right(it.job.result)


def test_tcp_connections_of_strangers_leave_descriptors(three, stress, mpich, tmp_path):
    """900 silent ones, and 900 that begin with what is no handshake."""
    env = {**with_key(), "FI_MARLINE_RAILS": "tcp:rail0,tcp:rail1"}
    with attacked(three, stress, mpich, tmp_path, env, record=False) as it:
        before, at = it.descriptors(), port_of(three, "h1", VICTIM, "t")
        for first in (0, 64):
            with it.holds("h2", STRANGER, "tcp", f"to={at}", "count=900", f"bytes={first}") as told:
                assert told["sent"] > 800, told
                assert goes_on(it.job), it.job.output()
                it.keeps_descriptors(before, 300)
    assert_right(it.job.result)


@pytest.fixture
def open_folder():
    """A folder that all users can read, with the toolbox."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copy(STRANGER, folder)
        yield Path(folder)


def test_another_user_of_a_host(three, stress, mpich, open_folder):
    """Its connections to shared memory rails are closed, the descriptors that it passes are not
    received, and its packets are as forged as others."""
    how = {"n": 4, "options": ["--no-shm"]}
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    env = {**with_key(), "FI_MARLINE_SHM": "on"}
    with attacked(three, stress, mpich, open_folder, env, **how) as it:
        before = it.descriptors()
        with it.holds("h1", *user, "/usr/bin/python3", "-c", LOCAL.read_text(), 200) as told:
            assert told["names"] >= 2 and told["sent"] >= 400, told
            assert goes_on(it.job), it.job.output()
            it.keeps_descriptors(before, 40)
        assert told["closed"] == told["sent"], told
        for name in PEERS_NAMES:
            before = it.count("forged")
            by = (*user, open_folder / STRANGER.name)
            sent = it.attack(name, "count=40", host="h1", by=by, origin=VICTIM)["sent"]
            it.counts("forged", before, sent // 2)
        assert goes_on(it.job), it.job.output()
    assert_right(it.job.result)


@pytest.mark.parametrize("auth, packets", [
    ("on", 100_000),
    pytest.param("on", 10_000_000, marks=pytest.mark.soak),
    pytest.param("off", 10_000_000, marks=pytest.mark.soak),
])
def test_a_flood_of_all_kinds_of_packets(three, stress, mpich, tmp_path, auth, packets):
    """Every kind of packet in turn, half of them with the tag of another key: memory and descriptors
    stay within bounds after the first tenth. Without a key, the flood leaves out what does harm then:
    BYE and messages in a peer's name, and requests that receives from any source match as long as
    their sender sends."""
    env = with_key() if auth == "on" else {}
    without = [] if auth == "on" else [f"without={','.join(HARMFUL_WITHOUT_A_KEY)}"]
    with attacked(three, stress, mpich, tmp_path, env, timeout=3600) as it:
        refused = it.refused()

        def flood(count):
            words = ("flood", f"key={KEY_OF_ANOTHER_JOB}", f"count={count}", *without)
            return it.attack(*words, timeout=3600)["sent"]

        sent = flood(packets // 10)
        assert goes_on(it.job), it.job.output()
        memory, descriptors = it.memory(), it.descriptors()
        sent += flood(packets - packets // 10)
        assert goes_on(it.job), it.job.output()
        # Without a key, the table of strangers is the fuller the faster they come.
        it.stays_small(memory, FLOOD_KIB if auth == "on" else FULL_TABLE_KIB)
        it.keeps_descriptors(descriptors, OWN_DESCRIPTORS)
        # The kernel drops packets while the rank has no processor. Without a key, questions are
        # answered, and packets of admitted strangers are not refused.
        share = (it.refused() - refused) / sent
        assert (0.9 if auth == "on" else 0.5) < share < 1.1, share
    assert_right(it.job.result)
