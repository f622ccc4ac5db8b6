//! Chunks of one root, as the root or a co-root holds them.

use super::acked::Acked;
use super::pieces;
use super::reachability::Doubt;
use super::retransmissions::Retransmissions;
use super::types::{Chunk, End};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use marline_wire::Gaps;

/// Members tracked individually per retransmitted chunk.
const REQUESTERS_MAX: usize = 4;

/// Recent retransmission of a chunk, and the members to which it went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    /// Time of sending or of the request.
    at: u64,
    to_all: bool,
    /// The chunk was multicast again, and is requested nevertheless.
    multicast_failed: bool,
    /// Number of retransmissions to members that request the chunk again.
    failures: u8,
    /// Members to which the chunk was sent separately so far, by number modulo 64.
    alone: u64,
    requesters: [u16; REQUESTERS_MAX],
    count: u8,
}

/// The bit of a member in [`Repair::alone`].
fn bit(member: u16) -> u64 {
    1 << (member % 64)
}

impl Repair {
    /// A retransmission to these members; only the first `REQUESTERS_MAX` are tracked.
    pub(super) fn to(at: u64, members: impl Iterator<Item = u16>) -> Repair {
        let mut repair = Repair {
            at,
            to_all: false,
            multicast_failed: false,
            failures: 0,
            alone: 0,
            requesters: [0; REQUESTERS_MAX],
            count: 0,
        };
        for member in members {
            repair.alone |= bit(member);
            if let Some(slot) = repair.requesters.get_mut(repair.count as usize) {
                *slot = member;
                repair.count += 1;
            }
        }
        repair
    }

    /// Records that the retransmission leaves at `now`.
    pub(super) fn leaves(&mut self, now: u64) {
        self.at = now;
    }

    fn has(&self, member: u16) -> bool {
        self.requesters[..self.count as usize].contains(&member)
    }
}

/// How a chunk is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// To all.
    All,
    /// To the member that requested it.
    Alone,
    /// To that member in pieces, since whole retransmissions did not arrive.
    Pieces,
}

impl Held {
    /// Handles a member's request for this chunk. `None`: a retransmission to the member is in
    /// flight.
    pub(super) fn ask(&mut self, now: u64, from: u16, hold_ns: u64, all_from: u8) -> Option<Again> {
        let all_from = all_from.clamp(1, REQUESTERS_MAX as u8);
        let recent = self.repair.filter(|repair| now < repair.at + hold_ns);
        // If multicasting the chunk again failed, perhaps only unicast reaches the requesting
        // members.
        let multicast_failed = self
            .repair
            .is_some_and(|r| r.multicast_failed || r.to_all && recent.is_none());
        // Other members may have requested it since then, each at a time of its own.
        let sent = |r: &Repair| recent.is_none() && (r.to_all || r.alone & bit(from) != 0);
        let alone = self.repair.map_or(0, |r| r.alone) | bit(from);
        let failures = self.repair.map_or(0, |r| r.failures + sent(&r) as u8);
        let failures = failures.min(pieces::PIECES_AFTER);
        let in_pieces = failures == pieces::PIECES_AFTER && self.repair.is_some_and(|r| sent(&r));
        let mut repair = match recent {
            Some(repair) if repair.to_all || repair.has(from) => return None,
            Some(repair) => repair,
            None => Repair::to(now, core::iter::empty()),
        };
        let slot = repair.requesters.get_mut(repair.count as usize);
        slot.into_iter().for_each(|slot| *slot = from);
        repair.count = (repair.count + 1).min(REQUESTERS_MAX as u8);
        let to_all = repair.count >= all_from && !multicast_failed;
        self.repair = Some(Repair {
            at: now,
            to_all,
            multicast_failed,
            failures,
            alone,
            ..repair
        });
        Some(match to_all {
            true => Again::All,
            false if in_pieces => Again::Pieces,
            false => Again::Alone,
        })
    }
}

/// Most doublings of the time until the next TAIL, which doubles after each TAIL that finds nothing
/// missing, up to `ASK_LATE_NS`: a TAIL after each short broadcast would double the broadcast's
/// cost.
const IDLE_TAILS_MAX: u32 = 5;
const ASK_LATE_NS: u64 = 2_000_000;

/// A broadcast of this member that is not completely sent.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) broadcast: u64,
    pub(super) handle: u32,
    pub(super) len: u64,
    /// Bytes cut into chunks so far.
    pub(super) cut: u64,
    /// Chunks are copied as they are sent.
    pub(super) copies: bool,
    /// The broadcast announces that the group is abandoned.
    pub(super) leaves: bool,
    /// A member that died before it had the whole broadcast.
    pub(super) dead: Option<u16>,
}

