//! Bulk: the message whose fragments leave next, and the path that they take.

use crate::base::config::{Config, RailPolicy};
use crate::base::slab::Key;
use crate::base::types::PathState;
use crate::outgoing::builder::Builder;
use crate::outgoing::sends::Outgoing;
use crate::state::congestion::{product_over, NS_PER_S};
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::credit::Credit;
use crate::state::local::Local;
use crate::state::path::Path;
use crate::state::transfer::SendKind;
use marline_wire::{Frame, BLOCK_BYTES, EAGER_LEN, PACKET_MAX};

/// If the best path has no room, bulk uses another path that finishes no later than twice the best
/// path's time plus this. Otherwise bulk waits for the best path, unless all queued data takes as
/// long anyway.
const STALE_NS: u64 = 200_000;
/// Maximum number of queued messages whose bytes count as queued data: enough to keep paths of
/// unequal rates busy.
const LOOK_AHEAD: usize = 8;

/// If a message has at most this many bytes left, acks wait to go with its end: the longest eager
/// message, two super-packets, leaves within tens of microseconds.
const PIGGYBACK_MAX: u64 = 2 * PACKET_MAX as u64;

/// The longest message, in bytes, that leaves packet by packet where another rail of the port has
/// its batches cut: beyond, that rail's messages arrive first.
const SHORT_MAX: u64 = 16 << 10;

impl Outgoing {
    /// The path on which the next batch of bulk arrives first; `None`: wait for that path's
    /// congestion window.
    pub(crate) fn bulk_path(&self, cfg: &Config, local: &Local, conn: &Conn) -> Option<usize> {
        let unproven = !conn.paths.iter().any(|p| p.usable());
        if unproven || cfg.policy == RailPolicy::Standby {
            let at = conn.small_path(None, true, local.full)?;
            return conn.paths[at].window_has_room().then_some(at);
        }
        if let Some(at) = self.lone_path(local, conn) {
            return Some(at);
        }
        let healthy = conn
            .paths
            .iter()
            .any(|p| p.usable() && p.state() == PathState::Up);
        let good = |p: &Path| p.usable() && (p.state() == PathState::Up || !healthy);
        // (Network traffic inside a host would take processor time from the copies.)
        let tiers = conn.paths.iter().filter(|p| good(p)).map(|p| p.policy.tier);
        let tier = tiers.min()?;
        let good = |p: &Path| good(p) && p.policy.tier == tier && !leaves_bulk(local, conn, p);
        let finish = |i: usize| conn.paths[i].finish_ns(64_000);
        let all = || (0..conn.paths.len()).filter(|&i| good(&conn.paths[i]));
        let best = all().map(finish).min()?;
        let at = all()
            .filter(|&i| conn.paths[i].has_room(local.full))
            .filter(|&i| conn.paths[i].window_has_room())
            .min_by_key(|&i| finish(i))?;
        let soon = finish(at) <= 2 * best + STALE_NS;
        (soon || finish(at) <= self.all_arrived_ns(conn, all())).then_some(at)
    }

    /// Time at which all queued data would have arrived if these paths shared it by their rates. A
    /// slow path is worth using for data that arrives earlier than that.
    fn all_arrived_ns(&self, conn: &Conn, paths: impl Iterator<Item = usize>) -> u64 {
        let sends = conn.tx.bulk.iter().take(LOOK_AHEAD);
        let sends = sends.filter_map(|&key| self.table.get(key));
        let waiting: u64 = sends.map(|s| s.head.total.saturating_sub(s.next)).sum();
        let (queued, rate) = paths.fold((waiting, 0), |(queued, rate), i| {
            let path = &conn.paths[i];
            let of_all = rate + path.congestion.share_bytes_per_s();
            (queued + path.ring.in_flight(), of_all)
        });
        product_over(queued, NS_PER_S, rate.max(1))
    }

    /// The path of small packets, if one eager message is all there is to send. On another path the
    /// message and the acks could not share a packet, and measured rates do not show on which path
    /// a single message arrives first.
    fn lone_path(&self, local: &Local, conn: &Conn) -> Option<usize> {
        let mut waiting = conn.tx.bulk.iter().chain(&conn.tx.queue);
        let send = self.table.get(*waiting.next()?)?;
        if waiting.next().is_some() {
            return None;
        }
        let left = match send.kind {
            SendKind::Queued => send.head.total,
            SendKind::Eager => send.upto.saturating_sub(send.next),
            SendKind::Rendezvous | SendKind::Reply => return None,
        };
        let at = conn.small_path(None, false, local.full)?;
        let path = &conn.paths[at];
        let most = match leaves_bulk(local, conn, path) {
            true => SHORT_MAX,
            false => PIGGYBACK_MAX,
        };
        (path.healthy() && path.ring.in_flight() + left <= most.min(path.congestion.cwnd()))
            .then_some(at)
    }

