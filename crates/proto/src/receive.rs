//! Packets in: identity and duplicate checks, frames, fragments (place, land), matching.

use crate::conn::{Conn, InboundState, PATHS_MAX};
use crate::fragment::Fragment;
use crate::granules::Covered;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::ops::new_inbound;
use crate::slab::Key;
use crate::types::{DropReason, Landing, Memory, PeerId};
use marline_wire::{
    granules, Address, Frame, FrameView, Header, Hello, MsgHead, Packet, RailAddr, GRANULE,
};

/// Largest message that may come without a grant.
const EAGER_LIMIT: u64 = 65_536;
/// A message number further ahead than this is nonsense: credit allows far fewer.
const NUMBERS_AHEAD_MAX: u64 = 1 << 20;

/// A path that is asked so often, while nothing of ours on it is acknowledged, is asked back. (Each
/// time, and duels of many paths that lose a tenth bring about each other.)
const ASKED_BACK: u8 = 3;

impl Node {
    /// Takes one packet whose head was checked. `rail`: the local rail it arrived on. Payloads
    /// are put in place through `memory`. An error is a counter; nothing else changed then
    /// (except that good fragments of a packet with a bad one are kept).
    pub fn handle_packet(
        &mut self,
        now_ns: u64,
        packet: &Packet<'_>,
        wire_bytes: usize,
        memory: &mut impl Memory,
    ) -> Result<PeerId, DropReason> {
        self.take_late();
        let result = self.admit(now_ns, packet, wire_bytes, memory);
        match result {
            Err(DropReason::Token) => self.stats.drop_token += 1,
            Err(DropReason::Epoch) => self.stats.drop_epoch += 1,
            Err(DropReason::Stranger) => self.stats.drop_stranger += 1,
            Err(DropReason::Gone) => self.stats.drop_gone += 1,
            Err(DropReason::Nonsense) => self.stats.drop_nonsense += 1,
            Err(DropReason::NoMemory) => self.stats.drop_no_memory += 1,
            _ => {}
        }
        result
    }

    fn admit(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        wire_bytes: usize,
        memory: &mut impl Memory,
    ) -> Result<PeerId, DropReason> {
        let header = &packet.header;
        let ours = header.dst_token == self.token && header.dst_id == self.id;
        if !ours && !self.cfg.errs(Mutation::IgnoreToken) {
            return Err(DropReason::Token);
        }
        self.check_algorithm(header.algorithm)?;
        let peer = self.identify(now, packet)?;
        let at = self.path_of(peer, header).ok_or(DropReason::Nonsense)?;
        let (reliable, silence_ns) = (self.cfg.reliable, self.cfg.silence_ns());
        let Node {
            absences,
            cfg,
            peers,
            ..
        } = self;
        let conn = peers.get_mut(peer.0 as usize);
        let conn = conn.and_then(|p| p.conn.as_deref_mut());
        let conn = conn.ok_or(DropReason::Gone)?;
        if now.saturating_sub(conn.heard_ns) > silence_ns / 2 {
            // It was silent itself; what it was sent meanwhile it reads now.
            conn.unanswered_since = None;
        }
        absences.note_life(now, conn, cfg);
        conn.heard_ns = now;
        conn.refused = 0;
        conn.owed_since = conn.owed_since.map(|_| now);
        let path = &mut conn.paths[at];
        if reliable && path.window.is_duplicate(header.number) {
            path.stats.duplicates += 1;
            return Err(DropReason::Duplicate);
        }
        let bad = self.take_frames(now, peer, at, packet, memory).err();
        if bad.is_some() && self.cfg.errs(Mutation::AckBeforeCommit) {
            self.owe_ack(now, peer, at, header);
            return Ok(peer);
        }
        let conn = self.conn_mut(peer).ok_or(DropReason::Gone)?;
        // After its acks were taken: silence counts only while something is still owed.
        conn.owed_since = conn.owes().then_some(now);
        if let Some(reason) = bad {
            return Err(self.note_refused(now, peer, at, reason));
        }
        let path = &mut conn.paths[at];
        path.stats.packets_received += 1;
        path.stats.bytes_received += wire_bytes as u64;
        if reliable {
            self.owe_ack(now, peer, at, header);
        }
        self.touch_soon(peer, now);
        Ok(peer)
    }

