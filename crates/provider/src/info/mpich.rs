//! The inject size, and MPICH's rendezvous threshold that limits it. MPICH injects messages up to
//! the inject size before it checks its threshold, but its receives have room only up to the
//! threshold: with a threshold below the inject size, correct messages would be reported as
//! truncated.

use crate::base::settings;
use marline_engine::{BORROW_ABOVE, INJECT_MAX};

/// The variables from which MPICH reads its threshold.
const THRESHOLD: [&str; 3] = [
    "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD",
    "MPIR_PARAM_CH4_OFI_EAGER_THRESHOLD",
    "MPICH_CH4_OFI_EAGER_THRESHOLD",
];

/// The advertised inject size in bytes.
pub(crate) fn inject_max() -> usize {
    let set = THRESHOLD.iter().filter_map(|name| std::env::var(name).ok());
    // An injected buffer is free on return, so no rail may send from it.
    below(set).min(match settings::borrows() {
        true => BORROW_ABOVE,
        false => INJECT_MAX,
    })
}

/// The inject size if these thresholds are set; ignores negative or non-numeric values.
fn below(set: impl Iterator<Item = String>) -> usize {
    set.filter_map(|value| value.trim().parse().ok())
        .fold(INJECT_MAX, usize::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_longer_than_the_threshold_is_injected() {
        let below = |set: &[&str]| below(set.iter().map(|s| s.to_string()));
        assert_eq!(below(&[]), INJECT_MAX);
        assert_eq!(below(&["-1"]), INJECT_MAX);
        assert_eq!(below(&["many"]), INJECT_MAX);
        assert_eq!(below(&["1000000"]), INJECT_MAX);
        assert_eq!(below(&["16384"]), 16_384);
        assert_eq!(below(&["16384", " 100 "]), 100);
        assert_eq!(below(&["0"]), 0);
    }
}
