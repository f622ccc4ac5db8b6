//! Sending half: by the AF_XDP socket where possible, else by the UDP rail below.

use super::sender::Sender;
use crate::interfaces::InterfaceChoice;
use crate::plain_buffers::PlainBuffers;
use crate::sys::xdp::Limits;
use crate::tx_buf::BUFFER_LEN;
use crate::udp::{UdpTx, SEGMENTS_MAX, SUPER_PACKET_MAX};
use crate::{
    Caps, Connected, GroupError, GroupLink, Groups, LinkId, Links, RailEvent, RailTx, RemoteWrites,
    SendOutcome,
};
use marline_wire::RailAddr;

/// A buffer for building packets, a buffer that waits for room, and a spare.
const BUFFERS_MAX: usize = 3;

/// Sending half of a [`super::XdpRail`].
pub struct XdpTx {
    udp: UdpTx,
    /// Absent after the rail moved to another address, which the program at the interface does not
    /// know: the rail is a UDP rail from then on.
    sender: Option<Sender>,
    buffers: PlainBuffers,
    receive_bytes: usize,
}

impl XdpTx {
    pub(super) fn new(udp: UdpTx, sender: Sender, limits: &Limits) -> XdpTx {
        XdpTx {
            udp,
            sender: Some(sender),
            buffers: PlainBuffers::new(BUFFER_LEN, BUFFERS_MAX),
            receive_bytes: limits.receive as usize * limits.frame_len as usize,
        }
    }
}

impl Links for XdpTx {
    fn connect(&mut self, to: &RailAddr) -> Connected {
        self.udp.connect(to)
    }

    fn works(&mut self, link: LinkId) {
        self.udp.works(link);
    }

    fn silent(&mut self, link: LinkId) {
        if let Some(sender) = &mut self.sender {
            sender.doubt(link);
        }
        self.udp.silent(link);
    }

    fn reroute(&mut self, link: LinkId) -> bool {
        self.udp.reroute(link)
    }

    fn close(&mut self, link: LinkId) {
        // The number may be reused; a link with other users is looked up again.
        if let Some(sender) = &mut self.sender {
            sender.forget(link);
        }
        self.udp.close(link);
    }
}

crate::plain_buffers!(XdpTx, buffers);
crate::no_remote_write!(XdpTx);

impl Groups for XdpTx {
    fn join(&mut self, group: &RailAddr) -> Result<GroupLink, GroupError> {
        self.udp.join(group)
    }

    fn leave(&mut self, group: GroupLink) {
        self.udp.leave(group);
    }

    fn send_group(&mut self, group: GroupLink, bytes: &[u8], segment: usize) -> SendOutcome {
        self.udp.send_group(group, bytes, segment)
    }
}

impl RailTx for XdpTx {
    fn caps(&self) -> Caps {
        let udp = Caps {
            receive_buffer_bytes: self.receive_bytes.min(self.udp.caps.receive_buffer_bytes),
            remote_write: RemoteWrites::None,
            ..self.udp.caps
        };
        match self.sender {
            None => udp,
            Some(_) => Caps {
                batch_bytes_max: SUPER_PACKET_MAX,
                batch_segments_max: SEGMENTS_MAX,
                per_packet: true,
                ..udp
            },
        }
    }

    fn local_addr(&self) -> RailAddr {
        self.udp.local_addr()
    }

    #[cold]
    fn move_to(&mut self, interface: &InterfaceChoice) -> Option<RailAddr> {
        let moved = self.udp.move_to(interface)?;
        self.sender = None;
        Some(moved)
    }

    fn renamed(&mut self, interface: &str) {
        self.udp.renamed(interface);
    }

    #[inline]
    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        debug_assert!(segment > 0 && !bytes.is_empty());
        let XdpTx { udp, sender, .. } = self;
        // Longer packets than the interface takes are refused by the rail below. Another flow than
        // 0 asks for another route.
        let fits = flow == 0 && segment <= udp.caps.datagram_max;
        if let Some(sender) = sender.as_mut().filter(|_| fits) {
            let to = || udp.destination(link);
            if let Some(outcome) = sender.send(link, to, bytes, segment) {
                return outcome;
            }
        }
        udp.send(link, bytes, segment, flow)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        let drops = self.sender.as_mut().map_or(0, Sender::poll);
        if drops > 0 {
            return Some(RailEvent::ReceiverDrops(drops));
        }
        self.udp.poll_event()
    }
}
