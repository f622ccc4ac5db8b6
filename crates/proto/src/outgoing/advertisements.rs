//! Sending half of rendezvous by remote read: advertisements of a message's memory (see
//! [`crate::rma::pull`] for the whole).

use crate::base::config::Config;
use crate::base::side_work::AdvertisementOut;
use crate::base::slab::Key;
use crate::base::types::PeerId;
use crate::outgoing::builder::Builder;
use crate::outgoing::sends::Outgoing;
use crate::state::advertisement::{is_in, Segments};
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::local::Local;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{Has, SendKind};
use marline_wire::{
    blocks, Advertisement, Frame, Have, Header, Hello, ADVERTISEMENT_LEN, BLOCK_BYTES, FLAG_PUT,
    FLAG_UNSUMMED, RTS_LEN,
};

/// Longest message to advertise, in bytes. Its segments have 4 MiB, and each sum is computed with
/// the engine locked.
const ADVERTISED_MAX: u64 = 1 << 30;
/// Most advertisements in one packet: the packet cannot leave before the sum of each is computed.
const ADVERTISEMENTS_MAX: usize = 4;

impl Outgoing {
    /// Adds the advertisement of a message before its request in the same packet, if that is
    /// suitable and both frames fit.
    pub(crate) fn push_advertisement(
        &mut self,
        cfg: &Config,
        local: &Local,
        conn: &Conn,
        at: usize,
        key: Key,
        b: &mut Builder<'_, '_>,
    ) {
        let none = cfg.read_rails == 0 || !cfg.reliable;
        if none || self.advertisements.len() == ADVERTISEMENTS_MAX {
            return;
        }
        let Some(send) = self.table.get(key) else {
            return;
        };
        let head = send.head;
        let long = cfg.write_min <= head.total && head.total <= ADVERTISED_MAX;
        let plain = head.flags & FLAG_PUT == 0 && send.kind == SendKind::Queued;
        let own = core::iter::once(&conn.paths[at]);
        let path = own
            .chain(&conn.paths)
            .find(|path| local.reads_on(cfg, path));
        let Some(path) = path.filter(|_| long && plain && conn.session.needs_no_hello()) else {
            return;
        };
        let rail = path.local;
        if !b.writer.fits(ADVERTISEMENT_LEN + RTS_LEN, 0)
            || !self.push_segment(cfg.segment_min, (key, rail), 0, b)
        {
            return;
        }
        if let Some(send) = self.table.get_mut(key) {
            send.advertised = Some((rail, 1));
        }
        if Segments::of(head.total, cfg.segment_min).count() > 1 {
            b.flags |= Header::FLAG_ACK_NOW; // the other sums wait for this ack
        }
    }

    /// Adds the advertisement of a segment; `false`: no room.
    fn push_segment(
        &mut self,
        segment_min: u64,
        (key, rail): (Key, u8),
        segment: u8,
        b: &mut Builder<'_, '_>,
    ) -> bool {
        let Some(send) = self.table.get(key) else {
            return true;
        };
        let number = send.head.number;
        let frame: Frame<Hello<'_>> = Frame::Advertisement(Advertisement {
            number,
            segment,
            rail,
            key: 0,
            sum: 0,
        });
        let Some(slot) = b.writer.push(&frame) else {
            return false;
        };
        let total = send.head.total;
        let (at, len) = Segments::of(total, segment_min).range(segment as usize);
        self.advertisements.push(AdvertisementOut {
            handle: send.handle,
            rail,
            total,
            at,
            len,
            sum_at: slot.sum_at as usize,
            summed: send.head.flags & FLAG_UNSUMMED == 0,
            message: (self.src_id, number),
        });
        true
    }

    /// Handles the ack of a request: its message no longer waits for the network, and the
    /// advertisements of the segments after the first are queued.
    pub(crate) fn request_heard(&mut self, ctx: &mut Context<'_>, peer: PeerId, key: Key) {
        let least = ctx.cfg.segment_min;
        let Some(send) = self.table.get_mut(key).filter(|send| !send.granted) else {
            return;
        };
        send.wait.pause(self.now_ns, true);
        let Some((rail, 1)) = send.advertised else {
            return;
        };
        let more = Segments::of(send.head.total, least).count() > 1;
        if !more || send.head.flags & FLAG_UNSUMMED != 0 {
            return;
        }
        send.advertised = Some((rail, 2));
        if let Some(conn) = ctx.directory.conn_mut(peer) {
            let frame = FrameRef::Advertisement {
                xfer: key,
                segment: 1,
            };
            conn.tx.control.push_back(frame);
            ctx.run_queue.mark_ready(conn);
        }
    }

    /// Adds the advertisement of a later segment, and queues the one after it; `false`: no room.
    pub(crate) fn add_segment(
        &mut self,
        cfg: &Config,
        conn: &mut Conn,
        (xfer, segment): (Key, u8),
        b: &mut Builder<'_, '_>,
    ) -> bool {
        let send = self.table.get(xfer).filter(|send| !send.granted);
        let Some((send, (rail, advertised))) =
            send.and_then(|s| s.advertised.map(|advertised| (s, advertised)))
        else {
            return true; // ended or granted
        };
        let count = Segments::of(send.head.total, cfg.segment_min).count();
        let no_room = !self.advertisements.is_empty();
        if no_room || !self.push_segment(cfg.segment_min, (xfer, rail), segment, b) {
            return false;
        }
        b.frames.push(FrameRef::Advertisement { xfer, segment });
        if (advertised as usize) < count && advertised == segment as u16 + 1 {
            let frame = FrameRef::Advertisement {
                xfer,
                segment: segment + 1,
            };
            conn.tx.control.push_back(frame);
            if let Some(send) = self.table.get_mut(xfer) {
                send.advertised = Some((rail, advertised + 1));
            }
        }
        true
    }

    /// Marks the segments that the receiver of a message has read, so that they are not sent.
    pub(crate) fn on_have(&mut self, ctx: &mut Context<'_>, peer: PeerId, have: &Have) {
        let least = ctx.cfg.segment_min;
        let Some(conn) = ctx.conn(peer) else { return };
        let key = conn.tx.rendezvous.get(&have.number).copied();
        let Some(send) = key.and_then(|key| self.table.get_mut(key)) else {
            return;
        };
        if send.granted || send.advertised.is_none() {
            return;
        }
        let segments = Segments::of(send.head.total, least);
        for n in (0..segments.count()).filter(|&n| is_in(&have.segments, n)) {
            let (at, len) = segments.range(n);
            send.acked.insert(at / BLOCK_BYTES, blocks(len));
        }
        send.keys.get_or_insert_default().has = Some(Has {
            segments,
            here: have.segments,
            upto: 0,
        });
    }

    /// An advertisement in the packet built last.
    #[inline]
    pub(crate) fn take_advertisement(&mut self) -> Option<AdvertisementOut> {
        self.advertisements.pop()
    }
}
