"""Guests with soft-RoCE devices (scripts/guest). One guest runs all scripts of a test process in
succession, as booting takes longer than most scripts; two guests joined by wires run a single
script."""

import atexit
import itertools
import os
import queue
import shlex
import subprocess
import tempfile
import threading

import lab as labs

# A busy host may not run a guest for seconds: timeouts are for hangs only.
JOB_S, LONG_JOB_S, GUEST_S, BOOT_S = 300, 1500, 1800, 60
PATIENT = {"FI_MARLINE_PEER_TIMEOUT_MS": "20000"}
# Files that the tests' scripts create outside their own directories.
LEFT = "/run/said /run/enough /tmp/said /tmp/enough"


def in_guest(*lines, options=()):
    """Runs a script in a guest and returns its output; the script must exit with 0. `options` are
    those of scripts/guest; options other than --far get a separate guest."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(labs.FOREIGN)}
    env["MARLINE_PROVIDER_DIR"] = str(labs.PROVIDER_DIR)
    env |= PATIENT | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if set(options) <= {"--far"}:
        return Guest.shared().run(lines, env, far="--far" in options)
    command = [labs.ROOT / "scripts" / "guest", "--seconds", str(GUEST_S), *options]
    done = subprocess.run(
        [*command, "bash", "-c", "\n".join(lines)], env=env, capture_output=True, text=True,
        timeout=GUEST_S + BOOT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


class Guest:
    """A guest that runs jobs (scripts/guest --jobs). A guest whose job times out is killed, and the
    next job gets another."""

    _shared = None
    _marks = itertools.count()

    @classmethod
    def shared(cls):
        if cls._shared is None or cls._shared.process.poll() is not None:
            cls._shared = cls()
        return cls._shared

    def __init__(self):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [labs.ROOT / "scripts" / "guest", "--jobs"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, errors="replace",
        )  # fmt: skip
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        atexit.register(self.end)
        code, said = self._until("READY")
        assert code == 0, said

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def run(self, lines, env, far):
        mark = f"END-OF-JOB-{next(self._marks)}"
        exports = [f"export {k}={shlex.quote(v)}" for k, v in env.items() if k.isidentifier()]
        with tempfile.NamedTemporaryFile("w", prefix="marline-job-") as script:
            script.write("\n".join([*exports, f"cd {labs.ROOT}", f"rm -f {LEFT}", *lines, ""]))
            script.flush()
            self.process.stdin.write(f"{int(far)} {mark} {script.name}\n")
            self.process.stdin.flush()
            code, said = self._until(mark)
        assert code == 0, said[-8000:]
        return said

    def _until(self, mark):
        """The exit code and the output of a job."""
        said = []
        while True:
            try:
                line = self.lines.get(timeout=GUEST_S)
            except queue.Empty:
                self.end()
                return None, "".join(said) + f"guest: nothing for {GUEST_S} s"
            if line is None:
                self.errors.seek(0)
                return None, "".join(said) + self.errors.read()
            if line.startswith(mark + " "):
                return int(line.split()[1]), "".join(said)
            said.append(line)
