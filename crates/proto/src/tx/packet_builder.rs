//! Packet building: head, payload spans, header.

use crate::base::mutation::Mutation;
use crate::base::types::{Batch, Dest, PathState, Spans, Transmit};
use crate::node::Node;
pub(crate) use crate::outgoing::builder::{add_credit, Builder};
use crate::state::address_validation::PROBE_FILLER;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::path::Path;
use crate::state::sent_packets::FrameRef;
use crate::state::transfer::Inbound;
use alloc::boxed::Box;
use marline_wire::{Frame, Grant, HeadWriter, Header, GRANT_LEN};

/// Packets in a row without a request for an ack, at most: a path that only carries acks must be
/// probed too.
const QUIET_MAX: u8 = 32;

/// Adds the frames that precede a message's grant: its keys, and the segments already read;
/// `false`: not all of them fit.
fn push_keys(inbound: &Inbound, b: &mut Builder<'_, '_>) -> bool {
    let has = inbound.has_frame();
    let len: usize = inbound.key_frames().map(|frame| frame.head_len()).sum();
    let len = len + has.map_or(0, |has| has.head_len());
    if len > 0 && !b.writer.fits(len + GRANT_LEN, 0) {
        return false;
    }
    has.is_none_or(|has| b.control(&has, None))
        && inbound.key_frames().all(|frame| b.control(&frame, None))
}

impl Conn {
    /// A small packet on path `at`, with the lengths of its head and of the whole.
    #[inline]
    pub(crate) fn transmit(
        &self,
        at: usize,
        algorithm: u8,
        (head_len, len): (usize, usize),
    ) -> Transmit {
        let path = &self.paths[at];
        Transmit {
            rail: path.local as usize,
            dest: Dest::Link {
                link: path.link.id.unwrap_or(u32::MAX),
                flow: path.link.flow,
            },
            batch: Batch {
                peer: self.peer,
                path: at,
                segment: len,
                bulk: false,
            },
            head_len,
            len,
            algorithm,
            written: false,
        }
    }
}

impl Node {
    pub(crate) fn begin<'a, 'b>(
        &mut self,
        conn: &Conn,
        limit: usize,
        out: &'a mut [u8],
        spans: &'b mut Spans,
    ) -> Builder<'a, 'b> {
        spans.clear();
        self.outgoing.begin_packet();
        debug_assert!(
            self.pending.unrecorded.is_none(),
            "what was built last was sent"
        );
        let mut frames = core::mem::take(&mut self.pending.scratch);
        frames.clear();
        let writer = HeadWriter::with_tag(out, limit, self.cfg.tag_len());
        let mut builder = Builder::new(writer, spans, frames);
        if !conn.session.needs_no_hello() {
            let address = self.peer_address(conn.peer);
            let of_destination = address.map(|address| address.versions());
            builder.push_hello(&self.cfg, &self.local, conn, of_destination);
        }
        builder
    }

    /// Adds a challenge if the path's address is to be validated, in each packet until then.
    #[inline]
    pub(crate) fn add_challenge(&self, conn: &Conn, at: usize, b: &mut Builder<'_, '_>) {
        let path = &conn.paths[at];
        if path.validation.is_pending() {
            let data = self.local.challenge(self.peer_id(conn.peer), &path.to);
            b.control(&Frame::PathChallenge { data }, None);
        }
    }

    pub(crate) fn add_control(&mut self, now: u64, conn: &mut Conn, b: &mut Builder<'_, '_>) {
        add_credit(conn, b);
        while let Some(&key) = conn.tx.grants.front() {
            let inbound = self.incoming.get_mut(key);
            let grant = inbound.and_then(|inbound| Some((inbound.grant_frame(now)?, inbound)));
            if let Some((grant, inbound)) = grant {
                if self.local.writes && !push_keys(inbound, b) {
                    break;
                }
                if !b.control(&Frame::Grant(grant), Some(FrameRef::Grant(key))) {
                    break;
                }
                conn.stats.flow_acks += 1;
            }
            conn.tx.grants.pop_front();
        }
        while let Some(&frame) = conn.tx.control.front() {
            let wire = match frame {
                FrameRef::Advertisement { xfer, segment } => {
                    let segment = (xfer, segment);
                    if !self.outgoing.add_segment(&self.cfg, conn, segment, b) {
                        break;
                    }
                    None
                }
                FrameRef::Read(key) => self.incoming.read_frame(key, now),
                FrameRef::ReadFail(number) => Some(Frame::ReadFail { number }),
                FrameRef::Corrupt(path) => Some(Frame::Corrupt { path }),
                FrameRef::PathResponse(data) => Some(Frame::PathResponse { data }),
                FrameRef::EmptyGrant { number, flags } => Some(Frame::Grant(Grant {
                    number,
                    flags,
                    upto: 0,
                    wanted: 0,
                })),
                _ => None,
            };
            if wire.is_some_and(|w| !b.control(&w, Some(frame))) {
                break;
            }
            conn.tx.control.pop_front();
        }
    }

