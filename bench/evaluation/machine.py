"""The machine, as a record and as lines of the page."""

import datetime
import os
import platform
from pathlib import Path

import peers


def memory_gb():
    """Memory in GB (10^9 bytes)."""
    line = Path("/proc/meminfo").read_text().splitlines()[0]
    return round(int(line.split()[1]) * 1024 / 1e9)


def system():
    """The distribution's name."""
    lines = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return lines.get("PRETTY_NAME", "unknown").strip('"')


def describe():
    """Parts of the machine with their sizes, and its load when the evaluation began."""
    load = os.getloadavg()[0]
    return {"cores": os.cpu_count(), "memory_gb": memory_gb(), "kernel": platform.release(), "system": system(),
            "load": f"{load:.2f}"}


def record(folder):
    """Writes it; the path."""
    head = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "cpu": peers.cpu_model()}
    return peers.write_csv([{**head, "what": what, "value": value} for what, value in describe().items()],
                           "machine", folder)


def lines(records):
    """A line on the machine of the last evaluation."""
    found = records.newest("machine", what="cores")
    if not found:
        return []
    of = {row["what"]: row["value"] for row in found.all_rows}
    return [f"Last run {found.date}: {found.cpu}, {of['cores']} cores, {of['memory_gb']} GB, Linux {of['kernel']}, "
            f"{of['system']}, load {of['load']} at its begin."]
