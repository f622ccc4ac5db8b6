//! The rounds in which ranks exchange messages.

use crate::mpi::{Job, Receives, Sends};
use crate::pattern::Id;
use crate::report::Report;
use std::ffi::c_int;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The work of a rank.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The MPI's library.
    pub library: PathBuf,
    /// Length of the exchange.
    pub duration: Duration,
    /// Time between reports of rank 0.
    pub report_every: Duration,
}

/// Bytes of the messages of a round to each peer: eager ones, and some by rendezvous.
const LENGTHS: [usize; 12] = [
    8,
    100,
    1_000,
    4_000,
    8_192,
    16_384,
    40_000,
    65_536,
    100_000,
    262_144,
    524_288,
    1 << 20,
];
/// Rank 0 ends the exchange by a message of ones; otherwise it has zeroes. It may be damaged.
const LAST_LEN: usize = 64;
const LAST: u8 = 1;
/// The tag of that message; other messages have their number as a tag.
const LAST_TAG: c_int = LENGTHS.len() as c_int;

/// Messages to or from one peer.
struct Peer {
    rank: usize,
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
}

impl Peer {
    fn new(rank: usize) -> Peer {
        let buffers = || LENGTHS.iter().map(|&len| vec![0; len]).collect();
        Peer {
            rank,
            sent: buffers(),
            received: buffers(),
        }
    }
}

/// Runs a rank to its end, and prints its reports.
pub fn run(plan: &Plan) -> Result<(), String> {
    let job = Job::start(&plan.library)?;
    let (rank, size) = job.rank_of();
    let mut peers: Vec<Peer> = (0..size).filter(|&r| r != rank).map(Peer::new).collect();
    let mut report = Report {
        rank,
        ..Report::default()
    };
    let start = Instant::now();
    let mut next_report = Duration::ZERO;
    for round in 0.. {
        let before = start.elapsed();
        let last = exchange_round(&job, round, &mut peers, before >= plan.duration)?;
        let after = start.elapsed();
        report.longest_ms = report.longest_ms.max((after - before).as_millis() as u64);
        report.ms = after.as_millis() as u64;
        let wrong = count(&mut report, round, &peers);
        report.ended = last;
        if last || wrong || (rank == 0 && after >= next_report) {
            println!("{report}");
            next_report = after + plan.report_every;
        }
        if last {
            break;
        }
    }
    Ok(())
}

/// Exchanges the messages of a round with all peers; returns whether it was the last one, which
/// rank 0 decides by `enough`.
fn exchange_round(job: &Job, round: u64, peers: &mut [Peer], enough: bool) -> Result<bool, String> {
    let (rank, _) = job.rank_of();
    let mut word = [if enough { LAST } else { 0 }; LAST_LEN];
    let announced = word;
    let (mut sends, mut receives): (Sends<'_>, Receives<'_>) = (Vec::new(), Vec::new());
    for peer in peers.iter_mut() {
        for (number, buffer) in peer.sent.iter_mut().enumerate() {
            let id = Id {
                round,
                from: rank,
                to: peer.rank,
                number,
            };
            id.fill(buffer);
            sends.push((&buffer[..], peer.rank, number as c_int));
        }
        for (number, buffer) in peer.received.iter_mut().enumerate() {
            buffer.fill(0);
            receives.push((&mut buffer[..], peer.rank, number as c_int));
        }
        if rank == 0 {
            sends.push((&announced[..], peer.rank, LAST_TAG));
        }
    }
    if rank != 0 {
        receives.push((&mut word[..], 0, LAST_TAG));
    }
    job.exchange(sends, receives)?;
    Ok(2 * word.iter().filter(|byte| **byte == LAST).count() > LAST_LEN)
}

/// Adds the received messages of a round; returns whether any is wrong.
fn count(report: &mut Report, round: u64, peers: &[Peer]) -> bool {
    let before = report.wrong;
    for peer in peers {
        for (number, buffer) in peer.received.iter().enumerate() {
            let id = Id {
                round,
                from: peer.rank,
                to: report.rank,
                number,
            };
            report.messages += 1;
            report.bytes += buffer.len() as u64;
            report.wrong += u64::from(!id.is_in(buffer));
        }
    }
    report.wrong > before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_messages_are_counted() {
        let mut peers = [Peer::new(1)];
        let mut report = Report::default();
        for (number, buffer) in peers[0].received.iter_mut().enumerate() {
            let id = Id {
                round: 5,
                from: 1,
                to: 0,
                number,
            };
            id.fill(buffer);
        }
        assert!(!count(&mut report, 5, &peers));
        peers[0].received[3][17] ^= 1;
        assert!(count(&mut report, 5, &peers));
        let bytes: usize = LENGTHS.iter().sum();
        let (messages, bytes) = (2 * LENGTHS.len() as u64, 2 * bytes as u64);
        assert_eq!(
            (report.messages, report.bytes, report.wrong),
            (messages, bytes, 1)
        );
    }
}
