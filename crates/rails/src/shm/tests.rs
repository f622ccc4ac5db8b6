//! Misbehaving peers: impossible values change nothing but a counter.

mod keys;

use super::addr::ShmAddr;
use super::frame::{write_piece, Head, Kind, To};
use super::handshake::Handshake;
use super::ring::{Memory, Producer};
use super::shared::Shared;
use super::{ShmConfig, ShmRail, ShmRx, ShmTx};
use crate::sys::{as_other_user, LinkMemory, Ring, SeqPacket};
use crate::{LinkId, Links, RailEvent, RailRx, RailTx, RemoteWrite, SendOutcome};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The rail under test.
struct Victim {
    shared: Arc<Shared>,
    tx: ShmTx,
    rx: ShmRx,
    packets: Vec<Vec<u8>>,
}

impl Victim {
    fn new() -> Victim {
        let rail = ShmRail::open(&ShmConfig::default()).unwrap();
        Victim {
            shared: rail.rx.shared(),
            tx: rail.tx,
            rx: rail.rx,
            packets: Vec::new(),
        }
    }

    fn poll(&mut self) {
        let packets = &mut self.packets;
        let mut sink = |received: crate::Received<'_>| packets.push(received.bytes.to_vec());
        self.rx.recv_rest(&mut sink);
        self.rx.recv(&mut sink);
        while self.tx.poll_event().is_some() {}
    }

    fn refused(&self) -> u64 {
        self.shared.refused.load(Relaxed)
    }

    /// Checks that a correct peer's packet still arrives.
    fn still_works(&mut self) {
        let rail = ShmRail::open(&ShmConfig::default()).unwrap();
        let (mut tx, mut rx) = (rail.tx, rail.rx);
        let link = tx.connect(&self.tx.local_addr()).link;
        let mut up = false;
        while !up {
            self.poll();
            rx.recv(&mut |_| ());
            rx.recv_rest(&mut |_| ());
            up = tx.poll_event() == Some(RailEvent::LinkUp(link));
        }
        let before = self.packets.len();
        assert_eq!(tx.send(link, b"honest", 6, 0), SendOutcome::Sent);
        while self.packets.len() == before {
            self.poll();
        }
        assert_eq!(self.packets.last().unwrap(), b"honest");
    }
}

/// A hand-made connection to the victim.
struct Attacker {
    socket: SeqPacket,
    out: Ring,
    input: Ring,
    link: LinkId,
    /// The attacker's rail, which is never polled.
    _rail: ShmRail,
}

impl Attacker {
    fn connect(victim: &mut Victim) -> Attacker {
        let rail = ShmRail::open(&ShmConfig::default()).unwrap();
        let shared = rail.rx.shared();
        let socket = SeqPacket::connect(victim.shared.local.name).unwrap();
        let (memory, file) = LinkMemory::create().unwrap();
        shared.send_handshake(&socket, 0, Some(file)).unwrap();
        let (out, input) = memory.rings();
        victim.poll();
        victim.poll();
        let connected = victim.tx.connect(&shared.local.rail());
        assert!(connected.up);
        Attacker {
            socket,
            out,
            input,
            link: connected.link,
            _rail: rail,
        }
    }

    fn frame(&self, head: &Head, body: &[u8]) {
        let mut producer = Producer::new::<Ring>();
        let at = producer.body(&self.out, head.len as u64).unwrap().unwrap();
        self.out.put(at, body);
        producer.publish(&self.out, head.word(), head.len as u64);
    }
}