    /// True if the acks of path `at`, and credit, need no packet of their own because a packet that
    /// leaves next on the path (a write, or the end of a message) takes them along. (A separate
    /// packet costs a system call at both ends.) `urgent`: some acks are due and must not wait for
    /// several messages.
    pub(crate) fn acks_piggyback(
        &self,
        cfg: &Config,
        local: &Local,
        conn: &Conn,
        at: usize,
        urgent: bool,
    ) -> bool {
        let only_acks = !conn.paths[at].probing.is_requested()
            && conn.session.needs_no_hello()
            && !conn.paths[at].validation.is_pending()
            && !conn.has_control();
        let only_acks = only_acks && !conn.reachability.echoes;
        let behind = conn.tx.bulk.len() + conn.tx.queue.len();
        let write = || {
            let more = conn.credit.is_due() || !conn.tx.queue.is_empty();
            !more && self.writes_next(cfg, local, conn, at)
        };
        let end = || (!urgent || behind == 1) && self.ends_soon(cfg, conn, at);
        only_acks
            && behind > 0
            && (write() || end())
            && self.bulk_path(cfg, local, conn) == Some(at)
    }

    /// True if a message ends within the next packets of bulk, and no queued message could share a
    /// packet with others.
    fn ends_soon(&self, cfg: &Config, conn: &Conn, at: usize) -> bool {
        let queued = conn.tx.queue.front().and_then(|&key| self.table.get(key));
        let path = &conn.paths[at];
        let limit = path.datagram_max() - path.acks.ack_len();
        if queued.is_some_and(|send| !send.is_bulk(cfg, conn, limit)) {
            return false;
        }
        let begun = conn.tx.bulk.front().and_then(|&key| self.table.get(key));
        let left = match (begun, queued) {
            (Some(send), _) => send.upto.saturating_sub(send.next),
            (None, Some(send)) => send.head.total,
            (None, None) => return false,
        };
        left <= PIGGYBACK_MAX
    }

    /// Fills the rest of the last packet of a message with the next message, or with padding: a
    /// shorter packet would end the batch (the kernel cuts batches into packets of one length) or
    /// make all packets of the next batch as short.
    pub(crate) fn fill_up(
        &mut self,
        ctx: &mut Context<'_>,
        conn: &mut Conn,
        (at, limit): (usize, usize),
        b: &mut Builder<'_, '_>,
    ) {
        let Some(key) = self.next_bulk(ctx, conn, limit, true) else {
            return;
        };
        if self.placed_next(ctx.cfg, ctx.local, conn, at) {
            return;
        }
        let next = self.table.get(key).map(|send| (send.next, send.upto));
        if let Some((offset, upto)) =
            next.filter(|_| b.writer.fits(EAGER_LEN, BLOCK_BYTES as usize))
        {
            let most = (upto - offset).min(ctx.cfg.fragment_max as u64);
            if let Some(len) = self.push_data(key, offset, most as u32, b) {
                self.advance(key, offset + len as u64);
                self.leave_bulk(conn, key);
            }
        }
        let pad = |len: usize| Frame::Pad {
            len: len as u16,
            head: 0,
        };
        if let Some(room) = b.writer.room().checked_sub(pad(0).head_len()) {
            b.control(&pad(room), None);
        }
    }

    /// The message that bulk continues with: one that has begun, or the next eager message. In a
    /// batch that message must be too long for one packet. Otherwise `add_heads` has just rejected
    /// it: too long for the path of small packets, or beside HELLO, or no window there.
    pub(crate) fn next_bulk(
        &mut self,
        ctx: &mut Context<'_>,
        conn: &mut Conn,
        limit: usize,
        follows: bool,
    ) -> Option<Key> {
        while let Some(&key) = conn.tx.bulk.front() {
            match self.table.get(key) {
                Some(send) if send.next < send.upto => return Some(key),
                _ => drop(conn.tx.bulk.pop_front()),
            }
        }
        let &key = conn.tx.queue.front()?;
        let send = self.table.get(key)?;
        let total = send.head.total;
        let leaves = match follows {
            true => send.is_bulk(ctx.cfg, conn, limit),
            false => send.goes_eager(ctx.cfg, &conn.credit),
        };
        if !leaves {
            return None;
        }
        conn.tx.queue.pop_front();
        conn.credit.spend(Credit::cost(total));
        self.start_eager(ctx, conn, key);
        self.table.get_mut(key)?.in_bulk = true;
        conn.tx.bulk.push_front(key);
        Some(key)
    }

    pub(crate) fn leave_bulk(&mut self, conn: &mut Conn, key: Key) {
        let Some(send) = self.table.get_mut(key) else {
            return;
        };
        if send.next >= send.upto && !send.skip() {
            send.in_bulk = false;
            conn.tx.bulk.pop_front();
        }
    }
}

/// Returns whether a path leaves long messages to another rail of its port.
fn leaves_bulk(local: &Local, conn: &Conn, path: &Path) -> bool {
    let healthy_on = |rail| conn.paths.iter().any(|p| p.local == rail && p.healthy());
    let rail = &local.rails[path.local as usize];
    rail.bulk_rail.is_some_and(healthy_on)
}

impl Path {
    /// Time at which `bytes` more would have arrived, by the measured rate.
    fn finish_ns(&self, bytes: u64) -> u64 {
        // Without a measured rate assume 1 GB/s, so that the path is tried.
        let rate = match self.congestion.share_bytes_per_s() {
            0 => 1 << 30,
            rate => rate,
        };
        let queued = self.ring.in_flight() + bytes;
        product_over(queued, NS_PER_S, rate) + self.rtt.half_ns()
    }
}
