//! The shm rail between real processes and threads.

use marline_rails::{
    Armed, DownReason, LinkId, Links, Piece, Rail, RailEvent, RailRx, RailTx, Received,
    RemoteWrite, SendOutcome, ShmConfig, ShmRail, ShmRx, ShmTx, TxBuffers, Write,
};
use marline_wire::{RailAddr, RailKind, RailList};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Long enough for any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A rail with its received packets and events.
struct End {
    tx: ShmTx,
    rx: ShmRx,
    packets: Vec<Vec<u8>>,
    events: Vec<RailEvent>,
}

impl End {
    fn new(one_copy: bool) -> End {
        let keys = None;
        let rail = ShmRail::open(&ShmConfig { one_copy, keys }).unwrap();
        let (tx, rx) = rail.split();
        End {
            tx,
            rx,
            packets: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Polls; returns the number of packets.
    fn poll(&mut self) -> usize {
        let packets = &mut self.packets;
        let mut sink = |received: Received<'_>| {
            let all = received.bytes.chunks(received.segment);
            packets.extend(all.map(<[u8]>::to_vec));
        };
        let count = self.rx.recv(&mut sink) + self.rx.recv_rest(&mut sink);
        self.events
            .extend(std::iter::from_fn(|| self.tx.poll_event()));
        count
    }

    /// Sleeps until a packet or event arrives.
    fn sleep(&mut self) {
        assert!(self.sleep_for(PATIENCE), "nobody woke it");
    }

    /// Sleeps for at most this time; returns whether it was woken.
    fn sleep_for(&mut self, most: Duration) -> bool {
        if self.rx.arm() == Armed::LookAgain {
            self.poll();
            return true;
        }
        let mut fd = libc::pollfd {
            fd: self.rx.fd().unwrap(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure, which outlives the call.
        let n = unsafe { libc::poll(&mut fd, 1, most.as_millis() as i32) };
        self.poll();
        n == 1
    }

    fn down(&self, link: LinkId) -> Option<DownReason> {
        self.events.iter().find_map(|event| match event {
            RailEvent::LinkDown(of, reason) if *of == link => Some(*reason),
            _ => None,
        })
    }

    fn done(&self) -> Vec<u64> {
        let token = |event: &RailEvent| match event {
            RailEvent::Done(token) => Some(*token),
            _ => None,
        };
        self.events.iter().filter_map(token).collect()
    }
}

/// Polls until `over` returns `true`.
fn poll_until(ends: &mut [&mut End], over: impl Fn(&[&mut End]) -> bool) {
    let start = Instant::now();
    while !over(ends) {
        assert!(start.elapsed() < PATIENCE, "it never comes");
        ends.iter_mut().for_each(|end| _ = end.poll());
        std::thread::yield_now();
    }
}

/// Two ends, and the links between them.
fn pair(one_copy: bool) -> (End, End, LinkId, LinkId) {
    let (mut a, mut b) = (End::new(one_copy), End::new(one_copy));
    let there = a.tx.connect(&b.tx.local_addr());
    assert!(!there.up);
    let link = there.link;
    let up = RailEvent::LinkUp(link);
    poll_until(&mut [&mut a, &mut b], |e| e[0].events.contains(&up));
    let back = b.tx.connect(&a.tx.local_addr());
    assert!(back.up, "the connection that came is the way back");
    a.events.clear();
    (a, b, link, back.link)
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7) as u8).collect()
}

#[test]
fn packets_arrive_in_order_both_ways_and_none_is_lost() {
    let (mut a, mut b, there, back) = pair(true);
    let sizes = [1, 8, 100, 4096, 64_000, 333, 20_000];
    for n in 0..2_000 {
        let packet = bytes(n, sizes[n % sizes.len()]);
        while a.tx.send(there, &packet, packet.len(), 0) == SendOutcome::Busy {
            b.poll();
        }
        while b.tx.send(back, &packet, packet.len(), 0) == SendOutcome::Busy {
            a.poll();
        }
    }
    poll_until(&mut [&mut a, &mut b], |ends| {
        ends.iter().all(|end| end.packets.len() >= 2_000)
    });
    for end in [&a, &b] {
        for (n, packet) in end.packets.iter().enumerate() {
            assert!(*packet == bytes(n, sizes[n % sizes.len()]), "packet {n}");
        }
    }
    assert!(a.events.is_empty() && b.done().is_empty());
}

#[test]
fn a_batch_arrives_as_one_from_a_lent_buffer() {
    let (mut a, mut b, there, _) = pair(true);
    let batch = bytes(1, 10_000);
    let buffer = a.tx.lend().unwrap();
    a.tx.buffer(buffer)[..10_000].copy_from_slice(&batch);
    let sent = a.tx.send_buffer(there, buffer, 10_000, 4_000, 0);
    assert_eq!(sent, SendOutcome::Sent);
    assert_eq!(a.tx.lend(), Some(buffer), "it is free again");
    poll_until(&mut [&mut b], |ends| !ends[0].packets.is_empty());
    let lens: Vec<_> = b.packets.iter().map(Vec::len).collect();
    assert_eq!(
        (lens, b.packets.concat()),
        (vec![4_000, 4_000, 2_000], batch)
    );
}

#[test]
fn a_full_ring_is_busy_until_the_other_end_reads() {
    let (mut a, mut b, there, _) = pair(true);
    let packet = bytes(3, 60_000);
    let mut sent = 0;
    while a.tx.send(there, &packet, packet.len(), 0) == SendOutcome::Sent {
        sent += 1;
        assert!(sent < 1_000);
    }
    let buffer = a.tx.lend().unwrap();
    let again = a.tx.send_buffer(there, buffer, 60_000, 60_000, 0);
    assert_eq!(again, SendOutcome::Busy);
    a.tx.give_back(buffer);
    poll_until(&mut [&mut a, &mut b], |ends| ends[1].packets.len() == sent);
    assert_eq!(
        a.tx.send(there, &packet, packet.len(), 0),
        SendOutcome::Sent
    );
    assert!(b.packets.iter().all(|got| *got == packet));
}

#[test]
fn a_peer_that_does_not_read_holds_up_no_other() {
    let (mut a, mut b, there, _) = pair(true);
    let mut c = End::new(true);
    let to_c = a.tx.connect(&c.tx.local_addr()).link;
    poll_until(&mut [&mut a, &mut c], |ends| {
        ends[0].events.contains(&RailEvent::LinkUp(to_c))
    });
    let packet = bytes(3, 60_000);
    for n in 0..20u8 {
        assert_eq!(
            a.tx.send(there, &packet, packet.len(), 0),
            SendOutcome::Sent
        );
        assert_eq!(a.tx.send(to_c, &[n], 1, 0), SendOutcome::Sent);
    }
    poll_until(&mut [&mut c], |ends| ends[0].packets.len() == 20);
    // A sleeping sender is woken each time there is room again.
    let reader = std::thread::spawn(move || {
        while b.packets.len() < 20 {
            b.sleep();
        }
        b.packets
    });
    while !reader.is_finished() {
        a.sleep_for(Duration::from_millis(100));
    }
    assert!(reader.join().unwrap().iter().all(|got| *got == packet));
}

/// A write from two pieces into registered memory, with its notification.
fn write(a: &mut End, link: LinkId, place: (u64, u64), pieces: [&[u8]; 2], token: u64) {
    let pieces = pieces.map(|piece| Piece {
        base: piece.as_ptr(),
        len: piece.len(),
    });
    let write = Write {
        key: place.0,
        offset: place.1,
        pieces: &pieces,
        token,
        source: None,
    };
    let sent = a.tx.write(link, &write, &token.to_le_bytes());
    assert_eq!(sent, SendOutcome::Sent);
}

/// Writes as much as is copied for a peer that does not read: the next write is left to be pulled.
fn write_what_is_copied(a: &mut End, b: &mut End, link: LinkId) {
    let (memory, data) = (vec![0u8; 60_000].leak(), bytes(6, 30_000));
    for token in [1, 2] {
        let key = b.tx.register(memory.as_mut_ptr(), memory.len()).unwrap();
        write(a, link, (key, 0), [&data, &data], token);
    }
}

#[test]
fn writes_land_before_their_notification() {
    for one_copy in [true, false] {
        let (mut a, mut b, there, _) = pair(one_copy);
        let mut memory = vec![0u8; 60_032];
        let key = b.tx.register(memory.as_mut_ptr(), memory.len()).unwrap();
        let (first, second) = (bytes(5, 40_000), bytes(6, 20_000));
        write_what_is_copied(&mut a, &mut b, there);
        write(&mut a, there, (key, 16), [&first, &second], 77);
        a.poll();
        assert_eq!(a.done().contains(&77), !one_copy, "it is still to be read");
        poll_until(&mut [&mut b], |ends| ends[0].packets.len() == 3);
        assert_eq!(b.packets, [1u64, 2, 77].map(u64::to_le_bytes));
        b.tx.deregister(key);
        let zeros = [0u8; 16];
        assert!(memory == [&zeros[..], &first, &second, &zeros].concat());
        poll_until(&mut [&mut a], |ends| ends[0].done() == [1, 2, 77]);
        assert_eq!((a.down(there), b.events.len()), (None, 0));
    }
}

#[test]
fn writes_that_follow_one_another_land_each_with_its_packet() {
    const LEN: usize = 20_000;
    for one_copy in [true, false] {
        let (mut a, mut b, there, _) = pair(one_copy);
        let mut memory = vec![0u8; 20 * LEN];
        let key = b.tx.register(memory.as_mut_ptr(), memory.len()).unwrap();
        let (data, mut told) = (bytes(5, 20 * LEN), vec![]);
        for part in (0..20).map(|n| if n < 13 { n } else { 32 - n }) {
            let (first, second) = data[part * LEN..][..LEN].split_at(part * 100 + 1);
            let (place, token) = ((key, (part * LEN) as u64), part as u64);
            write(&mut a, there, place, [first, second], token);
            told.push(token.to_le_bytes().to_vec());
            if part % 5 == 4 {
                a.tx.send(there, b"packet", 6, 0);
                told.push(b"packet".to_vec());
            }
        }
        poll_until(&mut [&mut a, &mut b], |ends| {
            ends[0].done().len() == 20 && ends[1].packets.len() == told.len()
        });
        b.tx.deregister(key);
        assert!(b.packets == told && memory == data);
    }
}

#[test]
fn a_write_without_a_place_breaks_the_link_and_its_packet_is_never_seen() {
    for one_copy in [true, false] {
        let (mut a, mut b, there, _) = pair(one_copy);
        let mut memory = vec![0u8; 100_000];
        let key = b.tx.register(memory.as_mut_ptr(), memory.len()).unwrap();
        b.tx.deregister(key);
        let data = bytes(5, 30_000);
        write(&mut a, there, (key, 16), [&data, &data], 9);
        poll_until(&mut [&mut a, &mut b], |ends| ends[0].down(there).is_some());
        assert!(b.packets.is_empty() && memory.iter().all(|byte| *byte == 0));
        assert_eq!(a.done(), [9]);
        a.tx.close(there);
        let next = a.tx.connect(&b.tx.local_addr());
        let up = RailEvent::LinkUp(next.link);
        poll_until(&mut [&mut a, &mut b], |e| e[0].events.contains(&up));
    }
}

#[test]
fn drained_writes_are_not_delivered() {
    let (mut a, mut b, there, _) = pair(true);
    let mut memory = vec![0u8; 100_000];
    let key = b.tx.register(memory.as_mut_ptr(), memory.len()).unwrap();
    let data = bytes(5, 30_000);
    write_what_is_copied(&mut a, &mut b, there);
    write(&mut a, there, (key, 16), [&data, &data], 9);
    a.tx.drain();
    drop(data);
    poll_until(&mut [&mut a, &mut b], |ends| ends[0].down(there).is_some());
    assert_eq!(b.packets, [1u64, 2].map(u64::to_le_bytes));
    b.tx.deregister(key);
}

#[test]
fn strange_addresses_lead_nowhere() {
    let mut a = End::new(true);
    let mut other_host = a.tx.local_addr().bytes().to_vec();
    other_host[3] ^= 1;
    let mut nobody = a.tx.local_addr().bytes().to_vec();
    nobody[17] ^= 1;
    // An address of another host is not tried, so there is no refusal.
    let unasked = DownReason::Broken(libc::EHOSTUNREACH);
    for (address, why) in [(other_host, unasked), (nobody, DownReason::Refused)] {
        let link = a.tx.connect(&RailAddr::new(RailKind::Shm, &address)).link;
        a.poll();
        assert_eq!(a.down(link), Some(why));
        assert_eq!(a.tx.send(link, &[1], 1, 0), SendOutcome::Sent, "lost");
        a.tx.close(link);
        a.events.clear();
    }
}

#[test]
fn an_address_survives_the_blob() {
    let a = End::new(true);
    let mut room = [0; 64];
    let list = RailList::write(&mut room, &[a.tx.local_addr()]);
    assert_eq!(list.iter().collect::<Vec<_>>(), [a.tx.local_addr()]);
}

#[test]
fn both_may_connect_at_once() {
    let (mut a, mut b) = (End::new(true), End::new(true));
    let there = a.tx.connect(&b.tx.local_addr()).link;
    let back = b.tx.connect(&a.tx.local_addr()).link;
    poll_until(&mut [&mut a, &mut b], |ends| {
        ends[0].events.contains(&RailEvent::LinkUp(there))
            && ends[1].events.contains(&RailEvent::LinkUp(back))
    });
    a.tx.send(there, &[1], 1, 0);
    b.tx.send(back, &[2], 1, 0);
    poll_until(&mut [&mut a, &mut b], |ends| {
        ends.iter().all(|end| !end.packets.is_empty())
    });
    assert_eq!((&a.packets, &b.packets), (&vec![vec![2]], &vec![vec![1]]));
}

#[test]
fn many_peers_are_read_by_notification_bits() {
    const PEERS: usize = 100;
    let mut hub = End::new(true);
    let address = hub.tx.local_addr();
    let mut peers: Vec<_> = (0..PEERS)
        .map(|_| {
            let mut end = End::new(true);
            let link = end.tx.connect(&address).link;
            poll_until(&mut [&mut hub, &mut end], |ends| {
                ends[1].events.contains(&RailEvent::LinkUp(link))
            });
            (end, link)
        })
        .collect();
    for round in 0..200u8 {
        for (at, (end, link)) in peers.iter_mut().enumerate() {
            end.tx.send(*link, &[at as u8, round], 2, 0);
        }
        let all = PEERS * (round as usize + 1);
        poll_until(&mut [&mut hub], |ends| ends[0].packets.len() == all);
    }
    for (at, (end, link)) in peers.iter_mut().enumerate() {
        let rounds = hub.packets.iter().filter(|p| p[0] == at as u8);
        assert!(rounds.map(|p| p[1]).eq(0..200), "peer {at}");
        end.tx.close(*link);
    }
    // More frames than one turn takes, from one of many peers.
    let (end, _) = &mut peers[0];
    end.events.clear();
    let link = end.tx.connect(&address).link;
    poll_until(&mut [&mut hub, end], |ends| {
        ends[1].events.contains(&RailEvent::LinkUp(link))
    });
    hub.packets.clear();
    (0..1_000).for_each(|_| _ = end.tx.send(link, &[1], 1, 0));
    poll_until(&mut [&mut hub], |ends| ends[0].packets.len() == 1_000);
}

#[test]
fn sleepers_are_woken_by_packets_and_by_writes_that_are_done() {
    const ROUNDS: usize = 2_000;
    let (mut a, mut b, there, back) = pair(true);
    let mut memory = vec![0u8; 20_000];
    let key = b.tx.register(memory.as_mut_ptr(), memory.len()).unwrap();
    let echo = std::thread::spawn(move || {
        for n in 0..ROUNDS {
            while b.packets.len() <= n {
                b.sleep();
            }
            assert_eq!(b.tx.send(back, &[n as u8], 1, 0), SendOutcome::Sent);
        }
        b
    });
    for n in 0..ROUNDS {
        assert_eq!(a.tx.send(there, &[n as u8], 1, 0), SendOutcome::Sent);
        while a.packets.len() <= n {
            a.events.clear();
            a.sleep();
        }
    }
    let mut b = echo.join().unwrap();
    write_what_is_copied(&mut a, &mut b, there);
    a.poll();
    let data = bytes(1, 10_000);
    write(&mut a, there, (key, 0), [&data, &data], 5);
    let reader = std::thread::spawn(move || {
        while b.packets.last().unwrap() != &5u64.to_le_bytes() {
            b.sleep();
        }
        b
    });
    while !a.done().contains(&5) {
        a.sleep();
    }
    reader.join().unwrap();
}

/// The variable that makes a test's program the other process; contains the address to connect to.
const OTHER: &str = "MARLINE_TEST_SHM_PEER";

/// Starts the other process, under `unshare` with these arguments if there are any.
fn other_process(test: &str, address: &RailAddr, unshared: &[&str]) -> Child {
    let hex: String = address.bytes().iter().map(|b| format!("{b:02x}")).collect();
    let program = std::env::current_exe().unwrap();
    let mut command = match unshared {
        [] => Command::new(program),
        namespaces => {
            let mut unshare = Command::new("unshare");
            unshare.args(namespaces).arg("--").arg(program);
            unshare
        }
    };
    let command = command.args([&format!("shm::{test}"), "--exact", "--nocapture"]);
    command.env(OTHER, hex).spawn().unwrap()
}

/// In the other process: an end, and its link to the first process.
fn of_first() -> Option<(End, LinkId)> {
    let hex = std::env::var(OTHER).ok()?;
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let address: Vec<_> = (0..hex.len()).step_by(2).map(byte).collect();
    let mut end = End::new(true);
    let link = end.tx.connect(&RailAddr::new(RailKind::Shm, &address)).link;
    poll_until(&mut [&mut end], |ends| {
        ends[0].events.contains(&RailEvent::LinkUp(link))
    });
    Some((end, link))
}

/// The shared memory that a process has mapped, by file name.
fn mapped(process: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let shared = maps.lines().filter(|line| line.contains("rw-s"));
    let name = |line: &str| {
        line.split_whitespace()
            .skip(5)
            .collect::<Vec<_>>()
            .join(" ")
    };
    shared.map(name).collect()
}

#[test]
fn a_killed_process_is_noticed_at_once_and_leaves_nothing() {
    const TEST: &str = "a_killed_process_is_noticed_at_once_and_leaves_nothing";
    if let Some((mut end, link)) = of_first() {
        let data = bytes(8, 50_000);
        end.poll();
        let said = end.tx.send(link, end.tx.local_addr().bytes(), 24, 0);
        assert_eq!(said, SendOutcome::Sent);
        let key = loop {
            end.sleep();
            if let Some(packet) = end.packets.first() {
                break u64::from_le_bytes(packet[..].try_into().unwrap());
            }
        };
        write(&mut end, link, (key, 16), [&data, &data], 1);
        loop {
            std::thread::park();
        }
    }
    let mut end = End::new(true);
    let mut child = other_process(TEST, &end.tx.local_addr(), &[]);
    poll_until(&mut [&mut end], |ends| !ends[0].packets.is_empty());
    let address = RailAddr::new(RailKind::Shm, &end.packets[0]);
    let link = end.tx.connect(&address);
    assert!(link.up);
    // The bytes are read from another process's memory.
    let mut memory = vec![0u8; 100_032];
    let key = end.tx.register(memory.as_mut_ptr(), memory.len()).unwrap();
    end.tx.send(link.link, &key.to_le_bytes(), 8, 0);
    poll_until(&mut [&mut end], |ends| ends[0].packets.len() == 2);
    end.tx.deregister(key);
    let data = bytes(8, 50_000);
    assert!(memory[16..50_016] == data && memory[50_016..100_016] == data);
    let files = mapped(child.id());
    let nameless = |file: &String| file.starts_with("/memfd:marline (deleted)");
    assert!(!files.is_empty() && files.iter().all(nameless), "{files:?}");
    child.kill().unwrap(); // SIGKILL
    while end.down(link.link).is_none() {
        end.sleep();
    }
    assert_eq!(end.down(link.link), Some(DownReason::Closed));
    child.wait().unwrap();
    end.tx.close(link.link);
    end.events.clear();
    let again = end.tx.connect(&address).link;
    end.poll();
    assert_eq!(end.down(again), Some(DownReason::Refused));
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let number = u64::from_le_bytes(address.bytes()[16..].try_into().unwrap());
    assert!(!sockets.contains(&format!("@marline-{number:016x}")));
}

#[test]
fn what_was_sent_before_a_process_ended_is_received() {
    const TEST: &str = "what_was_sent_before_a_process_ended_is_received";
    if let Some((mut end, link)) = of_first() {
        for n in 0..100u8 {
            assert_eq!(end.tx.send(link, &[n; 1000], 1000, 0), SendOutcome::Sent);
        }
        return;
    }
    let mut end = End::new(true);
    let mut child = other_process(TEST, &end.tx.local_addr(), &[]);
    // Accepts the connection, and then reads nothing until the other process has ended.
    poll_until(&mut [&mut end], |ends| !ends[0].packets.is_empty());
    assert!(child.wait().unwrap().success());
    poll_until(&mut [&mut end], |ends| ends[0].packets.len() == 100);
    assert!(end
        .packets
        .iter()
        .enumerate()
        .all(|(n, p)| *p == [n as u8; 1000]));
}

#[test]
fn a_container_with_processes_of_its_own_gets_its_bytes_through_the_ring() {
    const TEST: &str = "a_container_with_processes_of_its_own_gets_its_bytes_through_the_ring";
    let (first, second) = (bytes(1, 40_000), bytes(2, 20_000));
    if let Some((mut end, link)) = of_first() {
        let mut memory = vec![0u8; 60_016];
        let key = end.tx.register(memory.as_mut_ptr(), memory.len()).unwrap();
        end.tx.send(link, end.tx.local_addr().bytes(), 24, 0);
        end.tx.send(link, &key.to_le_bytes(), 8, 0);
        poll_until(&mut [&mut end], |ends| !ends[0].packets.is_empty());
        end.tx.deregister(key);
        assert!(memory[16..] == [first, second].concat());
        return;
    }
    let mut end = End::new(true);
    let namespace = ["--pid", "--fork", "--kill-child"];
    let mut child = other_process(TEST, &end.tx.local_addr(), &namespace);
    poll_until(&mut [&mut end], |ends| ends[0].packets.len() == 2);
    let link = end
        .tx
        .connect(&RailAddr::new(RailKind::Shm, &end.packets[0]));
    assert!(link.up);
    let key = u64::from_le_bytes(end.packets[1][..].try_into().unwrap());
    write(&mut end, link.link, (key, 16), [&first, &second], 5);
    end.poll();
    assert_eq!(
        end.done(),
        [5],
        "it cannot read our memory: all was copied at once"
    );
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_container_with_a_network_of_its_own_is_another_host() {
    const TEST: &str = "a_container_with_a_network_of_its_own_is_another_host";
    let mut end = End::new(true);
    if let Ok(hex) = std::env::var(OTHER) {
        let ours = end.tx.local_addr();
        let host = ours.bytes()[..16].iter().map(|b| format!("{b:02x}"));
        assert_ne!(host.collect::<String>(), hex[..32]);
        return;
    }
    let mut child = other_process(TEST, &end.tx.local_addr(), &["--net"]);
    assert!(child.wait().unwrap().success());
    end.poll();
}