#[test]
fn random_rings_break_their_connection_alone() {
    let mut random = Random(1);
    for seed in 0..200 {
        let mut victim = Victim::new();
        let attacker = Attacker::connect(&mut victim);
        let mut memory = [0u8; 4096];
        let key = victim
            .tx
            .register(memory.as_mut_ptr(), memory.len())
            .unwrap();
        let mut at = 0;
        for _ in 0..20 {
            let kind = [Kind::Packets, Kind::Inline, Kind::Pull][random.below(3) as usize];
            let head = Head {
                kind,
                len: 1 + random.below(200) as usize,
                segment: 1 + random.below(300) as usize,
            };
            // Nearly correct words get furthest.
            let flip = if random.below(4) == 0 {
                1 << random.below(64)
            } else {
                0
            };
            for offset in 0..30 {
                let word = match random.below(4) {
                    0 => key,
                    1 => random.below(20),
                    _ => random.next(),
                };
                attacker.out.word(at + 8 * offset).store(word, Relaxed);
            }
            attacker.out.word(at).store(head.word() ^ flip, Relaxed);
            at += 8 + (head.len as u64).next_multiple_of(8);
        }
        attacker.input.consumed().store(random.next(), Relaxed);
        attacker.input.pulled().store(random.next(), Relaxed);
        attacker
            .input
            .can_pull()
            .store(random.next() as u32, Relaxed);
        for _ in 0..30 {
            victim.poll();
            victim.tx.send(attacker.link, &[7; 60_000], 60_000, 0);
        }
        victim.tx.deregister(key);
        assert!(victim.refused() <= 1, "seed {seed}");
        victim.still_works();
    }
}

#[test]
fn nonsense_in_a_ring_is_counted_and_ends_the_connection() {
    let place = |key, count| To {
        key,
        offset: 0,
        count,
    };
    let mut pulls = vec![];
    for count in [0, 1, 2, 16, 17, u64::MAX] {
        let mut body = place(5, count).write().to_vec();
        body.extend(write_piece(u64::MAX - 10, 100));
        body.extend(write_piece(0, u64::MAX));
        body.push(1);
        pulls.push((Kind::Pull, body));
    }
    for count in [0, 100, u64::MAX] {
        let mut body = place(5, count).write().to_vec();
        body.extend([1; 100]);
        pulls.push((Kind::Inline, body));
    }
    for (kind, body) in pulls {
        let mut victim = Victim::new();
        let attacker = Attacker::connect(&mut victim);
        let head = Head {
            kind,
            len: body.len(),
            segment: 1,
        };
        attacker.frame(&head, &body);
        victim.poll();
        assert!(victim.packets.is_empty(), "{kind:?} {body:?}");
        let mut bytes = [0; 8];
        let end = std::iter::repeat_with(|| attacker.socket.recv(&mut bytes).map(|m| m.len));
        let lens: Vec<_> = end.take_while(|len| *len != Ok(0)).take(10).collect();
        assert!(lens.len() < 10, "the connection ended");
        victim.still_works();
    }
}

#[test]
fn a_pull_of_memory_that_is_not_there_breaks_the_connection() {
    let mut victim = Victim::new();
    let attacker = Attacker::connect(&mut victim);
    let mut memory = vec![0u8; 4096];
    let key = victim
        .tx
        .register(memory.as_mut_ptr(), memory.len())
        .unwrap();
    let to = To {
        key,
        offset: 0,
        count: 1,
    };
    let body = [&to.write()[..], &write_piece(8, 100), b"told"].concat();
    let head = Head {
        kind: Kind::Pull,
        len: body.len(),
        segment: 4,
    };
    attacker.frame(&head, &body);
    victim.poll();
    assert!(victim.packets.is_empty() && memory.iter().all(|byte| *byte == 0));
    victim.tx.deregister(key);
    victim.still_works();
}

#[test]
fn a_ring_that_changes_while_it_is_read_does_no_harm() {
    let mut victim = Victim::new();
    for seed in 0..20 {
        let attacker = Attacker::connect(&mut victim);
        let out = attacker.out.clone();
        let scribbler = std::thread::spawn(move || {
            let mut random = Random(seed);
            for _ in 0..50_000 {
                let head = Head {
                    kind: [Kind::Packets, Kind::Inline, Kind::Pull][random.below(3) as usize],
                    len: 25 + random.below(3_000) as usize,
                    segment: 1 + random.below(300) as usize,
                };
                out.word(8 * random.below(4096)).store(head.word(), Relaxed);
                out.word(8 * random.below(4096))
                    .store(random.next(), Relaxed);
            }
        });
        while !scribbler.is_finished() {
            victim.poll();
        }
        scribbler.join().unwrap();
        victim.poll();
    }
    victim.still_works();
}

