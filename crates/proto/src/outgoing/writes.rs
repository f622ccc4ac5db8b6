//! Sending half of writes by rails: the keys of messages, and the next fragment to write.

use crate::base::blocks::Covered;
use crate::base::config::Config;
use crate::base::side_work::WriteOut;
use crate::base::slab::Key;
use crate::base::types::{sums_of, PeerId};
use crate::outgoing::sends::Outgoing;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::local::Local;
use crate::state::write_span::{span_max, SPAN_MIN};
use marline_wire::{blocks, RailWrites, Rkey, BLOCK_BYTES, FLAG_DEREGISTER, FLAG_READ_REPLY};

/// The next write on a path.
pub(crate) struct NextWrite {
    pub(crate) key: Key,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Most bytes of a write on the path.
    pub(crate) most: u64,
    pub(crate) remote_key: u64,
    pub(crate) summed: bool,
}

impl Outgoing {
    /// The next write on a path, if the path and the message allow one.
    pub(crate) fn next_write(
        &self,
        cfg: &Config,
        local: &Local,
        conn: &Conn,
        at: usize,
    ) -> Option<NextWrite> {
        let &key = conn.tx.bulk.front()?;
        let send = self.table.get(key)?;
        let path = &conn.paths[at];
        let rail = &local.rails[path.local as usize];
        let pending = path.validation.is_pending();
        if pending || !rail.addr.writes() || !path.to.writes() {
            return None;
        }
        let most = span_max(rail, path.datagram_max());
        let (offset, left) = (send.next, send.upto.saturating_sub(send.next));
        let placed = path.to.writes == RailWrites::Keyed;
        let chunk = match cfg.staged.filter(|_| placed) {
            Some(plan) => plan.next_len(send.head.total, offset).max(SPAN_MIN),
            None => most,
        };
        let len = left.min(chunk).min(most);
        let keys = &send.keys.as_ref()?.by_rail;
        let &(_, remote_key) = keys.iter().find(|k| k.0 == path.to.index)?;
        let algorithm = sums_of(conn.algorithm_on(cfg, at), send.head.flags);
        let summed = algorithm != 0;
        let fits = len >= SPAN_MIN && local.trusts_writes(cfg, path.local, algorithm);
        fits.then_some(NextWrite {
            key,
            offset,
            len,
            most,
            remote_key,
            summed,
        })
    }

    /// Returns whether the next transmission on a path is a write.
    pub(crate) fn writes_next(&self, cfg: &Config, local: &Local, conn: &Conn, at: usize) -> bool {
        conn.paths[at].link.may_write() && self.next_write(cfg, local, conn, at).is_some()
    }

    /// Returns whether the next transmission on a path is a write to a place named by a key. The
    /// bytes of such a message must not fill up packets.
    pub(crate) fn placed_next(&self, cfg: &Config, local: &Local, conn: &Conn, at: usize) -> bool {
        conn.paths[at].to.writes == RailWrites::Keyed && self.writes_next(cfg, local, conn, at)
    }

    /// Requeues a written fragment: the fragment and the rest of the message are sent in packets.
    pub(crate) fn requeue_written(&mut self, key: Key, offset: u64, len: u32) {
        let Some(send) = self.table.get_mut(key) else {
            return;
        };
        if send.acked.covered(offset / BLOCK_BYTES, blocks(len as u64)) != Covered::All {
            send.head.flags |= FLAG_DEREGISTER;
            if let Some(keys) = send.keys.as_mut() {
                keys.by_rail.clear();
            }
        }
    }

    /// Handles an rkey from the receiver of a local message.
    pub(crate) fn on_key(&mut self, ctx: &mut Context<'_>, peer: PeerId, rkey: &Rkey) {
        let Some(conn) = ctx.conn(peer) else { return };
        let table = match rkey.flags & FLAG_READ_REPLY {
            0 => &conn.tx.rendezvous,
            _ => &conn.tx.replies,
        };
        let send = table.get(&rkey.number).copied();
        let Some(send) = send.and_then(|key| self.table.get_mut(key)) else {
            return;
        };
        if send.head.flags & FLAG_DEREGISTER != 0 || !ctx.cfg.reliable {
            return;
        }
        let keys = &mut send.keys.get_or_insert_default().by_rail;
        if !keys.iter().any(|k| k.0 == rkey.rail) {
            keys.push((rkey.rail, rkey.key));
        }
    }

    /// Stores the write that goes with the packet under construction.
    pub(crate) fn set_write(&mut self, write: WriteOut) {
        self.write_out = Some(write);
    }

    /// The write that goes with the packet built last.
    pub(crate) fn take_write(&mut self) -> Option<WriteOut> {
        self.write_out.take()
    }
}
