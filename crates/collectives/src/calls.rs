//! The calls that use multicast if their communicator has a group: selected at the start of the
//! job, alike on all ranks.

use std::ffi::c_int;
use std::sync::OnceLock;

/// Environment variable with the names of these calls, comma-separated; unset: all calls.
const VARIABLE: &str = "MARLINE_MULTICAST_CALLS";
/// Environment variable that is set if the user did not request multicast.
const UNASKED: &str = "MARLINE_MULTICAST_UNASKED";

/// A call in all its forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Bcast,
    Allreduce,
    Barrier,
    Allgather,
}

const NAMES: [(&str, Call); 4] = [
    ("bcast", Call::Bcast),
    ("allreduce", Call::Allreduce),
    ("barrier", Call::Barrier),
    ("allgather", Call::Allgather),
];

impl Call {
    /// The call's bit in the agreed mask.
    pub fn bit(self) -> c_int {
        1 << self as c_int
    }
}

/// Returns whether the user requested multicast. Without a request, only calls that are faster by
/// multicast use it (docs/design/collectives.md).
pub fn are_asked_for() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    *ASKED.get_or_init(|| std::env::var_os(UNASKED).is_none())
}

/// The mask of calls wanted by this rank.
pub fn wanted() -> c_int {
    match std::env::var(VARIABLE) {
        Ok(names) => named(&names),
        Err(_) => NAMES.iter().fold(0, |bits, (_, call)| bits | call.bit()),
    }
}

fn named(names: &str) -> c_int {
    let known = |name: &str| NAMES.iter().find(|(known, _)| *known == name.trim());
    names
        .split(',')
        .filter_map(known)
        .fold(0, |bits, (_, call)| bits | call.bit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_chosen_by_their_names() {
        assert_eq!(named("bcast"), Call::Bcast.bit());
        let both = Call::Bcast.bit() | Call::Allreduce.bit();
        assert_eq!(named("allreduce, bcast"), both);
        assert_eq!(named(""), 0);
        assert_eq!(named("alltoall"), 0, "there is no such");
    }
}