/// Sends one hand-made message; returns whether it was counted as a stranger's.
fn is_refused(bytes: &[u8], fds: &[OwnedFd]) -> bool {
    let mut victim = Victim::new();
    let socket = SeqPacket::connect(victim.shared.local.name).unwrap();
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    socket.send(bytes, &fds).unwrap();
    (0..3).for_each(|_| victim.poll());
    victim.still_works();
    victim.refused() == 1
}

#[test]
fn strangers_are_not_let_in() {
    let rail = ShmRail::open(&ShmConfig::default()).unwrap();
    let shared = rail.rx.shared();
    let handshake = Handshake {
        from: shared.local,
        slot: 0,
        canary: shared.canary.at(),
    };
    let good = handshake.write();
    let inbox = || shared.inbox_file.try_clone().unwrap();
    let memory = || LinkMemory::create().unwrap().1;
    // Access to a mapping whose file can shrink could kill the process (SIGBUS).
    let plain = || OwnedFd::from(File::open("/proc/self/exe").unwrap());
    assert!(
        !is_refused(&good, &[inbox(), memory()]),
        "that is how it is done"
    );
    assert!(is_refused(&good, &[]));
    assert!(is_refused(&good, &[inbox()]));
    assert!(is_refused(&good, &[memory(), inbox()]));
    assert!(is_refused(&good, &[inbox(), plain()]));
    assert!(is_refused(&good, &[plain(), memory()]));
    assert!(is_refused(&good[1..], &[inbox(), memory()]));
    assert!(is_refused(&[7; 64], &[inbox(), memory()]));
    assert!(is_refused(&[7; 4_000], &[inbox(), memory()]));
    let far = Handshake {
        slot: u32::MAX,
        ..handshake
    };
    assert!(is_refused(&far.write(), &[inbox(), memory()]));
    let mut other = handshake;
    other.from.host[0] ^= 1;
    assert!(is_refused(&other.write(), &[inbox(), memory()]));
    // A peer whose canary does not match gets its bytes through the ring.
    let mut liar = handshake;
    liar.canary.words[0] ^= 1;
    assert!(!is_refused(&liar.write(), &[inbox(), memory()]));
}

/// Regression: the user was checked after the message with its descriptors had been received.
#[test]
fn processes_of_other_users_are_turned_away_unread() {
    let mut victim = Victim::new();
    let name = victim.shared.local.name;
    let Some(socket) = as_other_user(|| SeqPacket::connect(name)) else {
        return; // only root may become another user
    };
    (0..3).for_each(|_| victim.poll());
    assert_eq!(victim.refused(), 1, "it has sent nothing yet");
    assert!(socket.unwrap().send(&[0], &[]).is_err());
    victim.still_works();
}

/// Regression: the rail's memory went to whoever listened under the name of a peer.
#[test]
fn a_listener_of_another_user_gets_no_memory() {
    let mut victim = Victim::new();
    let name = !victim.shared.local.name;
    let Some(listener) = as_other_user(|| SeqPacket::listen(name)) else {
        return; // only root may become another user
    };
    let to = ShmAddr {
        name,
        ..victim.shared.local
    };
    assert!(!victim.tx.connect(&to.rail()).up);
    (0..3).for_each(|_| victim.poll());
    let socket = listener.unwrap().accept().unwrap();
    let message = socket.recv(&mut [0; 128]).unwrap();
    assert_eq!(
        (message.len, message.fds.len()),
        (0, 0),
        "the end of the connection"
    );
}

#[test]
fn silent_strangers_do_not_keep_others_out() {
    let mut victim = Victim::new();
    let silent: Vec<_> = (0..300)
        .map(|_| {
            let socket = SeqPacket::connect(victim.shared.local.name).unwrap();
            victim.poll();
            socket
        })
        .collect();
    victim.still_works();
    assert!(victim.refused() > 0);
    drop(silent);
}
