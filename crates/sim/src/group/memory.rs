//! The memory of one member: of its operations, of chunks that arrived early, and of chunks that it
//! keeps for others.

use crate::base::content::Content as Bytes;
use marline_checksum::{sum, Algorithm};
use marline_proto::group::{Chunk, Content, End, GroupEvent, GroupOwner, Load, Place, Rebuild};
use std::collections::BTreeMap;

pub(super) const ALGORITHM: Algorithm = Algorithm::Crc64Nvme;
/// Filler of memory where nothing was received.
const POISON: u8 = 0xa5;

/// An operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub memory: Vec<u8>,
    pub posted_at: u64,
    pub end: Option<(End, u64)>,
    /// Times in ns at which new bytes arrived.
    pub news_at: Vec<u64>,
    /// The operation receives; otherwise it is the root's.
    receives: bool,
}

/// Chunks of a broadcast that was not posted yet.
#[derive(Debug)]
struct Early {
    bytes: Vec<u8>,
    /// Ranges of bytes that have arrived, in order of arrival.
    parts: Vec<(usize, usize)>,
    /// Ranges of arrived bytes that are correct: from, to.
    here: BTreeMap<usize, usize>,
}

impl Early {
    /// Records that a range is correct; parts of it may have arrived before, as pieces.
    fn add(&mut self, from: usize, to: usize) {
        self.remove(from, to);
        self.here.insert(from, to);
    }

    /// Records that a range is not correct, or no longer.
    fn remove(&mut self, from: usize, to: usize) {
        self.here.retain(|at, _| !(from..to).contains(at));
    }
}

/// The memory of one member, and its operations.
#[derive(Debug)]
pub(super) struct Memory {
    /// Virtual time in ns.
    pub now: u64,
    pub operations: Vec<Operation>,
    /// Operations that have not ended.
    pub open: usize,
    /// From this broadcast on, broadcasts are done another way.
    pub left_from: Option<u64>,
    /// Events that were taken and are not in the trace yet.
    pub events: Vec<GroupEvent>,
    /// Operations whose ends are due, and their results.
    ending: Vec<(u32, End)>,
    early: BTreeMap<u64, Early>,
    kept: BTreeMap<(u16, u64), Vec<u8>>,
    /// The first promise that was broken.
    broken: Option<String>,
    me: u16,
    group: u64,
    /// The chunk size, which all members share.
    chunk: usize,
}

/// Where the content of a broadcast begins.
fn base(group: u64, broadcast: u64) -> u64 {
    group
        .wrapping_mul(7_919)
        .wrapping_add(broadcast.wrapping_mul(104_729))
}

impl Memory {
    pub(super) fn new((me, group): (u16, u64), chunk: u32) -> Memory {
        Memory {
            now: 0,
            operations: Vec::new(),
            open: 0,
            left_from: None,
            events: Vec::new(),
            ending: Vec::new(),
            early: BTreeMap::new(),
            kept: BTreeMap::new(),
            broken: None,
            me,
            group,
            chunk: chunk as usize,
        }
    }

    /// Adds an operation; returns its handle.
    pub(super) fn insert(&mut self, now: u64, (root, len): (u16, u64)) -> u32 {
        let handle = self.operations.len();
        let mut memory = vec![POISON; len as usize];
        let receives = root != self.me;
        if !receives {
            Bytes::shared().copy(base(self.group, handle as u64), &mut memory);
        }
        self.operations.push(Operation {
            memory,
            posted_at: now,
            end: None,
            news_at: Vec::new(),
            receives,
        });
        self.open += 1;
        handle as u32
    }

