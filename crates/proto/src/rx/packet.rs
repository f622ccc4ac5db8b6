//! Incoming packets: identity and duplicate checks, frames, fragments (place, land), matching.

use crate::base::config::PATHS_MAX;
use crate::base::mutation::Mutation;
use crate::base::stats::NodeStats;
use crate::base::types::{DropReason, Memory, PeerId};
use crate::incoming::fragment::Fragment;
use crate::node::Node;
use crate::state::context::Context;
use crate::state::path::Path;
use marline_wire::{Frame, FrameView, Header, Packet};

impl Node {
    /// Handles one packet whose head was verified. `rail`: the local rail on which it arrived.
    /// Payloads are placed through `memory`. An error increments a counter and changes nothing
    /// else, except that good fragments of a packet with a bad fragment are kept.
    pub fn handle_packet(
        &mut self,
        now_ns: u64,
        packet: &Packet<'_>,
        wire_bytes: usize,
        memory: &mut impl Memory,
    ) -> Result<PeerId, DropReason> {
        self.take_deferred();
        let (peer, at) = match self.admit(now_ns, packet, wire_bytes) {
            Ok(from) => from,
            Err(reason) => return Err(self.stats.count_drop(reason)),
        };
        let mut taken = Ok(());
        if let Some((ack, message, bytes)) = packet.answer() {
            // The common case: an ack and a message, parsed once.
            let conn = self.directory.conn(peer);
            if !conn.is_some_and(|conn| self.pending.defer_ack(now_ns, conn, &ack)) {
                self.on_ack(now_ns, peer, &ack);
            }
            let fragment = Fragment::first(&packet.header, &message, bytes);
            let (incoming, mut ctx) = self.incoming();
            taken = incoming.take_fragment(&mut ctx, now_ns, peer, at, fragment, memory);
        } else {
            for (frame, bytes) in packet.frames() {
                let fragment = match frame {
                    Frame::Eager(e) => Fragment::first(&packet.header, &e, bytes),
                    Frame::Data(d) => Fragment::further(&packet.header, &d, bytes),
                    Frame::Ack(ack) => {
                        self.on_ack(now_ns, peer, &ack);
                        continue;
                    }
                    Frame::Written(w) => {
                        let (incoming, mut ctx) = self.incoming();
                        let (from, header) = ((peer, at), &packet.header);
                        let written =
                            incoming.take_written(&mut ctx, now_ns, from, header, &w, memory);
                        taken = taken.and(written);
                        continue;
                    }
                    Frame::Advertisement(advertisement) => {
                        let (incoming, mut ctx) = self.incoming();
                        incoming.on_advertisement(
                            &mut ctx,
                            now_ns,
                            peer,
                            &packet.header,
                            &advertisement,
                            memory,
                        );
                        continue;
                    }
                    control => {
                        let done = self.take_control(now_ns, (peer, at), &control);
                        taken = done.and(taken);
                        continue;
                    }
                };
                let (incoming, mut ctx) = self.incoming();
                let stored = incoming.take_fragment(&mut ctx, now_ns, peer, at, fragment, memory);
                taken = stored.and(taken);
            }
        }
        let result = self.after_frames(now_ns, (peer, at), packet, wire_bytes, taken.err());
        result.map_err(|reason| self.stats.count_drop(reason))
    }

