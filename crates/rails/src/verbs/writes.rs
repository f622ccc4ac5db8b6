//! Application memory: destinations of peers' writes and sources of our writes.

use super::send_queue::Read;
use crate::sys::verbs::{Domain, KeyedMemory, Operation, Region, Request, Sends};
use crate::sys::{gather_into, Errno};
use crate::{Piece, RailEvent, Write};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

/// Most pieces that a write reads in place; a write of more pieces reads a copy.
pub(super) const PIECES_MAX: usize = 16;
/// Minimum bytes of a part of an RDMA read; a read has at most `PIECES_MAX` parts.
const PULL_MIN: usize = 65_536;
/// Bytes of a bounce buffer: the longest write that the protocol makes.
const BOUNCE_LEN: usize = 65_536;
/// Unused bounce buffers that are retained.
const BOUNCES_KEPT: usize = 16;
/// Bounce buffers allocated in advance, for writes when no more memory can be registered: so many
/// such writes can be in flight.
const BOUNCES_MIN: usize = 4;
/// Bytes of a staging buffer, and the number of them: 16 MiB in all.
const STAGE_LEN: usize = 1 << 20;
/// Number of staging buffers.
const STAGES_MAX: usize = 16;
/// Bits of a key that hold the device's rkey.
const RKEY_BITS: u32 = 32;
/// Bits of a key above the rkey that hold the memory's offset within its page.
const START_BITS: u32 = 12;

/// The source memory of one write, registered until this is dropped.
#[derive(Default)]
pub(super) struct Source {
    _pieces: Vec<KeyedMemory>,
    copied: Option<Region>,
    /// The errno, if the memory itself could not be registered.
    refused: Option<Errno>,
}

/// The requests of one write, in order.
pub(super) type Requests = Vec<(Request, Operation)>;

/// The source memory of a write, and its requests.
pub(super) type Opened = (Source, Requests);

/// The start address of the memory under a key.
fn start_of(key: u64) -> u64 {
    key >> RKEY_BITS & ((1 << START_BITS) - 1)
}

/// The RDMA write operation for an offset under a key.
fn place(key: u64, offset: u64) -> Operation {
    Operation::Write {
        address: start_of(key) + offset,
        rkey: key as u32,
        immediate: None,
    }
}

/// Registered application memory and its substitutes.
pub(super) struct Writes {
    registered: HashMap<u64, KeyedMemory>,
    advertised: HashMap<u64, KeyedMemory>,
    /// Source memory of our own writes, in pieces.
    lent: HashMap<u64, Vec<KeyedMemory>>,
    /// Staging buffers in use, by key, and unused buffers.
    staged: HashMap<u64, Region>,
    stages: Vec<Region>,
    sources: HashMap<Read, Source>,
    /// Unused bounce buffers.
    bounces: Vec<Region>,
    /// Pending events.
    events: Vec<RailEvent>,
    /// Number of copies made so far.
    copies: u64,
    /// Keys issued so far: keys are unique.
    count: u64,
    /// Number of the last write call with immediates. The first number is taken from the clock.
    call: u32,
}

