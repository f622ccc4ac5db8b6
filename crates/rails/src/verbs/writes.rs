//! Memory of users: what peers write into, and what writes of ours read.

use super::send_queue::Read;
use crate::sys::verbs::{Domain, KeyedMemory, Operation, Region, Request, Sends};
use crate::sys::{gather_into, Errno};
use crate::{Piece, RailEvent, Write};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

/// Pieces that a write reads where they are; of more, a copy is read.
pub(super) const PIECES_MAX: usize = 16;
/// Bytes of a read's pieces, at least; there are as many as of a write at most.
const PULL_MIN: usize = 65_536;
/// Bytes of a bounce buffer: the longest write that the protocol makes.
const BOUNCE_LEN: usize = 65_536;
/// Bounce buffers that are kept while nothing reads them.
const BOUNCES_KEPT: usize = 16;
/// Bounce buffers that there are from the beginning, for when no more memory may be registered:
/// writes that are under way then.
const BOUNCES_MIN: usize = 4;
/// Bytes of a buffer that peers write a message into, and how many there are: 16 MiB in all.
const STAGE_LEN: usize = 1 << 20;
/// See above.
const STAGES_MAX: usize = 16;
/// Bits of a key that are the device's.
const RKEY_BITS: u32 = 32;
/// Bits above them: the place within a page at which the memory begins.
const START_BITS: u32 = 12;

/// The memory that one write reads, open to the device until this is dropped.
#[derive(Default)]
pub(super) struct Source {
    _pieces: Vec<KeyedMemory>,
    copied: Option<Region>,
    /// Why the memory itself could not be registered.
    refused: Option<Errno>,
}

/// Requests of one write, in order.
pub(super) type Requests = Vec<(Request, Operation)>;

/// The memory that a write reads, and its requests.
pub(super) type Opened = (Source, Requests);

/// Where the addresses of memory under a key begin.
fn start_of(key: u64) -> u64 {
    key >> RKEY_BITS & ((1 << START_BITS) - 1)
}

/// Where a write to a place under a key goes.
fn place(key: u64, offset: u64) -> Operation {
    Operation::Write {
        address: start_of(key) + offset,
        rkey: key as u32,
        immediate: None,
    }
}

/// Memory of users.
pub(super) struct Writes {
    registered: HashMap<u64, KeyedMemory>,
    offered: HashMap<u64, KeyedMemory>,
    /// Memory that our own writes read, in pieces.
    lent: HashMap<u64, Vec<KeyedMemory>>,
    /// Buffers that messages are written into, by their keys, and those that none is.
    staged: HashMap<u64, Region>,
    stages: Vec<Region>,
    sources: HashMap<Read, Source>,
    /// Registered buffers that nothing reads now.
    bounces: Vec<Region>,
    /// Events of memory of users, to be told.
    events: Vec<RailEvent>,
    /// Copies so far.
    copies: u64,
    /// Keys so far: none is given twice.
    count: u64,
    /// Calls with immediates so far, from where the clock stood.
    call: u32,
}

impl Writes {
    /// With bounce buffers, if the rail writes at all.
    pub(super) fn new(domain: &Arc<Domain>, writes: bool) -> Result<Writes, Errno> {
        let bounces =
            (0..BOUNCES_MIN * usize::from(writes)).map(|_| Region::new(domain, BOUNCE_LEN));
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Writes {
            registered: HashMap::new(),
            offered: HashMap::new(),
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

    /// Notes that memory of users was registered, or was not.
    fn taken(&mut self, registered: Result<KeyedMemory, Errno>) -> Option<KeyedMemory> {
        self.events.push(match registered {
            Ok(_) => RailEvent::Registered,
            Err(errno) => RailEvent::Unregistered(errno),
        });
        registered.ok()
    }

    /// Takes what is to be told.
    pub(super) fn events(&mut self) -> impl Iterator<Item = RailEvent> + '_ {
        self.events.drain(..)
    }

    /// Opens memory to our own writes: the key for these, under which there is nothing if it cannot
    /// be registered.
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

    /// The device's key of a piece that lies in memory which is open under a key.
    fn lent(&self, source: Option<u64>, piece: &Piece) -> Option<u32> {
        let mut lent = self.lent.get(&source?)?.iter();
        let around = lent.find(|memory| memory.holds(piece.base as u64, piece.len));
        around.map(KeyedMemory::lkey)
    }

    /// Opens memory to writes: the key for peers.
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

    /// Opens memory to reads: the key for peers.
    pub(super) fn offer(
        &mut self,
        domain: &Arc<Domain>,
        base: *const u8,
        len: usize,
    ) -> Option<u64> {
        let memory = self.taken(KeyedMemory::to_be_offered(domain, base, len))?;
        let key = self.next_key(memory.start(), memory.rkey());
        self.offered.insert(key, memory);
        Some(key)
    }

    /// Opens a buffer to writes of a message: the key for peers.
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

    /// Bytes that were written into such a buffer.
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

    /// Nothing lands in a user's memory under a key, or is read, after this.
    pub(super) fn deregister(&mut self, key: u64) {
        self.registered.remove(&key);
        self.offered.remove(&key);
        self.lent.remove(&key);
        self.stages.extend(self.staged.remove(&key));
    }

    /// The requests of a read into registered memory; none if it is not.
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

    /// The number of a call that writes with immediates: none is given again soon.
    pub(super) fn next_call(&mut self) -> u32 {
        self.call = self.call.wrapping_add(1);
        self.call
    }

    /// Opens the memory that a write reads to the device, and gives its requests: its own, or a
    /// copy if that is wanted or the memory cannot be registered. `None`: there is no room for a
    /// copy, until another write is over.
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

    /// The same of the memory itself.
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

    /// The number of a write that reads a copy.
    pub(super) fn next_copy(&mut self) -> u64 {
        self.copies += 1;
        self.copies
    }

    /// A write was posted: it reads this until it is over. Only now it counts if that is a copy,
    /// since a write without room is tried again and again.
    pub(super) fn posted(&mut self, read: Read, source: Source) {
        self.events
            .extend(source.refused.map(RailEvent::Unregistered));
        self.sources.insert(read, source);
    }

    /// A write is over.
    pub(super) fn over(&mut self, read: Read) {
        if let Some(source) = self.sources.remove(&read) {
            self.unused(source);
        }
    }

    /// Nothing reads this: a bounce buffer is kept.
    pub(super) fn unused(&mut self, source: Source) {
        let bounce = source.copied.filter(|copy| copy.len() == BOUNCE_LEN);
        self.bounces
            .extend(bounce.filter(|_| self.bounces.len() < BOUNCES_KEPT));
    }
}
