//! After a panic an engine sends no packets, since their memory may be gone, and callers that wait
//! for a completion get an error.

use crate::counted;

use counted::{side, Side};
use marline_engine::{Completion, OpFlags, SendReq, SubmitError};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::Relaxed;

impl Side {
    /// Makes progress by all calls, as often as a healthy engine needs to send.
    fn progress(&self) {
        let mut out = [Completion::empty(); 4];
        for _ in 0..10 {
            self.time.0.fetch_add(20_000_000, Relaxed);
            self.engine.thread_turn(true);
            let read = self.engine.cq_read(self.cq, &mut out);
            assert_eq!(read.is_err(), self.engine.is_unusable(), "{read:?}");
            assert_eq!(self.engine.cq_take_error(self.cq).map(|e| e.context), None);
            self.engine.progress();
        }
    }
}

/// The progress thread panics while the application continues to poll, and closes. No completion
/// returns the posted memory, which the program may have reused by then.
#[test]
fn sends_posted_before_a_panic_do_not_leave_after_it() {
    let (healthy, poisoned) = (side(0), side(0));
    let mut bytes = [7; 300];
    for side in [&healthy, &poisoned] {
        side.post(&mut bytes).unwrap();
        assert_eq!(side.sent.load(Relaxed), 0, "it waits");
    }
    let panics = || poisoned.engine.inspect(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    healthy.progress();
    assert!(healthy.sent.load(Relaxed) > 0);
    poisoned.progress();
    assert_eq!(poisoned.post(&mut bytes), Err(SubmitError::Unusable));
    poisoned.engine.ep_close(poisoned.ep);
    assert_eq!(poisoned.sent.load(Relaxed), 0);
}

/// A caller that waits for a completion would wait for ever. Earlier completions are still
/// delivered.
#[test]
fn a_waiting_caller_is_notified_of_a_panic() {
    let side = side(0);
    let flags = OpFlags::COMPLETION;
    let message = SendReq {
        dest: 0,
        iov: &[],
        tag: Some(1),
        data: None,
        context: 9,
        flags,
    };
    side.engine.send(side.ep, &message).unwrap(); // its memory is free immediately
    side.engine.progress();
    assert!(!side.engine.is_unusable());
    let panics = || side.engine.inspect(|_| panic!("on purpose"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let mut out = [Completion::empty(); 4];
    assert_eq!(side.engine.cq_read(side.cq, &mut out), Ok(1));
    assert_eq!((out[0].context, out[0].error), (9, None));
    assert_eq!(side.engine.cq_read(side.cq, &mut out), Err(()));
    assert!(side.engine.is_unusable());
}
