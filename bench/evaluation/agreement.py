"""Whether figures agree with those of the record before, of the same processor."""

from . import marks
from .spread import short


def pairs(parts, records, rebuild):
    """(row, the same row out of the record before) of all rows that have one. `rebuild` makes the
    parts of other records."""
    rows = [row for part in parts for row in part.rows if row.judged and row.record]
    older = {}
    for record in {row.record for row in rows}:
        rest = records.before(record)
        again = rebuild(rest) if rest.has(record.kind) else []
        older[record.name] = {row.anchor: row for part in again for row in part.rows}
    for row in rows:
        before = older[row.record.name].get(row.anchor)
        same = before and before.judged and before.record.kind == row.record.kind
        if same and min(row.judged.n, before.judged.n) > 1:
            yield row, before


def text(parts, records):
    """The part of the page: how many rows agree, and the others."""
    from .page import sections

    found = list(pairs(parts, records, sections))
    if not found:
        return ""
    apart = [(row, before) for row, before in found if not marks.overlap(row.judged, before.judged)]
    head = (f"## Agreement\n\n{len(found) - len(apart)} of {len(found)} rows that an earlier record of the same "
            "processor has too agree with it within the intervals.")
    others = "\n".join(f"- {row.name}: {short(before.judged.median)}, `{before.record.name}`"
                       for row, before in apart)
    return f"{head} The others, as they were:\n\n{others}" if apart else head


def fallen(parts, records):
    """Lines on rows that fell by more than the interval."""
    from .page import sections

    return [f"{row.name}: {short(row.judged.median)}, before {short(before.judged.median)} ({before.record.name})"
            for row, before in pairs(parts, records, sections)
            if marks.fell(before.judged, row.judged, row.less)]
