"""Measures the tables and figures of the papers beside peers, and writes docs/results.md.

    python3 bench/evaluation [--quick] [--only PROGRAM,PROGRAM]
    python3 bench/evaluation --render | --check | --compare

It runs the programs of bench (plan.py has their arguments and limits), for two hours at most, keeps
their samples in bench/record, and writes the page with its pictures. --quick: a quarter of an hour;
samples and page then go to build/evaluation, since they only show that all of it works. --render makes
the page of the records alone, --check names its files that differ from them. --compare names rows that
fell by more than the interval against the record before, of the same processor. The exit status is 1
if something failed, is stale or fell.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tests" / "e2e")]

from evaluation import agreement, machine, page, plan  # noqa: E402
from evaluation.records import FOLDER, Records  # noqa: E402

QUICK_FOLDER = plan.ROOT / "build" / "evaluation"


def measure(args):
    """Runs the plan and writes the page; lines on what failed."""
    folder = QUICK_FOLDER / "record" if args.quick else FOLDER
    machine.record(folder)
    failed = plan.run_all(args.quick, folder, args.only)
    write(Records(folder), QUICK_FOLDER / "docs" if args.quick else page.DOCS)
    return failed


def write(records, folder):
    for path in page.write(records, folder):
        print(os.path.relpath(path))


def main():
    parser = argparse.ArgumentParser(prog="bench/evaluation", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of an hour, to build/evaluation")
    parser.add_argument("--only", type=lambda text: text.split(","), default=(), help="programs, comma separated")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--render", action="store_true", help="measure nothing, write the page")
    instead.add_argument("--check", action="store_true", help="measure nothing, name stale files of the page")
    instead.add_argument("--compare", action="store_true", help="measure nothing, name rows that fell")
    parser.add_argument("--records", type=Path, default=FOLDER, help="folder to read from")
    parser.add_argument("--docs", type=Path, default=page.DOCS, help="folder to write to")
    args = parser.parse_args()
    records, wrong = Records(args.records), []
    if args.compare:
        wrong = [f"fell: {line}" for line in agreement.fallen(page.sections(records), records)]
    elif args.check:
        wrong = [f"not as the records have it: {name}" for name in page.stale(records, args.docs)]
    elif args.render:
        write(records, args.docs)
    else:
        wrong = measure(args)
    sys.exit("\n".join(wrong) if wrong else None)


if __name__ == "__main__":
    main()
