//! Sending half: the traits of rails over [`ShmLinks`].

use super::addr::ShmAddr;
use super::segments::{Put, ShmLinks};
use super::shared::{caps, Shared, BATCH_MAX};
use crate::interfaces::InterfaceChoice;
use crate::plain_buffers::{BufState, PlainBuffers};
use crate::{
    BufId, Caps, Connected, LinkId, Links, RailEvent, RailTx, RemoteWrite, SendOutcome, Write,
};
use marline_wire::{RailAddr, RailWrites};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Number of packet buffers: each is free again when the send returns.
const BUFFERS_MAX: usize = 4;

/// Sending half of a [`super::ShmRail`].
pub struct ShmTx {
    shared: Arc<Shared>,
    links: ShmLinks,
    buffers: PlainBuffers,
    /// Number of keys issued so far, plus a random part that differs between lives of the process.
    registered: u64,
    random: RandomState,
}

impl ShmTx {
    pub(super) fn new(shared: Arc<Shared>) -> ShmTx {
        ShmTx {
            links: ShmLinks::new(shared.clone()),
            shared,
            buffers: PlainBuffers::new(BATCH_MAX, BUFFERS_MAX),
            registered: 0,
            random: RandomState::new(),
        }
    }
}

impl Drop for ShmTx {
    fn drop(&mut self) {
        self.links.end_all();
    }
}

impl Links for ShmTx {
    fn connect(&mut self, to: &RailAddr) -> Connected {
        match ShmAddr::of(to) {
            Some(to) => {
                let (link, up) = self.links.connect(to);
                Connected { link, up }
            }
            None => Connected {
                link: LinkId::NONE,
                up: true,
            },
        }
    }

    fn works(&mut self, _: LinkId) {}
    fn silent(&mut self, _: LinkId) {}
    fn reroute(&mut self, _: LinkId) -> bool {
        false
    }

    fn close(&mut self, link: LinkId) {
        self.links.close(link);
    }
}

impl crate::TxBuffers for ShmTx {
    #[inline]
    fn lend(&mut self) -> Option<BufId> {
        self.buffers.lend()
    }

    #[inline]
    fn buffer(&mut self, id: BufId) -> &mut [u8] {
        self.buffers.buffer(id)
    }

    #[inline]
    fn give_back(&mut self, id: BufId) {
        self.buffers.free(id);
    }

    fn send_buffer(
        &mut self,
        link: LinkId,
        buffer: BufId,
        len: usize,
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        let memory = self.buffers.take(buffer);
        let outcome = self.send(link, &memory[..len], segment, flow);
        let state = match outcome {
            SendOutcome::Busy => BufState::Lent,
            _ => BufState::Free,
        };
        self.buffers.put(buffer, memory, state);
        outcome
    }

    fn drain(&mut self) {
        self.links.drain();
    }

    fn given(&self) -> u64 {
        0
    }

    fn take_done(&mut self) -> u64 {
        u64::MAX
    }
}

impl RemoteWrite for ShmTx {
    fn register(&mut self, base: *mut u8, len: usize) -> Option<u64> {
        self.registered += 1;
        let key = self.random.hash_one(self.registered);
        self.shared.memory.add(key, base, len);
        Some(key)
    }

    fn deregister(&mut self, key: u64) {
        self.shared.memory.remove(key);
    }

    fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> SendOutcome {
        let (put, pulled) = self.links.write(link, write, packet);
        if put == Put::NoRoom {
            return SendOutcome::Busy;
        }
        if !pulled {
            self.links.done(write.token); // its bytes were copied or are lost
        }
        SendOutcome::Sent
    }
}

crate::no_direct_write!(ShmTx);
crate::no_remote_read!(ShmTx);
crate::no_groups!(ShmTx);

impl RailTx for ShmTx {
    fn caps(&self) -> Caps {
        caps()
    }

    fn move_to(&mut self, _: &InterfaceChoice) -> Option<RailAddr> {
        None
    }

    fn local_addr(&self) -> RailAddr {
        let mut addr = self.shared.local.rail();
        addr.datagram_max = BATCH_MAX as u16;
        addr.writes = RailWrites::Keyed;
        addr
    }

    #[inline]
    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, _flow: u8) -> SendOutcome {
        match self.links.send(link, bytes, segment) {
            Put::Done | Put::Later | Put::Lost => SendOutcome::Sent,
            Put::NoRoom => SendOutcome::Busy,
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        self.links.event()
    }
}
