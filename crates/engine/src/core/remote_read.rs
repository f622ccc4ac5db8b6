//! Rendezvous by RDMA reads of the sender's memory (see `marline_proto`'s `pull`): the lifetime of
//! access to memory.
//!
//! - Memory of a send is open to its peer from the request until the send ends, however it ends:
//!   the memory is closed first. Only contiguous memory that stays with the send is opened.
//! - Memory of a receive is registered before a read into it starts, and the read has ended or was
//!   aborted before the receive ends. A read that does not end has its rail drained.

use crate::api::EpId;
use crate::core::remote_write::lands_unseen;
use crate::core::unpack::EngineMemory;
use crate::core::Core;
use crate::memory::copy::{poison, sum_of};
use crate::memory::op_table::{OpTable, Pieces, SendOp};
use crate::memory::sums::{Owner, Part, Sums, AHEAD_MIN};
use crate::memory::tags::{seed_under, sum_key};
use crate::platform::system::System;
use crate::state::rails::{OutstandingRead, Rails, SummedRead};
use marline_auth::{Direction, HeadKeys, PacketKeys};
use marline_checksum::{Algorithm, SumKey};
use marline_proto::{AdvertisementOut, Event, Mutation, Node, Transmit};
use marline_rails::{LinkId, RailTx, Read, RemoteRead, RemoteWrite, SendOutcome, TxBuffers};

/// Timeout of a read in nanoseconds, plus the time that the bytes of this read and of the reads
/// before it take at 10 MB/s. Afterwards the read is given up together with its rail.
const READ_NS: u64 = 100_000_000;
/// Nanoseconds per byte, for the transfer time in the timeout.
const BYTE_NS: u64 = 100;
/// Time that a sleeping worker has to begin; after that the engine itself sums.
const LOOK_NS: u64 = 50_000;

/// If the packet just built advertises memory of sends whose requests are in it, opens that
/// memory and fills in keys and checksums. Also fills in checksums of further segments of other
/// sends.
#[inline]
pub(crate) fn fill_advertisement<T: RailTx>(
    node: &mut Node,
    rails: &mut Rails<T>,
    sends: &OpTable<SendOp>,
    first: &Transmit,
    keys: Option<&PacketKeys>,
) {
    while let Some(advertisement) = node.take_advertisement() {
        fill_segment(rails, sends, (first, keys), &advertisement);
    }
}

#[cold]
fn fill_segment<T: RailTx>(
    rails: &mut Rails<T>,
    sends: &OpTable<SendOp>,
    (first, keys): (&Transmit, Option<&PacketKeys>),
    advertisement: &AdvertisementOut,
) {
    let stays = |op: &&SendOp| op.log.is_none() && op.borrowed == 0 && op.serves.is_none();
    let op = sends.get(advertisement.handle).filter(stays);
    let known = rails
        .advertisements
        .get(&advertisement.handle)
        .map(|of| of.1);
    let total = advertisement.total as usize;
    let tx = &mut rails.list[advertisement.rail as usize].tx;
    let opened = op.and_then(|op| match advertisement.at {
        0 => Some((op, tx.advertise(op.pieces.whole(0, total)?, total)?)),
        _ => Some((op, known?)),
    });
    let (mut key, mut sum) = (0, 0);
    if let Some((op, opened)) = opened {
        rails
            .advertisements
            .insert(advertisement.handle, (advertisement.rail, opened));
        let algorithm = Algorithm::from_u8(first.algorithm).filter(|_| advertisement.summed);
        let sums = &mut rails.sums;
        let sum_in = |algorithm| sum_segment(sums, &op.pieces, advertisement, (algorithm, keys));
        (key, sum) = (opened, algorithm.map_or(0, sum_in));
    }
    let rail = &mut rails.list[first.rail];
    if let Some(buffer) = rail.buffer {
        let words = &mut rail.tx.buffer(buffer)[advertisement.sum_at - 8..advertisement.sum_at + 8];
        words[..8].copy_from_slice(&u64::to_le_bytes(key));
        words[8..].copy_from_slice(&u64::to_le_bytes(sum));
    }
}