    /// Finds the peer and path of a packet; rejects packets that are not for this endpoint and
    /// epoch, and duplicates.
    #[inline]
    fn admit(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        wire_bytes: usize,
    ) -> Result<(PeerId, usize), DropReason> {
        let header = &packet.header;
        let ours = header.dst_token == self.local.token && header.dst_id == self.local.id;
        if !ours && !self.cfg.errs(Mutation::IgnoreToken) {
            return Err(DropReason::Token);
        }
        if !self.cfg.knows_algorithm(header.algorithm) {
            self.stats.drop_algorithm += 1;
            return Err(DropReason::Algorithm);
        }
        let peer = self.identify(now, packet)?;
        let at = self.path_of(now, peer, packet);
        let at = at.ok_or(DropReason::Invalid)?;
        let (reliable, silence_ns) = (self.cfg.reliable, self.cfg.silence_ns());
        let Node {
            descheduled,
            cfg,
            directory,
            run_queue,
            ..
        } = self;
        let conn = directory.conn_mut(peer).ok_or(DropReason::Gone)?;
        let acks = &conn.paths[at].acks;
        let in_reach = acks.is_in_reach(header.number, now, conn.life.opened_ns);
        if reliable && !in_reach && !cfg.errs(Mutation::TrustNumbers) {
            return Err(DropReason::Invalid);
        }
        let path = &mut conn.paths[at];
        let counted = reliable || cfg.key_mark != 0;
        let duplicate = counted && path.acks.is_duplicate(header.number);
        // A duplicate may be a replay by a third party, which is no sign of life.
        if duplicate && cfg.key_mark != 0 && !cfg.errs(Mutation::AcceptReplays) {
            path.stats.duplicates += 1;
            return Err(DropReason::Duplicate);
        }
        if now.saturating_sub(conn.life.heard_ns) > silence_ns / 2 {
            // The peer was silent as a whole, and only now reads the packets sent meanwhile.
            conn.life.unanswered_since = None;
        }
        descheduled.note_life(now, &mut conn.life, cfg);
        conn.life.heard_ns = now;
        conn.refusals.forget();
        conn.life.owed_since = conn.life.owed_since.map(|_| now);
        if conn.is_of_stranger() && conn.allow_bytes(at, header.number, wire_bytes) {
            run_queue.mark_ready(conn);
        }
        let path = &mut conn.paths[at];
        path.link.ended = false;
        if duplicate && !cfg.errs(Mutation::AcceptReplays) {
            path.stats.duplicates += 1;
            return Err(DropReason::Duplicate);
        }
        Ok((peer, at))
    }

    /// Counts a packet after its frames were handled, and owes its ack. `bad`: why a frame was
    /// rejected.
    #[inline]
    fn after_frames(
        &mut self,
        now: u64,
        (peer, at): (PeerId, usize),
        packet: &Packet<'_>,
        wire_bytes: usize,
        bad: Option<DropReason>,
    ) -> Result<PeerId, DropReason> {
        let header = &packet.header;
        let (reliable, keyed) = (self.cfg.reliable, self.cfg.key_mark != 0);
        if bad.is_some() && self.cfg.errs(Mutation::AckBeforeCommit) {
            self.context().owe_ack(now, peer, at, header);
            return Ok(peer);
        }
        let conn = self.conn_mut(peer).ok_or(DropReason::Gone)?;
        // After the packet's acks: only a peer that still owes an answer can be silent.
        conn.life.owed_since = conn.owes().then_some(now);
        if let Some(reason) = bad {
            conn.session.lost |= header.flags & Header::FLAG_NATIVE != 0;
            return Err(self.context().note_refused(now, peer, at, reason));
        }
        let path = &mut conn.paths[at];
        path.acks
            .note_native(header.flags & Header::FLAG_NATIVE != 0);
        path.stats.packets_received += 1;
        path.stats.bytes_received += wire_bytes as u64;
        if reliable {
            self.context().owe_ack(now, peer, at, header);
        } else if keyed {
            path.acks.on_packet(header.number, false, now);
        }
        self.context().touch_soon(peer, now);
        Ok(peer)
    }

    /// The path of a packet: known, or new between rails that both sides have.
    fn path_of(&mut self, now: u64, peer: PeerId, packet: &Packet<'_>) -> Option<usize> {
        let code = packet.header.path.swap_bytes();
        if let Some(at) = self.conn(peer)?.path_by_send_code(code) {
            return Some(at);
        }
        self.context()
            .new_path_of(peer, &packet.header)
            .or_else(|| {
                // The rail may be new, announced by HELLO in this packet.
                let mut frames = packet.frames();
                let hello = frames.find_map(|(frame, _)| match frame {
                    Frame::Hello(hello) => Some(hello.fields()),
                    _ => None,
                });
                self.on_hello(now, peer, &hello?);
                let known = self.conn(peer)?.path_by_send_code(code);
                known.or_else(|| self.context().new_path_of(peer, &packet.header))
            })
    }

