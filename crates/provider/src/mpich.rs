//! The inject size, and MPICH's threshold for rendezvous which it follows. MPICH sends short
//! messages by inject, up to the inject size, before it looks at its own threshold, while its
//! receives have room for no more than that threshold. With a threshold below the inject size,
//! right messages would be reported as truncated.

use crate::settings;
use marline_engine::{BORROW_ABOVE, INJECT_MAX};

/// The names under which MPICH reads its threshold.
const THRESHOLD: [&str; 3] = [
    "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD",
    "MPIR_PARAM_CH4_OFI_EAGER_THRESHOLD",
    "MPICH_CH4_OFI_EAGER_THRESHOLD",
];

/// The longest message that may be injected, as the attributes say.
pub(crate) fn inject_max() -> usize {
    let set = THRESHOLD.iter().filter_map(|name| std::env::var(name).ok());
    // What is injected has its memory back at once, and cannot leave from there.
    below(set).min(match settings::borrows() {
        true => BORROW_ABOVE,
        false => INJECT_MAX,
    })
}

/// With these thresholds set. One that is negative or no number sets none.
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