/// Location of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    /// In the memory of an operation.
    Lent(u32),
    /// In a retained copy.
    Copy,
}

/// A chunk not yet acknowledged by all members.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) chunk: Chunk,
    pub(super) bytes: Bytes,
    /// The rail on which the chunk was multicast; `None`: not multicast by this member.
    pub(super) network: Option<u8>,
    /// The chunk's retransmission, if there was one.
    pub(super) repair: Option<Repair>,
    /// Time at which it last left, whole or in pieces.
    pub(super) left_at: u64,
    /// Pieces that were sent so far, round and round.
    pub(super) turn: u16,
}

/// An own broadcast completely sent from borrowed memory.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) handle: u32,
    /// Number of the chunk after the broadcast's last chunk.
    pub(super) end: u64,
    pub(super) dead: Option<u16>,
}

/// A parity that is to be sent, or under construction.
#[derive(Debug)]
pub(super) struct Parity {
    pub(super) handle: u32,
    /// The parity's first chunk; `parity` is the number of covered chunks.
    pub(super) chunk: Chunk,
    /// The operation ends when the parity leaves.
    pub(super) ends: Option<End>,
    pub(super) due: bool,
}

/// The chunks of one root, as the root or a co-root holds them.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) posts: VecDeque<Post>,
    pub(super) left: VecDeque<Left>,
    pub(super) chunks: BTreeMap<u64, Held>,
    /// All chunks below are acknowledged by all members.
    pub(super) base: u64,
    /// Number of the next chunk.
    pub(super) next: u64,
    /// Progress of each member whose acknowledgements are collected here.
    pub(super) acked: Acked,
    /// Members that report that they receive no multicast.
    pub(super) unreachable: BTreeMap<u16, Doubt>,
    /// Time of the next question to members without multicast, after probes.
    pub(super) question_at: u64,
    /// True if a member lost much recently.
    pub(super) lossy: bool,
    /// Time of the last report of heavy loss.
    pub(super) lossy_at: u64,
    /// Members that are sent chunks in pieces, and until when.
    pub(super) in_pieces: BTreeMap<u16, u64>,
    pub(super) repairs: Retransmissions,
    pub(super) parity: Option<Parity>,
    pub(super) remind_at: u64,
    pub(super) pause_ns: u64,
    /// TAILs sent since the first chunk that waits for acknowledgement, or since the last advancing
    /// acknowledgement.
    pub(super) reminded: u32,
    /// Time of the last TAIL, until a member answers.
    pub(super) reminded_at: Option<u64>,
    /// TAILs sent since a member was last found to be missing something.
    pub(super) idle_tails: u32,
}

impl Sending {
    pub(super) fn new(part: impl Iterator<Item = u16>) -> Sending {
        Sending {
            posts: VecDeque::new(),
            left: VecDeque::new(),
            chunks: BTreeMap::new(),
            base: 0,
            next: 0,
            acked: Acked::new(part),
            unreachable: BTreeMap::new(),
            question_at: u64::MAX,
            lossy: false,
            lossy_at: 0,
            in_pieces: BTreeMap::new(),
            repairs: Retransmissions::default(),
            parity: None,
            remind_at: u64::MAX,
            pause_ns: 0,
            reminded: 0,
            reminded_at: None,
            idle_tails: 0,
        }
    }