    fn take_control(
        &mut self,
        now: u64,
        (peer, at): (PeerId, usize),
        frame: &FrameView<'_>,
    ) -> Result<(), DropReason> {
        match frame {
            Frame::Rts(rts) => {
                let (incoming, mut ctx) = self.incoming();
                return incoming.on_rts(&mut ctx, now, peer, &rts.head);
            }
            Frame::Grant(g) => {
                if let Some(conn) = self.conn_mut(peer) {
                    conn.stats.flow_acks_received += 1;
                }
                let (outgoing, mut ctx) = self.outgoing();
                outgoing.on_grant(&mut ctx, now, peer, g);
            }
            Frame::Credit { bytes } => {
                if let Some(conn) = self.directory.conn_mut(peer) {
                    conn.stats.flow_acks_received += 1;
                    conn.credit.raise(*bytes);
                    self.run_queue.mark_ready(conn);
                }
            }
            Frame::Read(read) => return self.on_read(peer, read),
            Frame::ReadFail { number } => {
                let (incoming, mut ctx) = self.incoming();
                incoming.on_read_fail(&mut ctx, peer, *number);
            }
            Frame::Bye { arrived } => self.on_bye(now, peer, *arrived),
            Frame::Corrupt { path } => self.on_corrupt(now, peer, *path),
            Frame::Hello(hello) => self.on_hello(now, peer, &hello.fields()),
            Frame::Key(key) => {
                let (outgoing, mut ctx) = self.outgoing();
                outgoing.on_key(&mut ctx, peer, key);
            }
            Frame::Have(have) => {
                let (outgoing, mut ctx) = self.outgoing();
                outgoing.on_have(&mut ctx, peer, have);
            }
            Frame::Ping => {
                let mut ctx = self.context();
                ctx.ask_back(peer, at);
            }
            Frame::PathChallenge { data } => self.on_challenge(peer, *data),
            Frame::PathResponse { data } => self.on_response(now, peer, *data),
            Frame::Pad { .. } => {}
            Frame::Extension(extension) => self.note_skipped(extension.kind),
            // Taken by `handle_packet`.
            Frame::Ack(_)
            | Frame::Eager(_)
            | Frame::Data(_)
            | Frame::Written(_)
            | Frame::Advertisement(_) => {}
        }
        Ok(())
    }
}

impl Context<'_> {
    #[cold]
    fn new_path_of(&mut self, peer: PeerId, header: &Header) -> Option<usize> {
        let (local, remote) = (header.dst_rail(), header.src_rail());
        let conn = self.conn(peer)?;
        let sibling = conn.paths.iter().find(|p| p.to.index == remote as u8);
        let to = match sibling {
            Some(path) => path.to,
            None => conn.behind(remote).or_else(|| conn.session.rail(remote))?,
        };
        let local_addr = &self.local.rails.get(local)?.addr;
        if !self.local.pairing.reaches(local_addr, &to) || conn.paths.len() >= PATHS_MAX {
            return None;
        }
        let path = Path::new(local as u8, &self.local.rail(local, self.cfg), to);
        let at = self.conn_mut(peer)?.push_path(path);
        self.ask_links(peer);
        Some(at)
    }

    /// Records the packet and decides when its ack leaves.
    fn owe_ack(&mut self, now: u64, peer: PeerId, at: usize, header: &Header) {
        let every = self.cfg.ack_every;
        let Some(conn) = self.directory.conn_mut(peer) else {
            return;
        };
        let path = &mut conn.paths[at];
        let eliciting = header.flags & Header::FLAG_NO_ACK == 0;
        path.acks.on_packet(header.number, eliciting, now);
        if !eliciting {
            return;
        }
        if header.flags & Header::FLAG_ACK_NOW != 0 || path.acks.fresh() >= every {
            path.acks.make_urgent();
            self.run_queue.mark_ready(conn);
        }
        if header.flags & Header::FLAG_EVERYWHERE != 0 {
            self.restore_reachability(now, peer, at);
        }
    }
}

impl NodeStats {
    /// Counts a dropped packet or fragment.
    #[cold]
    fn count_drop(&mut self, reason: DropReason) -> DropReason {
        match reason {
            DropReason::Token => self.drop_token += 1,
            DropReason::Epoch => self.drop_epoch += 1,
            DropReason::Stranger => self.drop_stranger += 1,
            DropReason::Unadmitted => self.drop_unadmitted += 1,
            DropReason::Gone => self.drop_gone += 1,
            DropReason::Invalid => self.drop_nonsense += 1,
            DropReason::NoMemory => self.drop_no_memory += 1,
            DropReason::Version => self.drop_version += 1,
            _ => {}
        }
        reason
    }
}
