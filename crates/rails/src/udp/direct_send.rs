//! Direct writes, sending half: memory as one super-packet after a head that states its place.

use super::shared::{is_busy, is_drop, SUPER_PACKET_MAX};
use super::tx::UdpTx;
use crate::sys::Errno;
use crate::{DirectWrite, LinkId, RemoteWrite, SendOutcome, Write};
use marline_wire::DIRECT_HEAD_LEN;
use std::hash::BuildHasher;
use std::sync::atomic::Ordering::Relaxed;

/// Room for the head and packet before the bytes. `marline_proto` sends longer packets separately.
const LEAD_MAX: usize = 512;

/// Weight of a damaged direct write against an undamaged one. Direct writes are suspended when
/// damaged ones outweigh the others by four: occasional damage costs less than the writes save, but
/// on a network that reorders datagrams most writes are damaged.
const DOUBT: u32 = 8;
const DOUBTS_MAX: u32 = 4 * DOUBT;

impl RemoteWrite for UdpTx {
    fn register(&mut self, base: *mut u8, len: usize) -> Option<u64> {
        if !self.shared.whole.load(Relaxed) {
            return None;
        }
        self.registered += 1;
        let key = self.random.hash_one(self.registered);
        self.shared.registrations.add(key, base, len);
        Some(key)
    }

    fn deregister(&mut self, key: u64) {
        self.shared.registrations.remove(key);
    }

    fn write(&mut self, _link: LinkId, _write: &Write<'_>, _packet: &[u8]) -> SendOutcome {
        SendOutcome::Sent // lost: this rail writes by datagrams alone
    }
}

crate::no_remote_read!(UdpTx);

impl DirectWrite for UdpTx {
    fn write_direct(
        &mut self,
        link: LinkId,
        write: &Write<'_>,
        packet: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        self.send_direct(link, write, packet, segment, flow)
    }

    fn seal(&mut self, key: u64, offset: u64, len: u64) {
        self.doubts = self.doubts.saturating_sub(1);
        self.shared.registrations.seal(key, offset..offset + len);
    }

    fn damaged(&mut self) {
        self.doubt();
    }

    fn landed(&self, key: u64, offset: u64, len: u64) -> bool {
        self.shared
            .registrations
            .landed(key, &(offset..offset + len))
    }
}

impl UdpTx {
    /// Handles a damaged write (see [`DirectWrite::damaged`]).
    #[cold]
    fn doubt(&mut self) {
        self.doubts += DOUBT;
        if self.doubts > DOUBTS_MAX {
            self.doubts = 0;
            self.shared.doubted.store(true, Relaxed);
            self.shared.whole.store(false, Relaxed);
        }
    }

    /// Sends a write (see [`DirectWrite::write_direct`]).
    fn send_direct(
        &mut self,
        link: LinkId,
        write: &Write<'_>,
        packet: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        let mut head = write.head(packet);
        head.spare = u8::from(head.total() % segment.max(1) == 0);
        let fits = head.total() <= self.caps.batch_bytes_max.min(SUPER_PACKET_MAX)
            && head.total().div_ceil(segment.max(1)) <= self.caps.batch_segments_max;
        if !fits {
            return SendOutcome::Sent; // the kernel was found to accept less meanwhile: lost
        }
        let mut lead = [0; LEAD_MAX];
        let Some(lead) = lead.get_mut(..head.lead()) else {
            return SendOutcome::Sent; // no sender makes such packets: lost
        };
        lead[..DIRECT_HEAD_LEN].copy_from_slice(&self.shared.write_head(&head));
        lead[DIRECT_HEAD_LEN..][..packet.len()].copy_from_slice(packet);
        let flow = self.choose(link, flow);
        match self.direct_by(link, lead, write, segment as u16, flow) {
            Ok(()) => SendOutcome::Sent,
            Err(errno) if is_busy(errno) => SendOutcome::Busy,
            Err(libc::EMSGSIZE) => self.failure(link, segment, libc::EMSGSIZE),
            // Any other error also affects packets, and all bytes are sent again in packets.
            Err(errno) => {
                if errno == libc::EIO {
                    self.disable_gso();
                }
                SendOutcome::Sent
            }
        }
    }

    /// Sends on the destination's connected socket, or the flow's.
    fn direct_by(
        &mut self,
        link: LinkId,
        lead: &[u8],
        write: &Write<'_>,
        segment: u16,
        flow: u8,
    ) -> Result<(), Errno> {
        let mut last = Ok(());
        // Try twice: the first error may belong to an earlier packet.
        for _ in 0..2 {
            let at = self.links.socket_of(link, flow);
            let connected = at.and_then(|at| self.links.socket(at));
            let lost;
            (last, lost) = match connected {
                Some(socket) => {
                    let sent = socket.send_pieces(None, lead, write.pieces, segment);
                    (sent, sent.is_err_and(|errno| socket.lost(errno)))
                }
                None => {
                    let name = self.links.get(link).and_then(|link| link.name);
                    let name = name.ok_or(libc::EDESTADDRREQ)?;
                    let socket = self.socket(flow);
                    let sent = socket.send_pieces(Some(&name), lead, write.pieces, segment);
                    (sent, sent.is_err_and(|errno| socket.lost(errno)))
                }
            };
            match (last, at) {
                _ if lost => return Ok(()),
                (Err(errno), _) if is_drop(errno) => return Ok(()),
                (Err(libc::ECONNREFUSED), Some(at)) => self.drain_link(at),
                (Err(libc::ECONNREFUSED), None) => self.drain(flow),
                (Err(libc::EINTR), _) => {}
                _ => break,
            }
        }
        last
    }
}