    /// Numbers the packet, writes its header and retains its frames until they are acknowledged.
    pub(crate) fn finish(
        &mut self,
        now: u64,
        conn: &mut Box<Conn>,
        at: usize,
        mut b: Builder<'_, '_>,
        nothing: bool,
        bulk: bool,
    ) -> Option<Transmit> {
        if nothing {
            b.spans.clear();
            self.pending.scratch = b.frames;
            return None;
        }
        let native = self.outgoing.leaves_natively(conn, at, &b.frames);
        let only_data = native && b.frames.iter().all(|frame| frame.bytes_of().is_some());
        let eliciting = b.wants_ack(conn) && !only_data;
        let flags = match eliciting {
            true => b.flags,
            false => Header::FLAG_NO_ACK,
        };
        let flags = flags | if native { Header::FLAG_NATIVE } else { 0 };
        let address = &self.directory.peers[conn.peer.0 as usize].address;
        let header = self.local.header(&self.cfg, address, (conn, at), flags);
        let (head_len, len) = b.writer.finish(&header);
        let path = &mut conn.paths[at];
        for span in b.spans.iter_mut() {
            span.payload_at += head_len as u32;
        }
        path.probing.on_packet_sent(eliciting);
        path.stats.packets_sent += 1;
        path.stats.bytes_sent += (len + b.written) as u64;
        path.validation.on_sent(len + b.written);
        let mut transmit = conn.transmit(at, header.algorithm, (head_len, len));
        transmit.batch.bulk = bulk;
        transmit.written = b.written > 0;
        if b.acks > 0 {
            let alone = !eliciting;
            conn.stats.acks_explicit += alone as u64 * b.acks as u64;
            conn.stats.acks_piggybacked += !alone as u64 * b.acks as u64;
        }
        self.keep_later(now, conn, &transmit, (b.frames, len + b.written));
        Some(transmit)
    }
}

impl Builder<'_, '_> {
    /// Adds the acks of path `at`, and of paths that cannot carry their own. (Acks of one path must
    /// not use two paths: they would overtake each other, and packets that only the earlier ack
    /// names would look lost.) While no path is healthy, every path carries all acks, since each
    /// may work in one direction. A BYE takes the acks of all paths, since the peer ignores later
    /// packets.
    pub(crate) fn add_acks(&mut self, ctx: &mut Context<'_>, now: u64, conn: &mut Conn, at: usize) {
        let last = conn.bye.said > 0;
        let healthy = conn.paths[at].healthy();
        let best = healthy || !conn.paths.iter().any(Path::healthy);
        let alone = best && !last && !ctx.cfg.errs(Mutation::SayOnce);
        if (conn.reachability.echoes || !healthy) && conn.echo_acks(at, alone) {
            self.echo_all(ctx, now, conn);
        }
        for (i, path) in conn.paths.iter_mut().enumerate() {
            let own = i == at && (best || !path.left_by_acks());
            if last || own || (best && !path.healthy()) {
                self.push_acks(ctx, now, path);
            }
        }
    }

    /// Adds the acks of all paths, repeated ones too, as far as they fit, starting with the path on
    /// which the peer probed.
    #[cold]
    fn echo_all(&mut self, ctx: &mut Context<'_>, now: u64, conn: &mut Conn) {
        let first = (conn.reachability.asked_at as usize).min(conn.paths.len());
        let (before, from) = conn.paths.split_at_mut(first);
        for path in from.iter_mut().chain(before) {
            if !path.acks.any() && self.fits_ack() {
                path.acks.renew();
            }
            self.push_acks(ctx, now, path);
        }
    }

    #[inline]
    fn push_acks(&mut self, ctx: &mut Context<'_>, now: u64, path: &mut Path) {
        let waited = path.acks.waited_ns(now);
        while path.acks.any() && self.fits_ack() {
            let Some((ack, count)) = path.acks.take_head(path.recv_code(), now) else {
                break;
            };
            ctx.stats.ack_delay_max_ns = ctx.stats.ack_delay_max_ns.max(waited);
            if ctx.descheduled.by_thread {
                let worst = &mut ctx.stats.thread_ack_delay_max_ns;
                *worst = waited.max(*worst);
            }
            let acks = &path.acks;
            self.writer.push_ack(&ack, count, |m| acks.mask(&ack, m));
            self.acks += 1;
        }
    }

    pub(crate) fn add_ping(&mut self, conn: &mut Conn, at: usize) {
        let (lost, heard_ns) = (conn.is_unreached(), conn.life.heard_ns);
        let path = &conn.paths[at];
        let quiet = path.probing.quiet() >= QUIET_MAX;
        let wanted = path.probing.is_requested() || quiet;
        // On a stalled reliable path the peer may have sent the acks on another path.
        let stalls = path.waits() && path.pto.backoff() > 0;
        let stalls = stalls || wanted && conn.paths.iter().any(Path::asked_elsewhere);
        let path = &mut conn.paths[at];
        if wanted && self.control(&Frame::Ping, Some(FrameRef::Ping { padded: false })) {
            if path.probing.is_requested() {
                self.flags |= Header::FLAG_ACK_NOW;
            }
            if lost || stalls {
                self.flags |= Header::FLAG_EVERYWHERE;
            }
            if !lost {
                path.health.fill_probe(&mut self.writer);
            }
            if conn.session.validates && path.state() == PathState::Unproven {
                let filler = Frame::Pad {
                    len: 0,
                    head: PROBE_FILLER,
                };
                self.control(&filler, None);
            }
            path.stats.probes += 1;
            path.probing.on_sent(heard_ns);
        }
        path.acks.on_packet_built();
    }
}
