//! The event queue in many random orders of its threads, by shuttle. `events.rs` is compiled here
//! once more, over shuttle's locks, whose waits have no end but a notice: a thread that is not
//! woken is a deadlock, which shuttle reports.

mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex};
    pub(crate) use std::sync::PoisonError;
}
#[path = "../src/events.rs"]
mod events;

use shuttle::sync::Arc;
use shuttle::thread;
use std::collections::VecDeque;
use std::time::Duration;

/// Orders tried per test: a second.
const ORDERS: usize = 2_000;
/// Never over within a test.
const LONG: Duration = Duration::from_secs(3_600);

fn peek(events: &mut VecDeque<u32>) -> Option<u32> {
    events.front().copied()
}

#[test]
fn every_reader_gets_an_event_of_its_own() {
    let model = || {
        let events = Arc::new(events::Events::new());
        let read = |events: Arc<events::Events<u32>>| {
            thread::spawn(move || events.wait(LONG, VecDeque::pop_front).unwrap())
        };
        let readers = [read(events.clone()), read(events.clone())];
        events.write(1);
        events.write(2);
        let mut got = readers.map(|r| r.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
        assert_eq!(events.wait(Duration::ZERO, peek), None);
    };
    shuttle::check_random(model, ORDERS);
}

/// One that only looks (FI_PEEK, or a buffer that is too small) leaves the event where it is: the
/// reader must be woken for it, too.
#[test]
fn a_peek_does_not_use_up_the_readers_notice() {
    let model = || {
        let events = Arc::new(events::Events::new());
        let (peeker, reader) = (events.clone(), events.clone());
        let peeker = thread::spawn(move || peeker.wait(LONG, peek));
        let reader = thread::spawn(move || reader.wait(LONG, VecDeque::pop_front));
        events.write(1);
        assert_eq!(reader.join().unwrap(), Some(1));
        events.write(2); // for a peeker that came after the reader
        assert!(peeker.join().unwrap().is_some());
    };
    shuttle::check_random(model, ORDERS);
}
