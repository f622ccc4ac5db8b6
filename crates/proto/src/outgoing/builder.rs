//! A packet under construction: its head, the spans of its payloads, and the frames to retain.

use crate::base::config::Config;
use crate::base::types::Spans;
use crate::state::conn::Conn;
use crate::state::local::Local;
use crate::state::sent_packets::FrameRef;
use alloc::vec::Vec;
use marline_wire::{Frame, HeadWriter, Header, Hello, Versions, HELLO_RAIL_BYTES_MAX};

/// A packet under construction.
pub(crate) struct Builder<'a, 'b> {
    pub(crate) writer: HeadWriter<'a>,
    pub(crate) spans: &'b mut Spans,
    pub(crate) frames: Vec<FrameRef>,
    pub(crate) flags: u8,
    pub(crate) acks: u32,
    /// Bytes written past the packet.
    pub(crate) written: usize,
}

impl<'a, 'b> Builder<'a, 'b> {
    pub(crate) fn new(
        writer: HeadWriter<'a>,
        spans: &'b mut Spans,
        frames: Vec<FrameRef>,
    ) -> Builder<'a, 'b> {
        Builder {
            writer,
            spans,
            frames,
            flags: 0,
            acks: 0,
            written: 0,
        }
    }
}

impl Builder<'_, '_> {
    /// Adds HELLO to a packet, as to every packet until one is acknowledged.
    pub(crate) fn push_hello(
        &mut self,
        cfg: &Config,
        local: &Local,
        conn: &Conn,
        of_destination: Option<Versions>,
    ) {
        let mut rails = [0; HELLO_RAIL_BYTES_MAX];
        // If the packet has no room for all rails, the peer learns of fewer.
        let mut fields = [0; 8];
        let further = cfg.further_fields(&mut fields).bytes().len();
        let room = self.writer.room().saturating_sub(further);
        let room = Hello::rail_bytes_in(room).min(rails.len());
        let room = (&mut rails[..room], &mut fields);
        let mut hello = local.hello(cfg, conn, of_destination, room);
        // A rail update must have all rails: a peer takes each revision only once.
        if hello.revision > 0 && hello.rails.count() < local.named_addrs().len() {
            hello.revision = 0;
        }
        let kept = FrameRef::Hello(hello.revision);
        self.control(&Frame::Hello(hello), Some(kept));
        if cfg.pretends() && !conn.session.refused {
            self.pretend();
        }
        if conn.waiting() == 0 {
            self.flags |= Header::FLAG_ACK_NOW;
        }
    }

    pub(crate) fn control(&mut self, frame: &Frame<Hello<'_>>, sent: Option<FrameRef>) -> bool {
        let fits = self.writer.push(frame).is_some();
        if fits {
            self.frames.extend(sent);
        }
        fits
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// True if any ack fits: 16 bytes and masks for up to 1,024 packets.
    #[inline]
    pub(crate) fn fits_ack(&self) -> bool {
        self.writer.fits(144, 0)
    }
}

/// Adds a CREDIT frame, if one is due.
pub(crate) fn add_credit(conn: &mut Conn, b: &mut Builder<'_, '_>) {
    let bytes = conn.credit.granted();
    if conn.credit.is_due() && b.control(&Frame::Credit { bytes }, Some(FrameRef::Credit)) {
        conn.credit.announced();
        conn.stats.flow_acks += 1;
    }
}

impl Builder<'_, '_> {
    /// Returns whether the packet requests an ack. A packet with acks does not request one for its
    /// HELLO alone if another unacknowledged packet carries HELLO and will be retransmitted:
    /// otherwise acks of both sides would cause each other.
    pub(crate) fn wants_ack(&mut self, conn: &Conn) -> bool {
        let hello = matches!(self.frames[..], [FrameRef::Hello(_)]);
        if self.acks > 0 && hello && conn.asks() {
            self.frames.clear();
        }
        !self.frames.is_empty()
    }
}
