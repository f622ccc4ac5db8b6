//! Names that counters had in the version before, which JSON output still has.

/// Counters by their names: now and before.
const FORMER: &[(&str, &str)] = &[
    ("async_events", "told"),
    ("evicted", "rested"),
    ("reconnected", "woken"),
    ("resent_pto", "resent_repair"),
    ("resent_spurious", "needless"),
    ("rpcs", "calls"),
];

/// The name that a counter had before.
pub fn former(name: &str) -> Option<&'static str> {
    let row = FORMER.iter().find(|(now, _)| *now == name);
    row.map(|&(_, before)| before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::{
        Counters, PathCounters, PeerCounters, ProcessCounters, RailCounters,
    };

    #[test]
    fn former_names_are_of_counters_and_no_counters_names() {
        let groups = [
            ProcessCounters::ROWS,
            RailCounters::ROWS,
            PeerCounters::ROWS,
            PathCounters::ROWS,
        ];
        let is_counter = |name: &str| {
            groups
                .iter()
                .any(|rows| rows.iter().any(|row| row.name == name))
        };
        for (now, before) in FORMER {
            assert!(is_counter(now) && !is_counter(before), "{now}");
            assert_eq!(former(now), Some(*before));
        }
    }
}