/// The key of the sums of an inbound message.
fn sum_key_of(keys: &HeadKeys, node: &Node, inbound: u64) -> SumKey {
    let Some((peer, src_id, src_epoch)) = node.sender_of(inbound) else {
        return SumKey::default();
    };
    let of = Direction {
        src_id,
        src_epoch,
        dst_id: node.id(),
        dst_token: node.token(),
    };
    sum_key(keys.payloads_from(peer.0, &of))
}

/// The checksum of a segment. Workers compute those of the next segments while this one is read.
fn sum_segment(
    sums: &mut Sums,
    pieces: &Pieces,
    advertisement: &AdvertisementOut,
    (algorithm, keys): (Algorithm, Option<&PacketKeys>),
) -> u64 {
    let (offset, len) = (advertisement.at, advertisement.len as usize);
    let part = Part {
        of: Owner::Send(advertisement.handle),
        offset,
        len,
        algorithm,
        seed: advertisement.seed_of(offset, len),
    };
    let seed_of = |offset, len| advertisement.seed_of(offset, len);
    let sum = sums.take_ahead(
        &part,
        (advertisement.len, advertisement.total),
        pieces,
        seed_of,
    );
    let seed = seed_under(keys, part.seed);
    let own = || sum_of(pieces, (offset, len), algorithm, seed, true);
    sum.unwrap_or_else(|| sums.own(len, own))
}

/// The sender.
impl<S: System> Core<S> {
    /// Closes the memory of an ending send; afterwards no peer reads it.
    pub(crate) fn close_advertisement(&mut self, handle: u32) {
        if self.rails.advertisements.is_empty() || self.cfg.proto.errs(Mutation::KeepAdvertisement)
        {
            return;
        }
        if let Some((rail, key)) = self.rails.advertisements.remove(&handle) {
            self.rails[rail as usize].tx.deregister(key);
        }
    }

    /// Closes the memory of some sends; afterwards no peer reads it.
    pub(crate) fn close_advertisements_of(&mut self, which: impl Fn(&SendOp) -> bool) {
        let sends = &self.ops.sends;
        let of = |handle: &&u32| sends.get(**handle).is_none_or(&which);
        let handles: Vec<u32> = self
            .rails
            .advertisements
            .keys()
            .filter(of)
            .copied()
            .collect();
        handles
            .into_iter()
            .for_each(|handle| self.close_advertisement(handle));
    }
}

/// The receiver.
impl<S: System> Core<S> {
    /// Begins to read an advertised message.
    pub(crate) fn pull(&mut self, ep: EpId, event: &Event) {
        let &Event::PullWanted {
            inbound,
            handle,
            offset,
            total,
            at,
            len,
            rail,
            link,
            key,
            sum: (seed, algorithm),
        } = event
        else {
            return;
        };
        let (of, rail, len) = ((ep, inbound, at), rail as usize, len as usize);
        let place = (handle, offset, total as usize);
        let part_in = |algorithm| Part {
            of: Owner::Inbound(ep.0, inbound),
            offset: at,
            len,
            algorithm,
            seed,
        };
        let Some(into) = self.open_to_read((ep, inbound), place, rail) else {
            return self.pull_over(of, false);
        };
        self.rails.write_token += 1;
        let token = self.rails.write_token;
        let read = Read {
            key,
            into,
            at: at as usize,
            len,
            token,
        };
        let ahead = self.rails[rail].tx.given();
        let outcome = self.rails[rail].tx.read(LinkId(link), &read);
        if outcome != SendOutcome::Sent {
            return self.pull_over(of, false);
        }
        let reads = &mut self.rails[rail].reads;
        let before: usize = reads.iter().map(|read| read.len).sum();
        reads.push(OutstandingRead {
            token,
            of,
            len,
            place: (handle, offset + at),
            part: Algorithm::from_u8(algorithm)
                .filter(|algorithm| *algorithm != Algorithm::None)
                .map(part_in),
            completion_timeout_ns: READ_NS + (before + len) as u64 * BYTE_NS,
            since_ns: None,
            ahead,
        });
        if self.cfg.proto.errs(Mutation::PullEarly) {
            self.pull_over(of, true);
        }
    }