    /// Who sent it: by the slot hint, by id, or by the HELLO it brings.
    fn identify(&mut self, now: u64, packet: &Packet<'_>) -> Result<PeerId, DropReason> {
        let header = &packet.header;
        let hinted = self.peers.get(header.dst_slot as usize);
        let index = match hinted {
            Some(peer) if peer.address.id == header.src_id => Some(header.dst_slot),
            _ => self.by_id.get(&header.src_id).copied(),
        };
        if let Some(index) = index {
            let peer = PeerId(index);
            if self.peers[index as usize].gone {
                return Err(DropReason::Gone);
            }
            if let Some(conn) = self.conn(peer) {
                // A BYE that is said again wants its ack: the first one's was lost.
                let bye = |(frame, _)| matches!(frame, Frame::Bye { .. });
                if conn.dead || (conn.closed && !packet.frames().any(bye)) {
                    return Err(DropReason::Gone);
                }
                match conn.epoch {
                    Some(epoch) if epoch == header.src_epoch => return Ok(peer),
                    Some(_) => return Err(DropReason::Epoch),
                    None => {}
                }
            }
        }
        let hello = packet.frames().find_map(|(frame, _)| match frame {
            Frame::Hello(hello) => Some(hello.owned()),
            _ => None,
        });
        let hello = hello.ok_or(DropReason::Stranger)?;
        if hello.id != header.src_id || hello.epoch != header.src_epoch || hello.rail_count == 0 {
            return Err(DropReason::Nonsense);
        }
        self.welcome(now, &hello)
    }

    /// First HELLO of a peer, known by address or not.
    fn welcome(&mut self, now: u64, hello: &Hello) -> Result<PeerId, DropReason> {
        if hello.id == self.id {
            return Err(DropReason::Nonsense); // what we tell ourselves comes in no packet
        }
        let rails = [hello.rails[0], hello.rails[1]];
        let peer = self.know(&Address {
            id: hello.id,
            token: hello.token,
            rails,
        });
        let address = self.peer_address(peer).ok_or(DropReason::Nonsense)?;
        if address.token != hello.token {
            return Err(DropReason::Token);
        }
        if hello.reliable != self.cfg.reliable {
            self.note_mismatch(peer);
            return Err(DropReason::Nonsense);
        }
        self.ensure_conn(peer);
        self.met(peer, now);
        let locals = self.local_rails();
        let rail_down = self.rail_down;
        let conn = self.conn_mut(peer).ok_or(DropReason::Nonsense)?;
        conn.epoch = Some(hello.epoch);
        conn.remote_slot = hello.slot;
        conn.credit_limit = conn.credit_limit.max(hello.credit);
        conn.add_paths(
            &locals,
            &hello.rails[..hello.rail_count as usize],
            PATHS_MAX,
        );
        for path in &mut conn.paths {
            path.rail_down = rail_down[path.local as usize];
            path.probe_at = now;
        }
        conn.ask_sizes(hello.reliable);
        self.agree(peer, hello);
        Ok(peer)
    }

    /// The path of a packet: known, or new between rails that both sides have.
    fn path_of(&mut self, peer: PeerId, header: &Header) -> Option<usize> {
        let (local, remote) = (header.dst_rail(), header.src_rail());
        let spec = *self.rails.get(local)?;
        let conn = self.conn_mut(peer)?;
        let code = (local as u8) << 4 | remote as u8;
        if let Some(at) = conn.path_by_send_code(code) {
            return Some(at);
        }
        let sibling = conn.paths.iter().find(|p| p.remote == remote as u8)?;
        let (to, ceiling): (RailAddr, usize) = (sibling.to, spec.datagram_max);
        if !to.reaches(&spec.addr) || conn.paths.len() >= 2 * PATHS_MAX {
            return None;
        }
        let ceiling = ceiling.min(to.mtu as usize);
        conn.paths.push(crate::path::Path::new(
            local as u8,
            remote as u8,
            to,
            ceiling,
        ));
        Some(conn.paths.len() - 1)
    }

