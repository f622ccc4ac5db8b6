//! A kind of rail that is not UDP carries a job through two engines: protocol and engine do not
//! depend on how rails work. Then a rail whose connections come late, are refused, break during the
//! job and are made anew.

mod connected;
mod job;
mod rail;

use connected::{lock, Shared, Stream, StreamRx};
use job::{Job, Machine};
use marline_engine::OpError;
use rail::{Loop, Wire};

#[test]
fn a_second_rail_carries_a_job() {
    let wire = Wire::default();
    let mut job = Job::new(|me| (Loop::new(me, &wire), Loop::new(me, &wire)));
    job.run(|_, _| {});
    assert_eq!(job.close(), 0, "nothing is left open");
}

fn streams(cable: &Shared) -> Job<Stream, StreamRx> {
    Job::new(|me| (Stream::new(me, cable), StreamRx::new(me, cable)))
}

#[test]
fn connections_that_come_late_carry_a_job() {
    let cable = Shared::default();
    lock(&cable).listens = [true; 2];
    let mut job = streams(&cable);
    job.run(|_, _| {});
    let cable = lock(&cable);
    assert_eq!((cable.refused, cable.broken), (0, 0));
    drop(cable);
    assert_eq!(job.close(), 0);
}

#[test]
fn connections_that_break_are_made_anew_and_nothing_is_lost() {
    let cable = Shared::default();
    lock(&cable).listens = [true; 2];
    let mut job = streams(&cable);
    // During eager messages, and requests, grants and data of long ones.
    job.run(|_, turn| {
        if turn % 97 == 96 && lock(&cable).broken < 40 {
            lock(&cable).cut();
        }
    });
    let broken = lock(&cable).broken;
    assert!(broken >= 5, "{broken} breaks");
    assert_eq!(job.close(), 0);
}

/// The receiving sides listen only after many requests.
#[test]
fn a_refused_connection_is_asked_for_again() {
    let cable = Shared::default();
    lock(&cable).listens = [true, false];
    let mut job = streams(&cable);
    job.run(|machines, turn| {
        // Time passes between two attempts.
        machines.iter().for_each(Machine::pass_ms);
        if turn == 300 {
            lock(&cable).listens = [true; 2];
        }
    });
    let refused = lock(&cable).refused;
    assert!((2..60).contains(&refused), "{refused}: ever later");
    assert_eq!(job.close(), 0);
}

/// No side ever listens: the sends end with an error that names the peer, and no operation hangs.
#[test]
fn a_peer_that_refuses_for_good_is_dead() {
    let cable = Shared::default();
    let mut job = streams(&cable);
    let end = job.alone();
    assert!(matches!(end, OpError::PeerDead), "{end:?}");
    assert_eq!(lock(&cable).packets, 0);
}
