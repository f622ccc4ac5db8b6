//! A rail with connections like TCP's: a link comes up some time after the request, is refused
//! while the other end does not listen, breaks with all packets in flight when the test wants, and
//! is made anew. The accepting end gets the link of the address that the other end named.

use super::rail::addr;
use marline_rails::{
    no_groups, no_remote_write, plain_buffers, Armed, Caps, Connected, DownReason, InterfaceChoice,
    LinkId, LinkTable, Links, PlainBuffers, RailEvent, RailRx, RailTx, Received, SendOutcome,
    BUFFER_LEN,
};
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Polls of its rails until a connection is up.
const HANDSHAKE: u32 = 20;

/// The cable between two rails.
#[derive(Default)]
pub struct Cable {
    /// Packets waiting for each rail.
    inbox: [VecDeque<Vec<u8>>; 2],
    /// Rails that accept connections.
    pub listens: [bool; 2],
    /// Number of the current connection, and polls until it is up.
    connection: Option<(u32, u32)>,
    connections: u32,
    /// Numbers of events so far, for the test.
    pub refused: u32,
    pub broken: u32,
    pub packets: u32,
}

impl Cable {
    /// Breaks the connection, if there is one, and loses the packets in flight.
    pub fn cut(&mut self) {
        self.broken += u32::from(self.connection.take().is_some());
        self.inbox = Default::default();
    }

    fn is_up(&self, connection: u32) -> bool {
        self.connection == Some((connection, 0))
    }
}

pub type Shared = Arc<Mutex<Cable>>;

/// Locks a cable.
pub fn lock(cable: &Shared) -> MutexGuard<'_, Cable> {
    cable.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rail's state of a link.
struct Link {
    connection: u32,
    told: bool,
}

/// Both halves of a rail.
pub struct Stream {
    me: usize,
    cable: Shared,
    links: LinkTable<RailAddr, Link>,
    refused: Vec<LinkId>,
    buffers: PlainBuffers,
}

impl Stream {
    pub fn new(me: usize, cable: &Shared) -> Stream {
        Stream {
            me,
            cable: cable.clone(),
            links: LinkTable::default(),
            refused: Vec::new(),
            buffers: PlainBuffers::new(BUFFER_LEN, 2),
        }
    }

    fn changed(&self) -> Option<(LinkId, RailEvent)> {
        let cable = lock(&self.cable);
        self.links.iter().find_map(|(id, _, link)| {
            let gone = cable
                .connection
                .is_none_or(|(number, _)| number != link.connection);
            match link.told {
                false if cable.is_up(link.connection) => Some((id, RailEvent::LinkUp(id))),
                _ if gone => Some((id, RailEvent::LinkDown(id, DownReason::Broken(0)))),
                _ => None,
            }
        })
    }

    /// The next unreported change of a link's connection.
    fn news(&mut self) -> Option<RailEvent> {
        let (link, event) = self.changed()?;
        match event {
            RailEvent::LinkUp(_) => self.links.get_mut(link)?.told = true,
            // Reported once: afterwards the link has no connection.
            _ => self.links.retire(link),
        }
        Some(event)
    }
}

plain_buffers!(Stream, buffers);
no_groups!(Stream);
no_remote_write!(Stream);

impl Links for Stream {
    fn connect(&mut self, to: &RailAddr) -> Connected {
        let mut cable = lock(&self.cable);
        let listens = cable.listens[1 - self.me];
        if listens && cable.connection.is_none() {
            cable.connections += 1;
            cable.connection = Some((cable.connections, HANDSHAKE));
        }
        let connection = cable.connection.map_or(0, |c| c.0);
        let up = listens && cable.is_up(connection);
        let link = self.links.connect(*to, || Link {
            connection,
            told: up,
        });
        if !listens {
            cable.refused += 1;
            self.refused.push(link);
        }
        Connected { link, up }
    }

    fn works(&mut self, _: LinkId) {}
    fn silent(&mut self, _: LinkId) {}
    fn reroute(&mut self, _: LinkId) -> bool {
        false
    }

    fn close(&mut self, link: LinkId) {
        self.links.close(link);
        self.refused.retain(|refused| *refused != link);
    }
}

impl RailTx for Stream {
    fn caps(&self) -> Caps {
        Caps {
            ordered: true,
            lossless: true,
            fixed_mtu: true,
            connected: true,
            receive_buffer_bytes: 1 << 20,
            ..Caps::datagrams(8_000)
        }
    }

    fn move_to(&mut self, _: &InterfaceChoice) -> Option<RailAddr> {
        None
    }

    fn local_addr(&self) -> RailAddr {
        addr(self.me)
    }

    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, _flow: u8) -> SendOutcome {
        let mut cable = lock(&self.cable);
        let up = self
            .links
            .get(link)
            .is_some_and(|l| cable.is_up(l.connection));
        assert!(up || cable.broken > 0, "nothing leaves before a link is up");
        if up {
            let packets = bytes.chunks(segment).map(<[u8]>::to_vec);
            cable.packets += packets.len() as u32;
            cable.inbox[1 - self.me].extend(packets);
        }
        SendOutcome::Sent
    }

    fn poll_event(&mut self) -> Option<RailEvent> {
        if let Some(link) = self.refused.pop() {
            self.links.retire(link);
            return Some(RailEvent::LinkDown(link, DownReason::Refused));
        }
        self.news()
    }
}

/// The receiving half.
pub struct StreamRx {
    me: usize,
    cable: Shared,
}

impl StreamRx {
    pub fn new(me: usize, cable: &Shared) -> StreamRx {
        StreamRx {
            me,
            cable: cable.clone(),
        }
    }
}

impl RailRx for StreamRx {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let mut cable = lock(&self.cable);
        if let Some((_, polls)) = &mut cable.connection {
            *polls = polls.saturating_sub(1);
        }
        let Some(bytes) = cable.inbox[self.me].pop_front() else {
            return 0;
        };
        drop(cable);
        sink(Received {
            link: None,
            from: addr(1 - self.me),
            bytes: &bytes,
            segment: bytes.len(),
            beside: 0,
            missing: 0,
        });
        1
    }

    fn recv_rest(&mut self, _sink: &mut dyn FnMut(Received<'_>)) -> usize {
        0
    }

    fn fd(&self) -> Option<i32> {
        None
    }

    fn arm(&mut self) -> Armed {
        Armed::Sleep
    }
}