    fn take_frames(
        &mut self,
        now: u64,
        peer: PeerId,
        at: usize,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        // The common case, read once.
        if let Some((ack, message, bytes)) = packet.answer() {
            if !self.put_off(now, peer, &ack) {
                self.on_ack(now, peer, &ack);
            }
            let fragment = Fragment::first(&packet.header, &message, bytes);
            return self.take_fragment(now, peer, at, fragment, memory);
        }
        let mut outcome = Ok(());
        for (frame, bytes) in packet.frames() {
            let fragment = match frame {
                Frame::Eager(e) => Fragment::first(&packet.header, &e, bytes),
                Frame::Data(d) => Fragment::further(&packet.header, &d, bytes),
                Frame::Written(w) => {
                    let taken = self.take_written(now, (peer, at), &packet.header, &w, memory);
                    outcome = outcome.and(taken);
                    continue;
                }
                control => {
                    if let Err(e) = self.take_control(now, (peer, at), &control) {
                        outcome = Err(e);
                    }
                    continue;
                }
            };
            if let Err(e) = self.take_fragment(now, peer, at, fragment, memory) {
                outcome = Err(e);
            }
        }
        outcome
    }

    fn take_control(
        &mut self,
        now: u64,
        (peer, at): (PeerId, usize),
        frame: &FrameView<'_>,
    ) -> Result<(), DropReason> {
        match frame {
            Frame::Ack(ack) => {
                self.on_ack(now, peer, ack);
            }
            Frame::Rts(rts) => return self.on_rts(now, peer, &rts.head),
            Frame::Grant(g) => {
                if let Some(conn) = self.conn_mut(peer) {
                    conn.stats.flow_acks_received += 1;
                }
                self.on_grant(peer, g);
            }
            Frame::Credit { bytes } => {
                if let Some(conn) = self.conn_mut(peer) {
                    conn.stats.flow_acks_received += 1;
                    conn.credit_limit = conn.credit_limit.max(*bytes);
                }
                self.wake(peer);
            }
            Frame::Read(read) => return self.on_read(peer, read),
            Frame::ReadFail { number } => self.on_read_fail(peer, *number),
            Frame::Bye { arrived } => self.on_bye(now, peer, *arrived),
            Frame::Corrupt { path } => self.on_corrupt(now, peer, *path),
            Frame::Hello(hello) => {
                if let Some(conn) = self.conn_mut(peer) {
                    conn.remote_slot = hello.slot();
                }
            }
            Frame::Key(key) => self.on_key(peer, key),
            Frame::Ping => self.ask_back(peer, at),
            Frame::Pad { .. } => {}
            Frame::Eager(_) | Frame::Data(_) | Frame::Written(_) => {}
        }
        Ok(())
    }

    /// Finds (or makes) the inbound message of a fragment; `None`: done long ago.
    fn inbound_of(&mut self, peer: PeerId, f: &Fragment<'_>) -> Result<Option<Key>, DropReason> {
        let conn = self.conn(peer).ok_or(DropReason::Gone)?;
        if f.reply {
            return Ok(conn.pending_reads.get(&f.number).copied());
        }
        let number = conn.expand(f.number);
        if let Some(&key) = conn.inbound.get(&number) {
            return Ok(Some(key));
        }
        if number < conn.next_match && !self.cfg.errs(Mutation::ForgetMessages) {
            return Ok(None);
        }
        if number > conn.next_match + NUMBERS_AHEAD_MAX || f.total > EAGER_LIMIT {
            return Err(DropReason::Nonsense);
        }
        let cost = Conn::cost(f.total);
        // Senders stay within their credit; the factor of two is for peers whose credit was given
        // before memory got short.
        let full = self.stats.unexpected_bytes + cost > 2 * self.cfg.unexpected_bytes;
        if full && !self.cfg.errs(Mutation::Hoard) {
            return Err(DropReason::NoMemory);
        }
        let mut inbound = new_inbound(peer, number, f.total, InboundState::Held);
        inbound.charged = self.cfg.charged(cost);
        inbound.credit = cost;
        self.charge(inbound.charged);
        let key = self.inbounds.insert(inbound);
        if let Some(conn) = self.conn_mut(peer) {
            conn.inbound.insert(number, key);
        }
        self.use_credit(peer, cost);
        Ok(Some(key))
    }

