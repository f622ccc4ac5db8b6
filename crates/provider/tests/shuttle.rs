//! The event queue in random interleavings by shuttle. `events.rs` is compiled here over shuttle's
//! locks, whose waits end only by a notification: a missed wakeup is a deadlock, which shuttle
//! reports.

mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex};
    pub(crate) use std::sync::PoisonError;
}
#[path = "../src/queues/events.rs"]
mod events;

use shuttle::sync::Arc;
use shuttle::thread;
use std::collections::VecDeque;
use std::time::Duration;

/// Interleavings per test: about a second.
const ORDERS: usize = 2_000;
/// Longer than any test.
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

/// A reader that only peeks (FI_PEEK, or a buffer that is too small) leaves the event in the queue;
/// a waiting reader must be woken for that event, too.
#[test]
fn a_peek_does_not_consume_a_readers_wakeup() {
    let model = || {
        let events = Arc::new(events::Events::new());
        let (peeker, reader) = (events.clone(), events.clone());
        let peeker = thread::spawn(move || peeker.wait(LONG, peek));
        let reader = thread::spawn(move || reader.wait(LONG, VecDeque::pop_front));
        events.write(1);
        assert_eq!(reader.join().unwrap(), Some(1));
        events.write(2); // for a peeker after the reader
        assert!(peeker.join().unwrap().is_some());
    };
    shuttle::check_random(model, ORDERS);
}
