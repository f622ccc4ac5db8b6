"""Programs as they are shipped, over Marline and over TCP."""

from .rows import Section, missing, size_name, value

TITLE = "Programs as shipped"
IMB_SIZES = ("8", "65536", "1048576")
# Program -> (test, its name here, unit, less is better).
TESTS = {
    "imb": [(test, test, "us", True) for test in ("PingPong", "Sendrecv", "Allreduce")],
    "lammps": [(test, test, "s", True) for test in ("eam", "chain", "melt")],
    "hpcc": [("HPL_Tflops", "HPL", "Tflop/s", False), ("PTRANS_GBs", "PTRANS", "GB/s", False),
             ("MPIRandomAccess_GUPs", "RandomAccess", "GUP/s", False), ("MPIFFT_Gflops", "FFT", "Gflop/s", False),
             ("AvgPingPongLatency_usec", "latency", "us", True),
             ("AvgPingPongBandwidth_GBytes", "bandwidth", "GB/s", False)],
}


def section(records):
    rows = []
    for program, tests in TESTS.items():
        record = records.newest("shipped", program=program)
        if not record:
            rows.append(missing(program, program))
            continue
        for test, name, unit, less in tests:
            for size in IMB_SIZES if program == "imb" else ("",):
                where = dict(program=program, test=test, bytes=size)
                text = f"{program}-{name}" + (f"-{size_name(int(size))}" if size else "")
                rows.append(value(text.lower(), text, "", record, unit, less, ours={"way": "marline", **where},
                                  others={"TCP": {"way": "tcp", **where}}))
    return Section(TITLE, rows)