    pub(crate) fn charge(&mut self, bytes: u64) {
        let stats = &mut self.stats;
        stats.unexpected_bytes += bytes;
        stats.unexpected_bytes_max = stats.unexpected_bytes_max.max(stats.unexpected_bytes);
    }

    fn take_fragment(
        &mut self,
        now: u64,
        peer: PeerId,
        at: usize,
        mut f: Fragment<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        if let Some(done) = self.take_single(now, peer, &f, memory) {
            return done;
        }
        let Some(key) = self.inbound_of(peer, &f)? else {
            self.on_duplicate(peer, at);
            return Ok(());
        };
        if let Some(head) = f.head {
            self.on_head(now, peer, key, &head);
        }
        if f.revokes {
            self.revoke_now(key, memory);
        }
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return Ok(());
        };
        let len = f.payload.bytes.len() as u64;
        let (start, n) = (f.offset / GRANULE, granules(len));
        let ungranted = inbound.rendezvous && f.offset + len > inbound.granted;
        if inbound.total != f.total || ungranted {
            return Err(inbound.no_place());
        }
        match inbound.set.covered(start, n) {
            Covered::All if !self.cfg.errs(Mutation::ForgetFragments) => {
                self.on_duplicate(peer, at);
                return Ok(());
            }
            Covered::Some => {
                f.payload.verify_first = !self.cfg.errs(Mutation::WriteUnchecked);
            }
            Covered::None | Covered::All => {}
        }
        let landing = inbound.landing(key, f.offset, len);
        inbound.bounced |= matches!(landing, Landing::Bounce { .. });
        if !memory.land(&landing, &f.payload) && !self.cfg.errs(Mutation::IgnoreSum) {
            return Err(DropReason::CorruptPayload);
        }
        self.commit(now, key, start, n, len);
        Ok(())
    }

    /// The common case, without any table: a whole eager message, in order, with a receive
    /// posted for it.
    fn take_single(
        &mut self,
        now: u64,
        peer: PeerId,
        f: &Fragment<'_>,
        memory: &mut impl Memory,
    ) -> Option<Result<(), DropReason>> {
        let head = f.head?;
        let len = f.payload.bytes.len() as u64;
        let conn = self.conn(peer)?;
        let number = conn.next_match;
        if len != f.total || f.number != number as u32 || conn.inbound.contains_key(&number) {
            return None;
        }
        let (at, found) = self.matching.locate(peer, &head)?;
        let copy = len.min(found.capacity) as usize;
        let landing = Landing::Posted {
            handle: found.handle,
            offset: found.base,
            copy,
        };
        if !memory.land(&landing, &f.payload) {
            return None; // to be matched all the same: a shorter one must not find the rubbish
        }
        let found = self.matching.take_at(at, &head)?;
        self.note_multi(&found);
        let conn = self.conn_mut(peer)?;
        conn.next_match += 1;
        conn.watchers -= found.unwatches();
        let more = !conn.inbound.is_empty();
        self.use_credit(peer, Conn::cost(len));
        self.return_credit(peer, Conn::cost(len));
        self.received(peer, head, found.handle, found.base, copy as u64, None);
        if more {
            self.advance_matching(now, peer);
        }
        Some(Ok(()))
    }

    /// A fragment came twice: perhaps our ack was lost on a path that only carries acks. Probe
    /// the other paths, so that a one-way fault is noticed.
    pub(crate) fn on_duplicate(&mut self, peer: PeerId, at: usize) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        conn.stats.duplicates += 1;
        for (i, path) in conn.paths.iter_mut().enumerate() {
            path.want_ping |= i != at && path.usable() && path.ring.waiting() == 0;
        }
        self.wake(peer);
    }

    /// A path is asked whether it works. Perhaps it does, and what it does not carry is our answer:
    /// then only our own asking shows it, and the answers go elsewhere.
    fn ask_back(&mut self, peer: PeerId, at: usize) {
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let path = &mut conn.paths[at];
        path.asked = path.asked.saturating_add(1);
        if path.asked >= ASKED_BACK && path.usable() && path.ring.waiting() == 0 {
            path.asked = 0;
            path.want_ping = true;
            self.wake(peer);
        }
    }

    fn on_head(&mut self, now: u64, peer: PeerId, key: Key, head: &MsgHead) {
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return;
        };
        if inbound.head.is_none() && inbound.total == head.total {
            inbound.head = Some(*head);
            self.advance_matching(now, peer);
        }
    }

    /// Matches, in order, every message whose head is there.
    pub(crate) fn advance_matching(&mut self, now: u64, peer: PeerId) {
        loop {
            let Some(conn) = self.conn(peer) else {
                return;
            };
            let due = match self.cfg.errs(Mutation::SkipOrder) {
                true => self.any_unmatched(peer),
                false => conn.inbound.get(&conn.next_match).copied(),
            };
            let Some(key) = due else {
                return;
            };
            let Some(head) = self.inbounds.get(key).and_then(|i| i.head) else {
                return;
            };
            let Some(conn) = self.conn_mut(peer) else {
                return;
            };
            conn.next_match += 1;
            self.match_head(peer, &head, key, now);
        }
    }

    fn on_rts(&mut self, now: u64, peer: PeerId, head: &MsgHead) -> Result<(), DropReason> {
        let conn = self.conn(peer).ok_or(DropReason::Gone)?;
        let number = conn.expand(head.number);
        if number < conn.next_match || conn.inbound.contains_key(&number) {
            return Ok(());
        }
        if number > conn.next_match + NUMBERS_AHEAD_MAX || head.total >= 1 << 56 {
            return Err(DropReason::Nonsense);
        }
        let cost = Conn::cost(0);
        let mut inbound = new_inbound(peer, number, head.total, InboundState::Held);
        inbound.rendezvous = true;
        inbound.head = Some(*head);
        inbound.wanted = 0;
        inbound.charged = cost;
        self.charge(cost);
        // The credit of a bare request comes back at once while memory is plentiful, so that
        // requests no receive fits do not stop those that have one.
        let plenty = self.stats.unexpected_bytes < self.cfg.unexpected_bytes;
        inbound.credit = if plenty { 0 } else { cost };
        let key = self.inbounds.insert(inbound);
        if let Some(conn) = self.conn_mut(peer) {
            conn.inbound.insert(number, key);
        }
        self.use_credit(peer, cost);
        if plenty {
            self.return_credit(peer, cost);
        }
        self.advance_matching(now, peer);
        Ok(())
    }

    /// Records the packet and decides when its ack leaves.
    fn owe_ack(&mut self, now: u64, peer: PeerId, at: usize, header: &Header) {
        let every = self.cfg.ack_every;
        let Some(conn) = self.conn_mut(peer) else {
            return;
        };
        let path = &mut conn.paths[at];
        let eliciting = header.flags & Header::FLAG_NO_ACK == 0;
        if path.window.fresh() == 0 {
            path.ack_since = now;
        }
        if !path.window.record(header.number, eliciting, now) || !eliciting {
            return;
        }
        if header.flags & Header::FLAG_ACK_NOW != 0 || path.window.fresh() >= every {
            path.ack_now = true;
            self.wake(peer);
        }
        if header.flags & Header::FLAG_EVERYWHERE != 0 {
            self.restore_contact(peer);
        }
    }
}
