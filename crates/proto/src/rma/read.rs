//! Remote reads (`fi_readmsg`): requests, replies, refusals.

use crate::base::blocks::Covered;
use crate::base::types::{DropReason, Event, PeerId};
use crate::node::Node;
use crate::outgoing::sends::whole_blocks;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{new_send, SendKind};
use marline_wire::{MsgHead, Read, FLAG_PART};

/// Replies up to this length are acknowledged with the next packet, like short messages, and not at
/// once: sending a separate ack would delay the reader's use of the data.
const SHORT: u64 = 4_096;
/// Largest lead of a READ's number over the number of READs served for that peer.
const READS_AHEAD_MAX: u64 = 1 << 16;

impl Node {
    /// Posts a remote read of `len` bytes into `handle`; `flags`: see [`Read`]. `false`: the peer
    /// is gone.
    pub fn post_read(
        &mut self,
        handle: u32,
        peer: PeerId,
        (key, addr, len): (u64, u64, u64),
        flags: u8,
    ) -> bool {
        self.ensure_conn(peer);
        let alive = self.conn(peer).is_some_and(|c| !c.session.is_over());
        if alive && len == 0 {
            // There is nothing to fetch, and no fragment that could report the end.
            self.events.push_back(Event::ReadDone { handle, ok: true });
        } else if alive {
            let (incoming, mut ctx) = self.incoming();
            incoming.post_read(&mut ctx, (handle, peer), (key, addr, len), flags);
        }
        alive
    }

    /// Serves a peer's READ from `handle`'s memory.
    pub fn serve_read(&mut self, handle: u32, peer: PeerId, number: u32, len: u64, upto: u64) {
        if len == 0 {
            return self.events.push_back(Event::SendDone { handle, ok: true });
        }
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        if conn.session.own {
            self.put(conn);
            let (incoming, mut ctx) = self.incoming();
            return incoming.serve_loopback(&mut ctx, handle, peer, number);
        }
        if conn.session.is_over() {
            // The peer has gone before the reply.
            self.put(conn);
            return self.events.push_back(Event::SendDone { handle, ok: false });
        }
        let head = MsgHead {
            number,
            flags: self.cfg.sum_flag(len),
            tag: 0,
            data: 0,
            total: len,
        };
        let mut xfer = new_send(handle, peer, head, SendKind::Reply);
        xfer.upto = whole_blocks(upto, len);
        xfer.granted = true;
        xfer.urgent = len > SHORT;
        xfer.in_bulk = true;
        conn.stats.bytes_sent += len;
        let key = self.outgoing.insert(xfer);
        conn.tx.replies.insert(number, key);
        conn.tx.bulk.push_back(key);
        self.run_queue.mark_ready(&mut conn);
        self.put(conn);
    }

    /// Refuses a peer's READ.
    pub fn refuse_read(&mut self, peer: PeerId, number: u32) {
        if self.is_loopback(peer) {
            let (incoming, mut ctx) = self.incoming();
            return incoming.on_read_fail(&mut ctx, peer, number);
        }
        let Some(mut conn) = self.take(peer) else {
            return;
        };
        conn.tx.control.push_back(FrameRef::ReadFail(number));
        self.run_queue.mark_ready(&mut conn);
        self.put(conn);
    }

    /// Aborts the reply to a peer's READ because its memory is needed.
    pub fn stop_read(&mut self, peer: PeerId, number: u32) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let Some(key) = conn.tx.replies.remove(&number) else {
            return;
        };
        conn.tx.control.push_back(FrameRef::ReadFail(number));
        if let Some(send) = self.outgoing.remove(key) {
            let handle = send.handle;
            self.events.push_back(Event::SendDone { handle, ok: false });
        }
        self.context().wake(peer);
    }

    /// Handles a peer's READ; a repeated one causes no further event.
    pub(crate) fn on_read(&mut self, peer: PeerId, read: &Read) -> Result<(), DropReason> {
        let serves = self.directory.serves_read(peer, self.cfg.key_mark != 0);
        let conn = self.conn_mut(peer).ok_or(DropReason::Gone)?;
        let &Read {
            number,
            flags,
            key,
            addr,
            len,
            upto,
        } = read;
        if number as u64 > conn.rx.served_reads.count() + READS_AHEAD_MAX {
            return Err(DropReason::Invalid);
        }
        let new = conn.rx.served_reads.covered(number.into(), 1) != Covered::All;
        if new && !serves {
            return Err(DropReason::NoMemory);
        }
        if conn.rx.served_reads.insert(number as u64, 1) == 1 {
            self.events.push_back(Event::ReadAsked {
                peer,
                number,
                key,
                addr,
                len,
                upto,
                part: flags & FLAG_PART != 0,
            });
        }
        Ok(())
    }
}
