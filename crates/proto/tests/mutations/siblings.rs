//! A process whose host refuses what is sent to it, beside another process of that host: the host
//! refuses this one alone, or a firewall refuses both.

use crate::face;

use face::{done, node_of, output, rail_addr, specs, take, Flying};
use marline_proto::{Config, Delivery, Event, Evidence, LinkAsk, LinkEnd, Node, PeerId, SendSpec};
use marline_wire::Packet;

const MS: u64 = 1_000_000;
const RAILS: u8 = 2;
/// The processes of one host, by the fourth byte of their addresses, which is also in the numbers
/// of the links to them.
const KILLED: u8 = 1;
const SIBLING: u8 = 2;

/// The treatment of packets to a process by the network.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Passes,
    Refused,
    Lost,
}

/// A node that knows two processes of another host.
struct Trio {
    a: Node,
    /// Those with their places in the host.
    others: [(u8, Node); 2],
    peers: [PeerId; 2],
    now: u64,
    streams: bool,
}

fn node(host: u8, process: u8, streams: bool) -> Node {
    let config = Config {
        peer_timeout_ns: 120_000 * MS,
        ..Config::default()
    };
    let mut rails = specs(host, RAILS, 1_472);
    for rail in &mut rails {
        let index = rail.addr.index;
        let addr = rail_addr(index, host, index, 1_472);
        let bytes = [addr.bytes(), &[process]].concat();
        rail.addr = marline_wire::RailAddr::new(addr.kind, &bytes);
        (rail.addr.index, rail.addr.datagram_max) = (index, 1_472);
        if streams {
            (rail.connected, rail.delivery) = (true, Delivery::STREAM);
        }
    }
    match process {
        SIBLING => Node::new(config, (300, 9, 1), rails, &face::InOneNetwork),
        _ => node_of(config, host, rails),
    }
}

impl Trio {
    /// They have spoken to each other on all rails.
    fn new(streams: bool) -> Trio {
        let mut a = node(1, 0, streams);
        let others = [KILLED, SIBLING].map(|process| (process, node(2, process, streams)));
        let peers = [0, 1].map(|n: usize| a.peer(&others[n].1.address()));
        let mut trio = Trio {
            a,
            others,
            peers,
            now: MS,
            streams,
        };
        for n in [0, 1] {
            trio.send(n, n as u32);
        }
        let end = trio.now + 500 * MS;
        while trio.now < end {
            trio.step([Fate::Passes; 2], None);
        }
        trio
    }

    fn send(&mut self, to: usize, handle: u32) {
        self.a.post_send(&SendSpec {
            handle,
            peer: self.peers[to],
            tag: None,
            data: None,
            len: 100,
            urgent_ack: true,
        });
    }

    /// The connections of the node are made, or refused as their process is.
    fn link(&mut self, fates: [Fate; 2]) {
        let mut refused = Vec::new();
        while let Some(ask) = self.a.poll_link() {
            let LinkAsk::Open {
                peer,
                path,
                rail,
                to,
            } = ask
            else {
                continue;
            };
            let n = usize::from(to.bytes()[3] != KILLED);
            let link = u32::from(to.index) + 10 * n as u32;
            let up = !self.streams || fates[n] == Fate::Passes;
            self.a.on_linked(self.now, peer, path, link, up);
            if !up && fates[n] == Fate::Refused {
                refused.push((rail, link));
            }
        }
        for (rail, link) in refused {
            self.a
                .on_link_down(self.now, rail, link, LinkEnd::Refused, 0);
        }
    }

    /// The connections to these processes are reset.
    fn reset(&mut self, fates: [Fate; 2]) {
        for n in (0..2).filter(|&n| self.streams && fates[n] != Fate::Passes) {
            for rail in 0..u32::from(RAILS) {
                let link = rail + 10 * n as u32;
                self.a
                    .on_link_down(self.now, rail as usize, link, LinkEnd::Broken, 0);
            }
        }
    }

