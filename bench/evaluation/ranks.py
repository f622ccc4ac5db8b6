"""Jobs of many real ranks, over Marline and over the same MPI's own TCP."""

from .rows import missing, value

UNENDED = "not ended in time"
# Column -> its name here, and unit.
MEASURES = {"start_s": ("start", "s"), "alltoall_s": ("alltoall", "s"), "allreduce_s": ("allreduce", "s"),
            "pss_kib": ("pss", "KiB"), "rss_kib": ("rss", "KiB")}


def jobs(record):
    """The MPIs and numbers of ranks of a record, as texts."""
    return sorted({(row["mpi"], row["ranks"]) for row in record.all_rows}, key=lambda job: (job[0], int(job[1])))


def job_rows(records):
    """The rows of the newest record."""
    record = records.newest("ranks", way="marline")
    rows = []
    for mpi, ranks in jobs(record) if record else ():
        for column, (name, unit) in MEASURES.items():
            where = dict(mpi=mpi, ranks=ranks)
            anchor, what = f"ranks-{mpi}-{ranks}-{name}", f"{mpi}-{ranks}-{name}"
            row = value(anchor, what, "", record, unit, True, ours={"way": "marline", **where},
                        others={"TCP": {"way": "tcp", **where}}, column=column)
            rows.append(missing(anchor, what, reason=UNENDED) if row.ours is None else row)
    return rows
