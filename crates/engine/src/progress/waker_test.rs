//! Sleeping and waking with the kernel's events; `tests/loom.rs` checks all interleavings.

use crate::progress::waker::{Waker, Woken};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

const FOREVER_NS: u64 = 60_000_000_000;

#[test]
fn a_deadline_ends_a_sleep() {
    let waker = Waker::new().unwrap();
    assert_eq!(waker.sleep_until(&[], 1_000, || false), Woken::Deadline);
    assert_eq!(waker.sleep_until(&[], 0, || false), Woken::Deadline);
}

#[test]
fn work_found_at_the_last_moment_prevents_the_sleep() {
    let waker = Waker::new().unwrap();
    assert_eq!(waker.sleep_until(&[], FOREVER_NS, || true), Woken::Called);
}

#[test]
fn a_wake_while_falling_asleep_is_not_lost_and_leaves_no_trace() {
    let waker = Waker::new().unwrap();
    let register_sleeper = || {
        waker.wake();
        waker.wake();
        false
    };
    assert_eq!(
        waker.sleep_until(&[], FOREVER_NS, register_sleeper),
        Woken::Called
    );
    assert_eq!(waker.sleep_until(&[], 0, || false), Woken::Deadline);
    waker.wake(); // the thread is awake
    assert_eq!(waker.sleep_until(&[], 0, || false), Woken::Deadline);
}

#[test]
fn a_packet_ends_a_sleep_only_if_asked_for() {
    let waker = Waker::new().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
    let fd = [socket.as_raw_fd()];
    assert_eq!(waker.sleep_until(&[], 0, || false), Woken::Deadline);
    assert_eq!(
        waker.sleep_until(&fd, FOREVER_NS, || false),
        Woken::Descriptor
    );
    socket.recv(&mut [0; 8]).unwrap();
    assert_eq!(waker.sleep_until(&fd, 0, || false), Woken::Deadline);
}

/// Two threads pass a number back and forth; each sleeps without timeout until it is woken.
#[test]
fn no_wake_is_ever_lost() {
    const TURNS: u64 = 20_000;
    let (turn, wakers) = (
        AtomicU64::new(0),
        [Waker::new().unwrap(), Waker::new().unwrap()],
    );
    let play = |me: u64| {
        let mine = || turn.load(Ordering::Relaxed) % 2 == me;
        while turn.load(Ordering::Relaxed) < TURNS {
            while !mine() {
                let woken = wakers[me as usize].sleep_until(&[], FOREVER_NS, mine);
                assert_ne!(woken, Woken::Deadline, "a wake was lost");
            }
            turn.fetch_add(1, Ordering::Relaxed);
            wakers[1 - me as usize].wake();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(0));
        scope.spawn(|| play(1));
    });
    assert!(turn.load(Ordering::Relaxed) >= TURNS);
}