    /// Delay of the next TAIL for copied chunks, for which no local operation waits. `usual`: the
    /// delay of other TAILs.
    pub(super) fn reminder_backoff_ns(&self, usual: u64) -> u64 {
        usual.max(ASK_LATE_NS.min(usual << self.idle_tails.min(IDLE_TAILS_MAX)))
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Counts TAILs anew if the last chunk is the only one without acknowledgement. With others the
    /// count goes on: one TAIL in a few is unicast, and chunks may follow each other faster.
    pub(super) fn begins_to_wait(&mut self) {
        if self.next <= self.base + 1 {
            self.reminded = 0;
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        let at = self.remind_at.min(self.question_at);
        (at < u64::MAX).then_some(at)
    }

    /// Returns whether there is no other member to which to send.
    pub(super) fn is_alone(&self) -> bool {
        self.acked.is_empty()
    }

    /// Returns whether members of the part receive no multicast, confirmed by repeated questions.
    pub(super) fn knows_of_unreachable(&self) -> bool {
        self.unreachable.values().any(Doubt::is_over)
    }

    /// Returns whether some members receive no multicast, and whether some have lost much since the
    /// last call.
    pub(super) fn take_news(&mut self) -> (bool, bool) {
        (
            self.knows_of_unreachable(),
            core::mem::take(&mut self.lossy),
        )
    }

    /// Members that have not acknowledged all chunks.
    pub(super) fn lagging(&self) -> impl Iterator<Item = u16> + '_ {
        self.acked.behind(self.next)
    }

    /// Operations that have not ended.
    pub(super) fn operations(&self) -> usize {
        let ends = self.parity.as_ref().is_some_and(|p| p.ends.is_some());
        self.posts.len() + self.left.len() + ends as usize
    }

    /// Chunks held.
    pub(super) fn held(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// Bytes of retained copies.
    pub(super) fn copied_bytes(&self) -> u64 {
        let copies = self.chunks.values().filter(|h| h.bytes == Bytes::Copy);
        copies.map(|h| h.chunk.len as u64).sum()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let chunks = self.chunks.len() * size_of::<(u64, Held)>();
        let repairs = self.repairs.heap_bytes();
        let posts = self.posts.capacity() * size_of::<Post>();
        let left = self.left.capacity() * size_of::<Left>();
        size_of::<Sending>() + self.acked.heap_bytes() + chunks + repairs + posts + left
    }

    pub(super) fn post(&mut self, post: Post) {
        self.posts.push_back(post);
    }

    pub(super) fn has_room(&self, window: u32) -> bool {
        self.next - self.base < window as u64
    }

    /// Returns whether a chunk is ready to send.
    pub(super) fn has_work(&self, window: u32) -> bool {
        let due = self.parity.as_ref().is_some_and(|parity| parity.due);
        due || !self.repairs.is_empty() || !self.posts.is_empty() && self.has_room(window)
    }

    /// Cuts the next unsent chunk of the first broadcast that is not completely sent.
    pub(super) fn cut(&mut self, root: u16, size: u32) -> Option<(u32, Held)> {
        let post = self.posts.front_mut()?;
        let len = (post.len - post.cut).min(size as u64);
        let last = post.cut + len == post.len;
        let chunk = Chunk {
            root,
            number: self.next,
            broadcast: post.broadcast,
            offset: post.cut,
            len: len as u32,
            total: post.len,
            parity: 0,
            piece: 0,
            asks: last && !post.copies,
            leaves: post.leaves,
        };
        post.cut += len;
        self.next += 1;
        let bytes = match post.copies {
            true => Bytes::Copy,
            false => Bytes::Lent(post.handle),
        };
        let held = Held {
            chunk,
            bytes,
            network: None,
            repair: None,
            left_at: 0,
            turn: 0,
        };
        Some((post.handle, held))
    }

    /// Adds a chunk to the parity under construction.
    pub(super) fn add_to_parity(&mut self, handle: u32, chunk: &Chunk, count: u8) {
        let last = chunk.offset + chunk.len as u64 == chunk.total;
        let parity = self.parity.get_or_insert(Parity {
            handle,
            chunk: Chunk {
                asks: false,
                leaves: false,
                ..*chunk
            },
            ends: None,
            due: false,
        });
        parity.chunk.parity += 1;
        parity.due = parity.chunk.parity == count || last && parity.chunk.parity > 1;
        if last && !parity.due {
            self.parity = None;
        }
    }

    /// Notes that the first broadcast was completely sent. Returns its operation if that ends here.
    pub(super) fn finish(&mut self, early: bool) -> Option<(u32, End)> {
        self.posts.front().filter(|post| post.cut == post.len)?;
        let post = self.posts.pop_front()?;
        let end = post.dead.map_or(End::Well, End::Dead);
        if !post.copies && !early {
            self.left.push_back(Left {
                handle: post.handle,
                end: self.next,
                dead: post.dead,
            });
            return None;
        }
        match &mut self.parity {
            Some(parity) if parity.due => {
                parity.ends = Some(end);
                None
            }
            _ => Some((post.handle, end)),
        }
    }

    /// Returns whether most of the chunks that a member requests left after the last report of
    /// heavy loss. Chunks that wait since then to leave again are no further loss.
    pub(super) fn lost_anew(&self, gaps: &Gaps) -> bool {
        let held = gaps.iter().filter_map(|number| self.chunks.get(&number));
        let (anew, before): (Vec<_>, Vec<_>) = held.partition(|h| h.left_at > self.lossy_at);
        !anew.is_empty() && anew.len() >= before.len()
    }

    /// A chunk is sent to one member, whole and, where it is known to need that, in pieces too:
    /// chance may have lost the whole chunks of a path that carries them.
    pub(super) fn send_to(&mut self, now: u64, number: u64, member: u16) {
        let pieces = self
            .in_pieces
            .get(&member)
            .is_some_and(|&until| now < until);
        self.repairs.add(number, member, 0);
        let held = self.chunks.get_mut(&number).filter(|_| pieces);
        let held = held.map(|held| (pieces::count(held.chunk.len), held));
        let Some((count, held)) = held.filter(|(count, _)| *count > 0) else {
            return;
        };
        for _ in 0..count.min(pieces::AT_ONCE) {
            let piece = held.turn % count + 1;
            held.turn = piece;
            self.repairs.add(number, member, piece);
        }
    }

    /// A member needs pieces, or did of late.
    pub(super) fn needs_pieces(&mut self, now: u64, member: u16) {
        self.in_pieces.insert(member, now + pieces::LAST_NS);
    }

    /// Drops a waiting parity if all members have all chunks that it covers. Returns the operation
    /// that waited for the parity.
    pub(super) fn drop_parity(&mut self) -> Option<(u32, End)> {
        let base = self.base;
        let over = |p: &&mut Parity| p.due && p.chunk.number + p.chunk.parity as u64 <= base;
        self.parity.as_mut().filter(over)?;
        let parity = self.parity.take()?;
        parity.ends.map(|end| (parity.handle, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks of one root with a broadcast of so many bytes, in chunks of 1,344.
    fn with_post(len: u64) -> Sending {
        let mut sending = Sending::new(1..5);
        sending.post(Post {
            broadcast: 0,
            handle: 0,
            len,
            cut: 0,
            copies: true,
            leaves: false,
            dead: None,
        });
        sending
    }

    /// Regression: where members asked in turn, each was sent the whole chunk without end, as only
    /// a member that asked twice in a row counted as one that was sent it in vain.
    #[test]
    fn members_that_ask_in_turn_are_sent_pieces() {
        let (_, mut held) = with_post(1_344).cut(0, 1_344).unwrap();
        let (hold_ns, pause_ns) = (20_000, 2_000_000);
        let mut asked = (0..16u16).map(|n| {
            let now = (n as u64 + 1) * pause_ns;
            held.ask(now, 1 + n % 4, hold_ns, REQUESTERS_MAX as u8)
        });
        let first: Vec<_> = asked.by_ref().take(4).collect();
        assert_eq!(first, [Some(Again::Alone); 4]);
        assert!(asked.skip(4).all(|again| again == Some(Again::Pieces)));
    }

    /// Regression: each request for chunks that waited to leave again counted as a further heavy
    /// loss, and the spacing of chunks grew to its bound for seconds.
    #[test]
    fn chunks_that_wait_to_leave_again_are_no_further_loss() {
        let mut sending = with_post(20 * 1_344);
        let mut gaps = Gaps::default();
        while let Some((_, mut held)) = sending.cut(0, 1_344).filter(|(_, held)| held.chunk.len > 0)
        {
            held.left_at = 10;
            gaps.push(held.chunk.number);
            sending.chunks.insert(held.chunk.number, held);
        }
        assert!(sending.chunks.len() == 20 && sending.lost_anew(&gaps));
        sending.lossy_at = 11;
        assert!(!sending.lost_anew(&gaps));
        for (number, left_anew) in [(9, false), (10, true)] {
            for held in sending.chunks.values_mut().take(number) {
                held.left_at = 12;
            }
            assert_eq!(sending.lost_anew(&gaps), left_anew);
        }
    }

    /// Regression: where many were lost by chance, members were sent pieces alone, of which each
    /// could be lost.
    #[test]
    fn members_that_are_sent_pieces_are_sent_the_whole_chunk_too() {
        let mut sending = with_post(1_344);
        let (_, held) = sending.cut(0, 1_344).unwrap();
        sending.chunks.insert(0, held);
        sending.needs_pieces(1, 2);
        sending.send_to(2, 0, 2);
        sending.send_to(2, 0, 3);
        let all = (0..=4)
            .map(|piece| (0, Some(2), piece))
            .chain([(0, Some(3), 0)]);
        let sent = core::iter::from_fn(|| sending.repairs.pop());
        assert!(sent.eq(all));
    }
}
