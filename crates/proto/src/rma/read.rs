//! Remote reads (`fi_readmsg`): requests, replies, refusals.

use crate::base::slab::Key;
use crate::base::types::{DropReason, Event, PeerId};
use crate::node::Node;
use crate::rendezvous::grant::whole_blocks;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::{new_inbound, new_send, InboundState, SendKind};
use marline_wire::{Frame, MsgHead, Read, BLOCK_BYTES, FLAG_PART};

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
        let Some(mut conn) = self.take(peer) else {
            return false;
        };
        let alive = !conn.session.is_over();
        if alive && len == 0 {
            // Nothing to fetch, and no fragment could report that.
            self.events.push_back(Event::ReadDone { handle, ok: true });
        } else if alive {
            let number = conn.rx.next_read;
            conn.rx.next_read += 1;
            let bound = InboundState::Bound {
                handle,
                base: 0,
                capacity: len,
            };
            let mut inbound = new_inbound(peer, number as u64, len, bound);
            inbound.rendezvous = true;
            inbound.reply = true;
            inbound.wanted = len;
            // The READ carries key and address; they are stored in the head until it is sent.
            inbound.head = Some(MsgHead {
                number,
                flags,
                tag: key,
                data: addr,
                total: len,
            });
            let id = self.ops.inbounds.insert(inbound);
            conn.rx.pending_reads.insert(number, id);
            if conn.session.own {
                self.put(conn);
                self.ask_loopback(peer, number, (key, addr, len), flags);
                return true;
            }
            conn.tx.control.push_back(FrameRef::Read(id));
            self.run_queue.mark_ready(&mut conn);
            self.put(conn);
            if self.local.writes {
                self.want_keys(id);
            }
            return true;
        }
        self.put(conn);
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
            return self.serve_loopback(handle, conn, number);
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
        let key = self.ops.sends.insert(xfer);
        conn.tx.replies.insert(number, key);
        conn.tx.bulk.push_back(key);
        self.run_queue.mark_ready(&mut conn);
        self.put(conn);
    }

    /// Refuses a peer's READ.
    pub fn refuse_read(&mut self, peer: PeerId, number: u32) {
        if self.is_loopback(peer) {
            return self.on_read_fail(peer, number);
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
        if let Some(send) = self.ops.sends.remove(key) {
            let handle = send.handle;
            self.events.push_back(Event::SendDone { handle, ok: false });
        }
        self.wake(peer);
    }

    /// Handles the peer's refusal of a local read.
    pub(crate) fn on_read_fail(&mut self, peer: PeerId, number: u32) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let Some(key) = conn.rx.pending_reads.remove(&number) else {
            return;
        };
        let state = self.ops.inbounds.get(key).map(|i| i.state);
        self.drop_inbound(key);
        if let Some(InboundState::Bound { handle, .. }) = state {
            self.events.push_back(Event::ReadDone { handle, ok: false });
        }
        // The budget of its grants is available to other messages.
        self.pump_grants(self.descheduled.last_poll_ns);
    }

    /// The READ frame of a remote read; decides its first grant when called the first time.
    pub(crate) fn read_frame(&mut self, key: Key, now: u64) -> Option<Frame> {
        let window = self.grants.window_max();
        let inbound = self.ops.inbounds.get_mut(key)?;
        let head = inbound.head?;
        if inbound.granted == 0 {
            let first = inbound.wanted.min(window / BLOCK_BYTES * BLOCK_BYTES);
            inbound.granted = first;
            inbound.counted = first;
            inbound.announced = first;
            inbound.last_data_ns = now;
            self.grants.give_first(first);
        }
        let (number, upto) = (head.number, inbound.granted);
        Some(Frame::Read(Read {
            number,
            flags: head.flags,
            key: head.tag,
            addr: head.data,
            len: head.total,
            upto,
        }))
    }

    /// Handles a peer's READ; a repeated one causes no further event.
    pub(crate) fn on_read(&mut self, peer: PeerId, read: &Read) -> Result<(), DropReason> {
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
