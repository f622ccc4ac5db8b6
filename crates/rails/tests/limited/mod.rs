//! Registration of memory for writes, also at the limit of locked memory (`ulimit -l`).

use super::{link, wait, whole, End};
use marline_rails::{Piece, RailEvent, RemoteRead, RemoteWrite, SendOutcome, VerbsConfig, Write};
use std::process::Command;

/// Set in the process without the right to exceed the limit.
const BOUND: &str = "MARLINE_TEST_BOUND";
/// Bytes of a write, and number of writes.
const LEN: usize = 60_000;
/// See above.
const WRITES: usize = 24;

/// Sets a limit on locked memory, in bytes.
fn limit(bytes: &str) {
    let pid = std::process::id().to_string();
    let bytes = format!("--memlock={bytes}:unlimited");
    let set = Command::new("prlimit")
        .args(["--pid", &pid, &bytes])
        .status();
    assert!(set.unwrap().success());
}

/// Bytes locked for devices.
fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let kb = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kb.parse::<u64>().unwrap() << 10
}

/// Memory opened in advance is registered once for all of its writes, and not at all on a rail with
/// bounce buffers. Other memory is registered for each write.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn memory_of_many_writes_is_registered_once() {
    for (kind, staged) in [("rc", false), ("uc", false), ("rc", true)] {
        let config = VerbsConfig {
            staged,
            ..VerbsConfig::default()
        };
        let (mut a, mut b) = (End::with(kind, config), End::open(kind));
        let to_b = link(&mut a, &mut b);
        let source: Vec<u8> = (0..8 * LEN).map(|at| (at * 11 / 5) as u8).collect();
        let mut place = vec![0u8; source.len()];
        let key = b.tx.register(place.as_mut_ptr(), place.len()).unwrap();
        let all = source.chunks(5 * LEN).map(|part| Piece {
            base: part.as_ptr(),
            len: part.len(),
        });
        let opened = a.tx.open(&all.collect::<Vec<_>>());
        assert_eq!(opened.is_none(), staged, "{kind}");
        let mut written = |a: &mut End, b: &mut End, source_key| {
            place.fill(0);
            for (at, bytes) in source.chunks(LEN).enumerate() {
                let pieces = [Piece {
                    base: bytes.as_ptr(),
                    len: LEN,
                }];
                let write = Write {
                    offset: (at * LEN) as u64,
                    source: source_key,
                    ..whole(key, &pieces, at as u64)
                };
                assert_eq!(a.tx.write(to_b, &write, &[0]), SendOutcome::Sent);
                wait(a, b, |_, b| b.packets.pop_front());
                let done = RailEvent::Done(at as u64);
                wait(a, b, |a, _| a.events.contains(&done).then_some(()));
            }
            assert!(place == source, "{kind}: other bytes");
            let events = std::mem::take(&mut a.events);
            let registered = events.iter().filter(|e| **e == RailEvent::Registered);
            registered.count()
        };
        let expected = if staged { [0; 2] } else { [2, 8] };
        assert_eq!(written(&mut a, &mut b, opened), expected[0], "{kind}");
        opened.into_iter().for_each(|key| a.tx.deregister(key));
        assert_eq!(written(&mut a, &mut b, opened), expected[1], "{kind}");
    }
}

/// All writes use copies: as many at once as there are bounce buffers, the rest later. Memory
/// cannot be opened to peers, which is reported; with a higher limit it can.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn what_cannot_be_registered_is_copied() {
    const NAME: &str = "limited::what_cannot_be_registered_is_copied";
    if std::env::var_os(BOUND).is_none() {
        let mut bound = Command::new("setpriv");
        bound.args(["--bounding-set", "-ipc_lock"]);
        bound.arg(std::env::current_exe().unwrap()).env(BOUND, "1");
        bound.args(["--ignored", "--exact", "--nocapture", NAME]);
        return assert!(bound.status().unwrap().success());
    }
    for kind in ["rc", "uc"] {
        limit("unlimited");
        let (mut a, mut b) = (End::open(kind), End::open(kind));
        let source: Vec<u8> = (0..LEN * WRITES).map(|at| (at * 13 / 7) as u8).collect();
        let mut place = vec![0u8; source.len()];
        let key = b.tx.register(place.as_mut_ptr(), place.len()).unwrap();
        limit(&locked().to_string());
        let to_b = link(&mut a, &mut b);
        let mut busy = 0;
        for (at, bytes) in source.chunks(LEN).enumerate() {
            let pieces = bytes.chunks(LEN / 2).map(|part| Piece {
                base: part.as_ptr(),
                len: part.len(),
            });
            let write = Write {
                key,
                offset: (at * LEN) as u64,
                pieces: &pieces.collect::<Vec<_>>(),
                token: at as u64,
                source: None,
            };
            while a.tx.write(to_b, &write, &[at as u8]) == SendOutcome::Busy {
                busy += 1;
                let done = a.events.len();
                wait(&mut a, &mut b, |a, _| (a.events.len() > done).then_some(()));
            }
        }
        for at in 0..WRITES {
            let packet = wait(&mut a, &mut b, |_, b| b.packets.pop_front());
            assert_eq!(packet, [at as u8], "{kind}");
        }
        assert!(place == source, "{kind}: other bytes");
        let count = |a: &End, of: fn(&RailEvent) -> bool| a.events.iter().filter(|e| of(e)).count();
        let done = |a: &End| count(a, |e| matches!(e, RailEvent::Done(_)));
        wait(&mut a, &mut b, |a, _| (done(a) == WRITES).then_some(()));
        assert_eq!(count(&a, |e| matches!(e, RailEvent::LinkDown(..))), 0);
        assert!(busy > 0, "{kind}: there was room for all");
        let told = |a: &End| count(a, |e| *e == RailEvent::Unregistered(libc::ENOMEM));
        // Each failure is reported once, regardless of retries.
        let once = (WRITES - 2..=WRITES).contains(&told(&a));
        assert!(once, "{kind}: {} of {WRITES}", told(&a));

        a.events.clear();
        assert_eq!(a.tx.register(place.as_mut_ptr(), LEN), None);
        assert_eq!(a.tx.advertise(source.as_ptr(), LEN), None);
        a.poll();
        assert_eq!(told(&a), 1 + usize::from(kind == "rc"), "{kind}");
        limit("unlimited");
        assert!(a.tx.register(place.as_mut_ptr(), LEN).is_some(), "{kind}");
    }
}