    /// A step of all three. Packets to the two processes meet these fates; what the `mute` one says
    /// arrives nowhere. Who died for which evidence.
    fn step(&mut self, fates: [Fate; 2], mute: Option<usize>) -> Vec<Option<Evidence>> {
        self.now += 20_000;
        self.a.on_poll(self.now, false);
        self.a.caught_up();
        self.a.handle_timeouts(self.now);
        self.link(fates);
        let sent = output(&mut self.a, self.now, false);
        for (n, fate) in fates.into_iter().enumerate() {
            let id = self.others[n].1.address().id;
            let to =
                |packet: &&Flying| Packet::parse(&packet.1, |_| 0).unwrap().header.dst_id == id;
            let there: Vec<Flying> = sent.iter().filter(to).cloned().collect();
            match fate {
                Fate::Passes => take(&mut self.others[n].1, self.now, &there),
                Fate::Refused if !self.streams => there.iter().for_each(|packet| {
                    let link = packet.0 as u32 + 10 * n as u32;
                    self.a.on_refused(self.now, packet.0, link);
                }),
                _ => {}
            }
            let other = &mut self.others[n].1;
            other.on_poll(self.now, false);
            other.caught_up();
            other.handle_timeouts(self.now);
            let back = output(other, self.now, false);
            if mute != Some(n) {
                take(&mut self.a, self.now, &back);
            }
        }
        self.deaths()
    }

    fn deaths(&mut self) -> Vec<Option<Evidence>> {
        let events = std::iter::from_fn(|| self.a.poll_event());
        let dead = |e| match e {
            Event::PeerDead { refused, .. } => Some(refused),
            _ => None,
        };
        events.filter_map(dead).collect()
    }

    /// For so long; ends with the first death.
    fn during(&mut self, ms: u64, fates: [Fate; 2], mute: Option<usize>) -> Vec<Option<Evidence>> {
        let (end, mut dead) = (self.now + ms * MS, Vec::new());
        while self.now < end && dead.is_empty() {
            dead = self.step(fates, mute);
        }
        dead
    }
}

/// The process is gone, and its host says so; another process of the host is well.
#[test]
fn a_process_that_is_refused_alone_is_gone_soon() {
    for streams in [false, true] {
        let mut trio = Trio::new(streams);
        trio.send(0, 7);
        let (before, fates) = (trio.now, [Fate::Refused, Fate::Passes]);
        trio.reset(fates);
        let dead = trio.during(3_000, fates, Some(0));
        assert_eq!(dead, [Some(Evidence::OneProcess)], "streams: {streams}");
        let took = (trio.now - before) / MS;
        assert!(
            (400..1_200).contains(&took),
            "{took} ms, streams: {streams}"
        );
    }
}

/// A firewall refuses what comes to the host for three seconds, and no packet of the process that
/// is spoken to leaves it, as it computes. What the other one says goes on to arrive, for firewalls
/// refuse what comes in alone.
#[test]
fn a_firewall_that_refuses_all_processes_of_a_host_ends_none() {
    for streams in [false, true] {
        let mut trio = Trio::new(streams);
        trio.send(0, 7);
        trio.reset([Fate::Refused; 2]);
        let all = [Fate::Refused; 2];
        assert_eq!(trio.during(3_000, all, Some(0)), [], "streams: {streams}");
        // The last refusal may be read after a packet that passed.
        let passes = trio.during(1, [Fate::Refused, Fate::Passes], Some(0));
        assert_eq!(passes, [], "streams: {streams}");
        assert_eq!(trio.during(1_000, [Fate::Passes; 2], None), []);
    }
}

/// Nor does one that is switched on and off while it is reloaded.
#[test]
fn a_firewall_that_comes_and_goes_ends_none() {
    let mut trio = Trio::new(false);
    trio.send(0, 7);
    for _ in 0..10 {
        assert_eq!(trio.during(250, [Fate::Refused; 2], None), []);
        // (The packets to the one are lost for another reason.)
        assert_eq!(trio.during(20, [Fate::Lost, Fate::Passes], None), []);
    }
}

/// A sibling that is silent itself proves nothing.
#[test]
fn a_process_beside_one_that_is_silent_is_gone_as_one_alone() {
    let mut trio = Trio::new(false);
    trio.send(0, 7);
    let (before, fates) = (trio.now, [Fate::Refused, Fate::Lost]);
    let dead = trio.during(9_000, fates, None);
    assert_eq!(dead, [Some(Evidence::Packets)]);
    assert!(trio.now - before >= 4_000 * MS);
    assert!(!done(&mut trio.a, 7));
}
