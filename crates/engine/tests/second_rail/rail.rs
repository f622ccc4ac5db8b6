//! The second rail: a pair of queues within the process that deliver everything in order.

use marline_rails::{
    addr_links, no_groups, no_remote_write, plain_buffers, AddrLinks, Armed, Caps, InterfaceChoice,
    LinkId, PlainBuffers, RailEvent, RailRx, RailTx, Received, SendOutcome, BUFFER_LEN,
};
use marline_wire::{RailAddr, RailKind};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Packets waiting for each of two rails.
pub type Wire = Arc<Mutex<[VecDeque<Vec<u8>>; 2]>>;

/// Address of one of the two rails.
pub fn addr(me: usize) -> RailAddr {
    RailAddr::new(RailKind::Loopback, &[me as u8])
}

/// Both halves of a rail.
pub struct Loop {
    me: usize,
    wire: Wire,
    links: AddrLinks,
    buffers: PlainBuffers,
}

impl Loop {
    pub fn new(me: usize, wire: &Wire) -> Loop {
        Loop {
            me,
            wire: wire.clone(),
            links: AddrLinks::default(),
            buffers: PlainBuffers::new(BUFFER_LEN, 2),
        }
    }
}

addr_links!(Loop, links);
plain_buffers!(Loop, buffers);
no_groups!(Loop);
no_remote_write!(Loop);

impl RailTx for Loop {
    fn caps(&self) -> Caps {
        Caps {
            ordered: true,
            lossless: true,
            fixed_mtu: true,
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
        if self.links.get(link).is_some() {
            let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
            wire[1 - self.me].extend(bytes.chunks(segment).map(<[u8]>::to_vec));
        }
        SendOutcome::Sent
    }

    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
}

impl RailRx for Loop {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes) = wire[self.me].pop_front() else {
            return 0;
        };
        drop(wire);
        sink(Received {
            link: None,
            from: RailAddr::NONE,
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
