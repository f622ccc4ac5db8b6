//! Processes of one host that are killed at random moments. The survivor is notified because of
//! evidence, since no process holds the name of the dead process's rail, and not because of
//! silence.
//!
//! `MARLINE_KILLS=1000 cargo test -p marline-engine --test killed -- --nocapture` prints the times.

#[path = "support/limit.rs"]
mod limit;
#[path = "support/side.rs"]
mod side;

use limit::Limit;
use marline_engine::{mark_forked, Completion, IoVec, LogSink, OpFlags, RecvReq, SendReq};
use side::Side;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The peer timeout is much longer than detection by evidence takes, even on a busy machine.
const SETTINGS: [(&str, &str); 2] = [("rails", "shm"), ("peer_timeout_ms", "20000")];
/// Length of a message that is read from its sender's memory.
const LONG: usize = 200_000;
/// Longest delay of the kill in microseconds after both processes know each other's names.
const SOON_US: u64 = 2_000;
/// Open sends and receives per side.
const UNDER_WAY: usize = 4;
/// Seconds after which a victim that was not killed exits by itself.
const HANGS_S: u32 = 60;

/// Message lengths of survivor and victim; 0: none.
const TRAFFIC: [[usize; 2]; 6] = [[8, 0], [0, 8], [8, 8], [LONG, 0], [0, LONG], [LONG, LONG]];

/// Behaviour of the survivor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Polls,
    /// Leaves all work to its progress thread.
    Computes,
    /// Sleeps until a completion.
    Waits,
}

/// One of the two processes with its open operations.
struct Party {
    side: Side,
    bytes: Vec<u8>,
    len: usize,
    sends: usize,
    receives: usize,
}

const SEND: usize = 1;
const RECEIVE: usize = 2;

impl Party {
    /// Opens an engine, and exchanges names with the process at the other end of `line`.
    fn meet(line: &mut UnixStream, len: usize, sink: LogSink) -> Party {
        let side = side::side(&SETTINGS, sink);
        let (name, name_len) = side.engine.ep_name(side.ep).unwrap();
        line.write_all(&name[..name_len]).unwrap();
        let mut other = vec![0; name_len];
        line.read_exact(&mut other).unwrap();
        assert_eq!(side.engine.av_insert(side.av, &other), Ok(0));
        Party {
            side,
            bytes: vec![0; LONG],
            len,
            sends: 0,
            receives: 0,
        }
    }

    /// Posts missing operations. (Received bytes may overwrite sent ones.)
    fn post(&mut self) {
        let base = self.bytes.as_mut_ptr();
        let iov = |len| [IoVec { base, len }];
        while self.receives < UNDER_WAY {
            let req = RecvReq {
                source: 0,
                iov: &iov(LONG),
                tag: None,
                context: RECEIVE,
                flags: OpFlags::COMPLETION,
            };
            if self.side.engine.recv(self.side.ep, &req).is_err() {
                return; // the peer is dead
            }
            self.receives += 1;
        }
        while self.len > 0 && self.sends < UNDER_WAY {
            let req = SendReq {
                dest: 0,
                iov: &iov(self.len),
                tag: None,
                data: None,
                context: SEND,
                flags: OpFlags::COMPLETION,
            };
            if self.side.engine.send(self.side.ep, &req).is_err() {
                return; // or there is no room
            }
            self.sends += 1;
        }
    }

    /// Takes completions; `false`: some operations failed.
    fn poll(&mut self) -> bool {
        let mut out = [Completion::empty(); 16];
        let Ok(count) = self.side.engine.cq_read(self.side.cq, &mut out) else {
            return false;
        };
        for done in &out[..count] {
            match done.context {
                SEND => self.sends -= 1,
                _ => self.receives -= 1,
            }
        }
        true
    }
}

/// Forks a process that exchanges messages with the other end of `line` until it is killed.
fn victim(mut line: UnixStream, len: usize) -> libc::pid_t {
    // SAFETY: the child allocates, which the C library permits, and uses an engine of its own.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child > 0 {
            return child;
        }
        libc::alarm(HANGS_S);
    }
    mark_forked(); // the API layer does this in `pthread_atfork`
    let mut party = Party::meet(&mut line, len, LogSink(Arc::new(|_, _| ())));
    loop {
        party.post();
        party.poll();
    }
}

fn kill(victim: libc::pid_t) {
    let mut status = 0;
    // SAFETY: an unreaped child of this process, and an int to write to.
    unsafe {
        assert_eq!(libc::kill(victim, libc::SIGKILL), 0);
        assert_eq!(libc::waitpid(victim, &mut status, 0), victim);
    }
}

/// Kills a victim after `delay`: the time until the survivor's log line, and that line.
fn told(manner: Manner, lens: [usize; 2], delay: Duration) -> (Duration, String) {
    let word: Arc<OnceLock<(Instant, String)>> = Arc::default();
    let (mut here, there) = UnixStream::pair().unwrap();
    let child = victim(there, lens[1]);
    let heard = word.clone();
    let sink = LogSink(Arc::new(move |_, text| {
        if text.contains("is dead") {
            let _ = heard.set((Instant::now(), text.to_owned()));
        }
    }));
    let mut party = Party::meet(&mut here, lens[0], sink);
    let (met, limit, mut killed) = (Instant::now(), Limit::begin(), None);
    party.post();
    while word.get().is_none() {
        limit.check("the word of a death");
        if killed.is_none() && met.elapsed() >= delay {
            killed = Some(Instant::now());
            kill(child);
        }
        match manner {
            Manner::Computes => std::thread::yield_now(),
            Manner::Waits if killed.is_some() => party.side.engine.cq_wait(party.side.cq, 100),
            Manner::Polls | Manner::Waits => {}
        }
        if manner != Manner::Computes && party.poll() {
            party.post();
        }
    }
    let (at, text) = word.get().unwrap().clone();
    party.side.engine.ep_close(party.side.ep);
    party.side.engine.close();
    (at - killed.expect("it was killed"), text)
}

/// Random numbers that differ from run to run.
fn random(below: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) % below
}

#[test]
fn a_killed_process_of_the_same_host_is_detected_by_evidence() {
    let kills = std::env::var("MARLINE_KILLS").map_or(1, |n| n.parse().expect("a number"));
    let mut silent = Vec::new();
    for manner in [Manner::Polls, Manner::Computes, Manner::Waits] {
        for lens in TRAFFIC {
            let mut took = Vec::new();
            for _ in 0..kills {
                let delay = Duration::from_micros(random(SOON_US));
                let (time, text) = told(manner, lens, delay);
                took.push(time);
                if !text.contains("its process is gone") {
                    silent.push((manner, lens, delay, text));
                }
            }
            took.sort();
            let (middle, last) = (took[took.len() / 2], took[took.len() - 1]);
            println!("{manner:?} {lens:?}: told after {middle:?}, at most {last:?}");
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}