    /// Ends the operations whose ends were reported as events. Fails if a promise was broken.
    pub(super) fn end_operations(&mut self, now: u64) -> Result<(), String> {
        for (handle, end) in std::mem::take(&mut self.ending) {
            self.done(now, handle as usize, end)?;
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    fn done(&mut self, now: u64, handle: usize, end: End) -> Result<(), String> {
        let operation = self.operations.get_mut(handle).ok_or("an end of nothing")?;
        if let Some(before) = operation.end.replace((end, now)) {
            return Err(format!(
                "operation {handle} ends twice: {before:?}, {end:?}"
            ));
        }
        self.open -= 1;
        if end == End::Well && operation.receives {
            let wrong = Bytes::shared().differs(base(self.group, handle as u64), &operation.memory);
            if let Some(at) = wrong {
                return Err(format!("wrong byte at {at} of operation {handle}"));
            }
        }
        // The memory belongs to its owner again.
        operation.memory = Vec::new();
        Ok(())
    }

    /// The memory of an operation that has not ended.
    fn operation(&mut self, handle: u32) -> Result<&mut Vec<u8>, String> {
        let operation = self
            .operations
            .get_mut(handle as usize)
            .ok_or("no such operation")?;
        match operation.end {
            Some(_) => Err(format!(
                "memory of operation {handle} is used after its end"
            )),
            None => Ok(&mut operation.memory),
        }
    }

    fn span(&mut self, handle: u32, chunk: &Chunk) -> Result<Vec<u8>, String> {
        let (at, len) = (chunk.offset as usize, chunk.len as usize);
        let span = self.operation(handle)?.get(at..at + len);
        Ok(span.ok_or("a chunk beyond its broadcast")?.to_vec())
    }

    /// The payload of a packet.
    pub(super) fn payload(&mut self, content: &Content) -> Result<(Chunk, Vec<u8>), String> {
        match *content {
            Content::Own {
                handle,
                chunk,
                keep,
            } => {
                let bytes = self.span(handle, &chunk)?;
                if keep {
                    self.kept.insert((chunk.root, chunk.number), bytes.clone());
                }
                Ok((chunk, bytes))
            }
            Content::Retained(chunk) => {
                let kept = self.kept.get(&(chunk.root, chunk.number));
                let kept = kept.ok_or_else(|| format!("{chunk:?} was not kept"))?;
                let at = chunk.within() as usize;
                let piece = kept.get(at..at + chunk.len as usize);
                Ok((chunk, piece.ok_or("a piece beyond its chunk")?.to_vec()))
            }
            Content::Parity { handle, chunk } => {
                let mut parity = vec![0; chunk.len as usize];
                for n in 0..chunk.parity as u64 {
                    let offset = chunk.offset + n * chunk.len as u64;
                    let len = (chunk.total - offset).min(chunk.len as u64) as u32;
                    let part = Chunk {
                        offset,
                        len,
                        ..chunk
                    };
                    let part = self.span(handle, &part)?;
                    parity.iter_mut().zip(part).for_each(|(p, b)| *p ^= b);
                }
                Ok((chunk, parity))
            }
            Content::Mark { .. } => Err("a mark is not a packet".into()),
        }
    }

    /// The bytes of a place, from one offset to another, for the caller to write.
    fn place(
        &mut self,
        place: Place,
        chunk: &Chunk,
        (from, to): (usize, usize),
    ) -> Result<Option<&mut [u8]>, String> {
        let all = match place {
            Place::Posted { handle, .. } => self.operation(handle)?,
            Place::Early { .. } => {
                let early = self.early.entry(chunk.broadcast);
                let early = early.or_insert_with(|| Early {
                    bytes: vec![POISON; chunk.total as usize],
                    parts: Vec::new(),
                    here: BTreeMap::new(),
                });
                early.parts.push((from, to));
                &mut early.bytes
            }
            _ => return Ok(None),
        };
        let span = all.get_mut(from..to);
        span.map(Some).ok_or("a chunk beyond its memory".into())
    }

    /// The bytes of a chunk are right, and in place.
    fn keep(&mut self, place: Place, chunk: &Chunk, bytes: &[u8]) {
        if let Place::Early { .. } = place {
            let early = self.early.get_mut(&chunk.broadcast);
            let (from, to) = (
                chunk.offset as usize,
                chunk.offset as usize + chunk.len as usize,
            );
            early.into_iter().for_each(|early| early.add(from, to));
        }
        let keeps = matches!(
            place,
            Place::Posted { keep: true, .. } | Place::Early { keep: true }
        );
        if keeps {
            self.kept.insert((chunk.root, chunk.number), bytes.to_vec());
        }
    }

    fn note_news(&mut self, place: Place) {
        let Place::Posted { handle, .. } = place else {
            return;
        };
        if let Some(operation) = self.operations.get_mut(handle as usize) {
            operation.news_at.push(self.now);
        }
    }

    fn make(&mut self, rebuild: &Rebuild, parity: &[u8]) -> Result<(), String> {
        let Rebuild { place, chunk, span } = *rebuild;
        let (from, to, size) = (span.0 as usize, span.1 as usize, self.chunk);
        let all = self.place(place, &chunk, (from, to))?;
        let all = all.ok_or("no place for a parity")?;
        let at = chunk.offset as usize - from;
        let mut bytes = parity.to_vec();
        for (_, other) in all
            .chunks(size)
            .enumerate()
            .filter(|(n, _)| *n != at / size)
        {
            bytes
                .iter_mut()
                .zip(other)
                .for_each(|(byte, other)| *byte ^= other);
        }
        bytes.truncate(chunk.len as usize);
        let mine = all.get_mut(at..at + bytes.len());
        mine.ok_or("a parity beyond its memory")?
            .copy_from_slice(&bytes);
        self.keep(place, &chunk, &bytes);
        Ok(())
    }

    fn adopt(&mut self, broadcast: u64, handle: u32) -> Result<(), String> {
        let early = self.early.remove(&broadcast);
        let early = early.ok_or_else(|| format!("nothing came early of {broadcast}"))?;
        let memory = self.operation(handle)?;
        for (from, to) in early.parts {
            let whole = "what came early is longer than its operation";
            let place = memory.get_mut(from..to).ok_or(whole)?;
            place.copy_from_slice(&early.bytes[from..to]);
        }
        Ok(())
    }

    /// Notes a broken promise; only the first one is reported.
    fn noted<T>(&mut self, result: Result<T, String>) -> Option<T> {
        let text = match result {
            Ok(value) => return Some(value),
            Err(text) => text,
        };
        self.broken.get_or_insert(text);
        None
    }

    /// Bytes in early buffers, bytes kept of other roots' chunks, and bytes kept of own chunks.
    pub(super) fn buffered(&self) -> (u64, u64, u64) {
        let right = self.early.values().flat_map(|early| &early.here);
        let early = right.map(|(from, to)| (to - from) as u64).sum();
        let of = |own: bool| {
            let kept = self
                .kept
                .iter()
                .filter(move |((root, _), _)| (*root == self.me) == own);
            kept.map(|(_, bytes)| bytes.len() as u64).sum::<u64>()
        };
        (early, of(false), of(true))
    }
}

impl GroupOwner for Memory {
    fn sum(&self, algorithm: u8, seed: u64, bytes: &[u8]) -> Option<u64> {
        Some(sum(Algorithm::from_u8(algorithm)?, seed, bytes))
    }

    fn land(&mut self, place: Place, chunk: &Chunk, load: &Load<'_>) -> Option<bool> {
        let (at, bytes) = (chunk.offset as usize, load.payload);
        let span = self.place(place, chunk, (at, at + bytes.len()));
        let landed = span.map(|span| span.map(|span| span.copy_from_slice(bytes)).is_some());
        let right = self.is_right(load);
        let lands = self.noted(landed).is_some_and(|landed| landed);
        if lands && right {
            self.keep(place, chunk, bytes);
            self.note_news(place);
        } else if let Some(early) = self.early.get_mut(&chunk.broadcast) {
            early.remove(at, at + bytes.len());
        }
        lands.then_some(right)
    }

    fn rebuild(&mut self, rebuild: &Rebuild, parity: &[u8]) -> Option<()> {
        let made = self.make(rebuild, parity);
        self.noted(made)
    }

    fn take_event(&mut self, event: GroupEvent) {
        self.events.push(event);
        match event {
            GroupEvent::Done { handle, end } => self.ending.push((handle, end)),
            GroupEvent::Adopt { broadcast, handle } => {
                let adopted = self.adopt(broadcast, handle);
                self.noted(adopted);
            }
            GroupEvent::Drop { broadcast } => {
                self.early.remove(&broadcast);
            }
            GroupEvent::Forget { root, next } => {
                self.kept.retain(|&(of, n), _| of != root || n >= next);
            }
            GroupEvent::NotCarried { from } => {
                self.left_from = Some(self.left_from.map_or(from, |before| before.min(from)));
            }
        }
    }
}