impl Writes {
    /// Allocates bounce buffers if the rail writes at all.
    pub(super) fn new(domain: &Arc<Domain>, writes: bool) -> Result<Writes, Errno> {
        let bounces =
            (0..BOUNCES_MIN * usize::from(writes)).map(|_| Region::new(domain, BOUNCE_LEN));
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Writes {
            registered: HashMap::new(),
            advertised: HashMap::new(),
            lent: HashMap::new(),
            staged: HashMap::new(),
            stages: Vec::new(),
            sources: HashMap::new(),
            bounces: bounces.collect::<Result<_, _>>()?,
            events: Vec::new(),
            copies: 0,
            count: 0,
            call: since.map_or(0, |since| since.as_micros() as u32),
        })
    }

    /// Records the result of a registration as an event.
    fn taken(&mut self, registered: Result<KeyedMemory, Errno>) -> Option<KeyedMemory> {
        self.events.push(match registered {
            Ok(_) => RailEvent::Registered,
            Err(errno) => RailEvent::Unregistered(errno),
        });
        registered.ok()
    }

    /// Takes the pending events.
    pub(super) fn events(&mut self) -> impl Iterator<Item = RailEvent> + '_ {
        self.events.drain(..)
    }

    /// Registers the source memory of later writes and returns its key. If registration fails, the
    /// key names no memory.
    pub(super) fn lend(&mut self, domain: &Arc<Domain>, pieces: &[Piece]) -> u64 {
        let open =
            |piece: &Piece| self.taken(KeyedMemory::to_be_read(domain, piece.base, piece.len));
        let lent: Option<Vec<_>> = match pieces.len() {
            ..=PIECES_MAX => pieces.iter().map(open).collect(),
            _ => None,
        };
        let key = self.next_key(0, 0);
        self.lent.insert(key, lent.unwrap_or_default());
        key
    }

    /// The lkey of a piece within memory registered under `source`.
    fn lent(&self, source: Option<u64>, piece: &Piece) -> Option<u32> {
        let mut lent = self.lent.get(&source?)?.iter();
        let around = lent.find(|memory| memory.holds(piece.base as u64, piece.len));
        around.map(KeyedMemory::lkey)
    }

    /// Registers memory for peers' writes: the key for peers.
    pub(super) fn register(
        &mut self,
        domain: &Arc<Domain>,
        base: *mut u8,
        len: usize,
    ) -> Option<u64> {
        let memory = self.taken(KeyedMemory::to_be_written(domain, base, len))?;
        let key = self.next_key(memory.start(), memory.rkey());
        self.registered.insert(key, memory);
        Some(key)
    }

    /// Registers memory for peers' reads: the key for peers.
    pub(super) fn advertise(
        &mut self,
        domain: &Arc<Domain>,
        base: *const u8,
        len: usize,
    ) -> Option<u64> {
        let memory = self.taken(KeyedMemory::to_be_advertised(domain, base, len))?;
        let key = self.next_key(memory.start(), memory.rkey());
        self.advertised.insert(key, memory);
        Some(key)
    }

    /// Takes a staging buffer for the write of a message: the key for peers.
    pub(super) fn stage(&mut self, domain: &Arc<Domain>, len: usize) -> Option<u64> {
        if len > STAGE_LEN || self.staged.len() >= STAGES_MAX {
            return None;
        }
        let region = match self.stages.pop() {
            Some(region) => region,
            None => Region::to_be_written(domain, STAGE_LEN).ok()?,
        };
        let key = self.next_key(0, region.rkey());
        self.staged.insert(key, region);
        Some(key)
    }

    /// Bytes of a staging buffer.
    pub(super) fn staged_bytes(&self, key: u64, offset: u64, len: usize) -> Option<&[u8]> {
        let region = self.staged.get(&key)?;
        let fits = offset <= region.len() as u64 && len as u64 <= region.len() as u64 - offset;
        fits.then(|| region.written(offset as usize, len))
    }

    fn next_key(&mut self, start: u64, rkey: u32) -> u64 {
        self.count += 1;
        let place = self.count << START_BITS | start;
        place << RKEY_BITS | u64::from(rkey)
    }

    /// Ends a registration: afterwards no peer writes or reads memory under the key.
    pub(super) fn deregister(&mut self, key: u64) {
        self.registered.remove(&key);
        self.advertised.remove(&key);
        self.lent.remove(&key);
        self.stages.extend(self.staged.remove(&key));
    }

    /// The requests of an RDMA read into registered memory; empty if it is not registered.
    pub(super) fn pull(&self, read: &crate::Read) -> Requests {
        let Some(memory) = self.registered.get(&read.into) else {
            return Requests::new();
        };
        let pieces = (read.len / PULL_MIN).clamp(1, PIECES_MAX);
        let piece = read.len.div_ceil(pieces).max(1);
        let request = |done: usize| {
            let at = read.at + done;
            let request = Request {
                name: 0,
                signalled: false,
                inline: false,
                address: memory.start() + at as u64,
                len: piece.min(read.len - done),
                lkey: memory.lkey(),
            };
            let operation = Operation::Read {
                address: start_of(read.key) + at as u64,
                rkey: read.key as u32,
            };
            (request, operation)
        };
        (0..read.len).step_by(piece).map(request).collect()
    }

    /// The number of a call for its immediates; reused only after a wraparound of the counter.
    pub(super) fn next_call(&mut self) -> u32 {
        self.call = self.call.wrapping_add(1);
        self.call
    }

    /// Registers the source memory of a write and makes its requests. With `copied`, or if
    /// registration fails, the source is a copy in a bounce buffer. `None` if no bounce buffer is
    /// free until another write ends.
    pub(super) fn open(
        &mut self,
        domain: &Arc<Domain>,
        write: &Write<'_>,
        copied: bool,
    ) -> Result<Option<Opened>, Errno> {
        let pieces = write.pieces.iter().filter(|piece| piece.len > 0).count();
        let mut refused = None;
        if !copied && pieces <= PIECES_MAX {
            match self.in_place(domain, write) {
                Ok(opened) => return Ok(Some(opened)),
                Err(errno) => refused = Some(errno),
            }
        }
        let len = write.pieces.iter().map(|piece| piece.len).sum();
        let new = |len| Region::new(domain, len);
        let region = match len {
            ..=BOUNCE_LEN => self.bounces.pop().or_else(|| new(BOUNCE_LEN).ok()),
            _ => Some(new(len)?),
        };
        Ok(region.map(|mut region| {
            gather_into(write.pieces, region.bytes_mut(0, len));
            let request = Sends::of_region(&region, 0, len);
            let source = Source {
                copied: Some(region),
                refused,
                ..Source::default()
            };
            (source, vec![(request, place(write.key, write.offset))])
        }))
    }

    /// Registers the source memory of a write and makes its requests, without a copy.
    fn in_place(&mut self, domain: &Arc<Domain>, write: &Write<'_>) -> Result<Opened, Errno> {
        let mut offset = write.offset;
        let (mut memory, mut requests) = (Vec::new(), Vec::new());
        for piece in write.pieces.iter().filter(|piece| piece.len > 0) {
            let lkey = match self.lent(write.source, piece) {
                Some(lkey) => lkey,
                None => {
                    memory.push(KeyedMemory::to_be_read(domain, piece.base, piece.len)?);
                    self.events.push(RailEvent::Registered);
                    memory[memory.len() - 1].lkey()
                }
            };
            let request = Request {
                name: 0,
                signalled: false,
                inline: false,
                address: piece.base as u64,
                len: piece.len,
                lkey,
            };
            requests.push((request, place(write.key, offset)));
            offset += piece.len as u64;
        }
        let source = Source {
            _pieces: memory,
            ..Source::default()
        };
        Ok((source, requests))
    }

    /// The number of the next write that reads a copy.
    pub(super) fn next_copy(&mut self) -> u64 {
        self.copies += 1;
        self.copies
    }

    /// Records a posted write, which reads `source` until it completes. Counts a failed
    /// registration here and not in `open`, since a write without room is retried.
    pub(super) fn posted(&mut self, read: Read, source: Source) {
        self.events
            .extend(source.refused.map(RailEvent::Unregistered));
        self.sources.insert(read, source);
    }

    /// Releases the source of a completed write.
    pub(super) fn over(&mut self, read: Read) {
        if let Some(source) = self.sources.remove(&read) {
            self.unused(source);
        }
    }

    /// Releases a source; retains its bounce buffer.
    pub(super) fn unused(&mut self, source: Source) {
        let bounce = source.copied.filter(|copy| copy.len() == BOUNCE_LEN);
        self.bounces
            .extend(bounce.filter(|_| self.bounces.len() < BOUNCES_KEPT));
    }
}