    /// Registers the destination of a read message if necessary, and returns its key.
    fn open_to_read(
        &mut self,
        (ep, inbound): (EpId, u64),
        (handle, offset, len): (u32, u64, usize),
        rail: usize,
    ) -> Option<u64> {
        let mut keys = self.rails.rkeys.get(&(ep.0, inbound)).into_iter().flatten();
        if let Some(&(_, key)) = keys.find(|key| key.0 == rail as u8) {
            return Some(key);
        }
        let op = self.ops.recvs.get(handle)?;
        let base = op.pieces.whole(offset, len)?;
        if lands_unseen(&self.rails[rail].tx.caps()) {
            poison(base, len, (self.random)().ok()?);
        }
        let key = self.rails[rail].tx.register(base, len)?;
        let keys = self.rails.rkeys.entry((ep.0, inbound)).or_default();
        keys.push((rail as u8, key));
        Some(key)
    }

    /// Handles the completion of a read.
    pub(crate) fn on_pulled(&mut self, now: u64, rail: usize, (token, came): (u64, bool)) {
        let reads = &mut self.rails[rail].reads;
        if let Some(at) = reads.iter().position(|read| read.token == token) {
            let read = reads.remove(at);
            if !came || !self.give_read(now, &read) {
                self.pull_over(read.of, came);
            }
        }
    }

    /// Gives read bytes to workers for summing; `false`: there are no workers, or it is not
    /// worthwhile.
    fn give_read(&mut self, now: u64, read: &OutstandingRead) -> bool {
        let (of, (handle, place)) = (read.of, read.place);
        let (Some(part), Some(op)) = (read.part, self.ops.recvs.get(handle)) else {
            return false;
        };
        let sums = &mut self.rails.sums;
        let long = part.len as u64 >= AHEAD_MIN;
        let given = long && sums.want_workers() && sums.give(part, &op.pieces, place);
        if given {
            let look_ns = now + LOOK_NS;
            self.rails.summed.push(SummedRead { of, part, look_ns });
        }
        given
    }

    /// Notifies nodes of reads whose bytes workers have summed, or have not begun to sum in time.
    pub(crate) fn end_sums(&mut self, now: u64) {
        let mut at = 0;
        while let Some(read) = self.rails.summed.get_mut(at) {
            let late = read.look_ns <= now;
            if self.rails.sums.is_under_way(&read.part, !late) {
                if late {
                    read.look_ns = now + LOOK_NS;
                }
                at += 1;
                continue;
            }
            let of = self.rails.summed.remove(at).of;
            self.pull_over(of, true);
        }
    }

    /// Notifies the node that a read has ended: no more bytes of it land.
    fn pull_over(&mut self, (ep, inbound, at): (EpId, u64, u64), came: bool) {
        let Some(endpoint) = self.dir.eps[ep.0 as usize].as_mut() else {
            return;
        };
        let key = match &endpoint.keys {
            Some(keys) => sum_key_of(keys, &endpoint.node, inbound),
            None => SumKey::default(),
        };
        let mut memory = EngineMemory {
            recvs: &self.ops.recvs,
            buffers: &mut self.buffers,
            rails: &mut self.rails,
            ep: ep.0,
            key,
        };
        endpoint.node.pull_over(0, (inbound, at), came, &mut memory);
    }

    /// Forgets the reads of an ending message.
    pub(crate) fn forget_reads(&mut self, ep: EpId, inbound: u64) {
        for rail in self.rails.list.iter_mut() {
            rail.reads
                .retain(|read| (read.of.0, read.of.1) != (ep, inbound));
        }
        let summed = &mut self.rails.summed;
        summed.retain(|read| (read.of.0, read.of.1) != (ep, inbound));
    }

    /// Fails the reads of a rail that was drained.
    pub(crate) fn fail_reads(&mut self, rail: usize) {
        for read in std::mem::take(&mut self.rails[rail].reads) {
            self.pull_over(read.of, false);
        }
    }
}
