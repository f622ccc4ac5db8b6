//! Sending half.

use super::connections::{Sent, TcpLinks};
use super::handshake::TcpAddr;
use super::shared::Shared;
use crate::addr::UdpAddr;
use crate::interfaces::{InterfaceChoice, SilentPeers};
use crate::{
    Caps, Connected, LinkId, Links, PlainBuffers, RailEvent, RailTx, RemoteWrite, RemoteWrites,
    SendOutcome, Write, BUFFER_LEN,
};
use marline_wire::RailAddr;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Largest packet: that of other rails, and with its head it fits a frame of 64 KiB.
pub(super) const PACKET_LEN_MAX: usize = 64_000;
/// A buffer for building packets; the others hold packets while there is no room.
const BUFFERS_MAX: usize = 4;
/// Bytes in flight to one rail, as limited by the kernel's windows, which grow to 6 MiB by default.
const RECEIVE_BUFFER_BYTES: usize = 6 << 20;

/// Sending half of a [`super::TcpRail`].
pub struct TcpTx {
    shared: Arc<Shared>,
    links: TcpLinks,
    buffers: PlainBuffers,
    local: RailAddr,
    bytes_per_s: u64,
    standby: bool,
    /// Registrations so far, and the hash that makes keys of them which cannot be guessed.
    registered: u64,
    random: RandomState,
    interface: String,
    silent: SilentPeers,
}

impl TcpTx {
    pub(super) fn new(
        shared: Arc<Shared>,
        (local, interface): (RailAddr, &InterfaceChoice),
        standby: bool,
    ) -> TcpTx {
        TcpTx {
            links: TcpLinks::new(shared.clone()),
            shared,
            buffers: PlainBuffers::new(BUFFER_LEN, BUFFERS_MAX),
            local,
            bytes_per_s: interface.bytes_per_s,
            standby,
            registered: 0,
            random: RandomState::new(),
            interface: interface.name.clone(),
            silent: SilentPeers::none(),
        }
    }
}

impl RailTx for TcpTx {
    fn caps(&self) -> Caps {
        Caps {
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            bytes_per_s: self.bytes_per_s,
            ordered: true,
            lossless: true,
            fixed_mtu: true,
            connected: true,
            remote_write: RemoteWrites::Ordered,
            knows_landed: true,
            copies_writes: true,
            standby: self.standby,
            ..Caps::datagrams(PACKET_LEN_MAX)
        }
    }

    fn move_to(&mut self, to: &InterfaceChoice) -> Option<RailAddr> {
        let local = self.shared.listen_at(to.ip, to.scope_id).ok()?;
        self.links.part_from_all();
        self.local = local.rail(to.prefix_len);
        self.interface.clone_from(&to.name);
        Some(self.local)
    }

    fn renamed(&mut self, interface: &str) {
        interface.clone_into(&mut self.interface);
    }

    fn local_addr(&self) -> RailAddr {
        self.local
    }

    #[inline]
    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, _flow: u8) -> SendOutcome {
        outcome(self.links.send(link, bytes, segment))
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        self.links.service();
        self.links.event()
    }
}

fn outcome(sent: Sent) -> SendOutcome {
    match sent {
        Sent::Taken => SendOutcome::Sent,
        Sent::NoRoom => SendOutcome::Busy,
    }
}

impl Links for TcpTx {
    fn connect(&mut self, to: &RailAddr) -> Connected {
        let Some(UdpAddr { ip, port, .. }) = UdpAddr::read(to) else {
            let link = LinkId::NONE; // of another kind: it loses everything
            return Connected { link, up: true };
        };
        self.links.connect(TcpAddr { ip, port })
    }

    // TCP acks confirm the neighbour entries.
    fn works(&mut self, _: LinkId) {}

    fn silent(&mut self, _: LinkId) {
        self.silent.note(self.shared.local().ip, &self.interface);
    }

    fn reroute(&mut self, link: LinkId) -> bool {
        self.links.reroute(link)
    }

    fn close(&mut self, link: LinkId) {
        self.links.close(link);
    }
}

// A frame that was begun must be completed: application memory still to be sent is copied.
crate::plain_buffers!(TcpTx, buffers, |tx| tx.links.drain());

impl RemoteWrite for TcpTx {
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
        outcome(self.links.write(link, write, packet))
    }
}

crate::no_direct_write!(TcpTx);
crate::no_remote_read!(TcpTx);
crate::no_groups!(TcpTx);
