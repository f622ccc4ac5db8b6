//! Handling of faults of this library, and messages to the user.

use crate::mpi::{self, Mpi};
use marline_codes::Code;
use std::ffi::c_int;
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Writes a message with its code to the user with one call, because the launcher interleaves the
/// ranks' output.
pub fn say(code: Code, text: &str) {
    let line = format!("marline: {}\n", code.mark(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Runs a call with the MPI if multicast is possible.
pub fn with(call: impl FnOnce(&'static Mpi) -> Option<c_int>) -> Option<c_int> {
    let mpi = mpi::find()?;
    guarded(|| call(mpi), || mpi.abort())
}

/// Runs a call. A panic does not leave this library but aborts the rank: other ranks may be in the
/// same call by multicast and would wait forever for a rank that falls back to the MPI's own. `end`
/// first tries to end the job.
fn guarded(call: impl FnOnce() -> Option<c_int>, end: impl FnOnce()) -> Option<c_int> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        say(
            Code::Internal,
            "a fault in libmarline-collectives.so (see above) ends this rank, as the others may \
             wait for it. `marline run --no-multicast` does without that library.",
        );
        let _ = catch_unwind(AssertUnwindSafe(end));
        std::process::abort()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Environment variable that makes the test below the process that panics.
    const DIES: &str = "MARLINE_TEST_DIES";

    #[test]
    fn a_panic_ends_the_rank_with_a_message() {
        if std::env::var_os(DIES).is_some() {
            guarded(|| panic!("of the test"), || println!("the job is ended"));
            unreachable!("the call went on after a panic");
        }
        let mut this = Command::new(std::env::current_exe().unwrap());
        let name = "guard::tests::a_panic_ends_the_rank_with_a_message";
        let this = this.args(["--exact", name, "--nocapture"]).env(DIES, "1");
        let ended = this.output().unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr),
        );
        assert!(!ended.status.success(), "{out}{err}");
        assert!(out.contains("the job is ended"), "{out}{err}");
        assert!(err.contains("ends this rank"), "{out}{err}");
        assert!(!err.contains("went on"), "{err}");
    }

    #[test]
    fn a_call_without_a_panic_returns_its_result() {
        let never = || panic!("nothing ends");
        assert_eq!(guarded(|| Some(3), never), Some(3));
        assert_eq!(guarded(|| None, never), None);
    }
}
