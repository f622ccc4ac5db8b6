//! Memory of users: what peers write into, and what writes of ours read.

use super::send_queue::Read;
use crate::sys::verbs::{Domain, KeyedMemory, Operation, Region, Request, Sends};
use crate::sys::{gather, gather_into, Errno};
use crate::Write;
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
}

/// Requests of one write, in order.
pub(super) type Requests = Vec<(Request, Operation)>;

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
    /// Buffers that messages are written into, by their keys, and those that none is.
    staged: HashMap<u64, Region>,
    stages: Vec<Region>,
    sources: HashMap<Read, Source>,
    /// Registered buffers that nothing reads now.
    bounces: Vec<Region>,
    /// Copies so far.
    copies: u64,
    /// Keys so far: none is given twice.
    count: u64,
    /// Calls with immediates so far, from where the clock stood.
    call: u32,
}

impl Writes {
    pub(super) fn new() -> Writes {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Writes {
            registered: HashMap::new(),
            offered: HashMap::new(),
            staged: HashMap::new(),
            stages: Vec::new(),
            sources: HashMap::new(),
            bounces: Vec::new(),
            copies: 0,
            count: 0,
            call: since.map_or(0, |since| since.as_micros() as u32),
        }
    }

    /// Opens memory to writes: the key for peers.
    pub(super) fn register(
        &mut self,
        domain: &Arc<Domain>,
        base: *mut u8,
        len: usize,
    ) -> Option<u64> {
        let memory = KeyedMemory::to_be_written(domain, base, len).ok()?;
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
        let memory = KeyedMemory::to_be_offered(domain, base, len).ok()?;
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

    /// Opens what a write reads to the device, and gives its requests in order.
    pub(super) fn open(
        domain: &Arc<Domain>,
        write: &Write<'_>,
    ) -> Result<(Source, Requests), Errno> {
        let pieces = write.pieces.iter().filter(|piece| piece.len > 0);
        if pieces.clone().count() > PIECES_MAX {
            let bytes = gather(write.pieces);
            return Writes::copied(domain, write.key, write.offset, &bytes);
        }
        let mut offset = write.offset;
        let (mut memory, mut requests) = (Vec::new(), Vec::new());
        for piece in pieces {
            let read = KeyedMemory::to_be_read(domain, piece.base, piece.len)?;
            let request = Request {
                name: 0,
                signalled: false,
                inline: false,
                address: piece.base as u64,
                len: piece.len,
                lkey: read.lkey(),
            };
            requests.push((request, place(write.key, offset)));
            offset += piece.len as u64;
            memory.push(read);
        }
        let source = Source {
            _pieces: memory,
            ..Source::default()
        };
        Ok((source, requests))
    }

    /// A registered buffer to copy a write into, if one is left over.
    pub(super) fn bounce(&mut self) -> Option<Region> {
        self.bounces.pop()
    }

    /// The same for a write that is copied into such a buffer, or a new one.
    pub(super) fn staged(
        domain: &Arc<Domain>,
        bounce: Option<Region>,
        write: &Write<'_>,
    ) -> Result<(Source, Requests), Errno> {
        let len = write.pieces.iter().map(|piece| piece.len).sum();
        if len > BOUNCE_LEN {
            return Writes::open(domain, write);
        }
        let mut region = match bounce {
            Some(region) => region,
            None => Region::new(domain, BOUNCE_LEN)?,
        };
        gather_into(write.pieces, region.bytes_mut(0, len));
        Ok(Writes::of_copy(region, len, write.key, write.offset))
    }

    /// The same for a write from a copy of `bytes`.
    pub(super) fn copied(
        domain: &Arc<Domain>,
        key: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(Source, Requests), Errno> {
        let mut region = Region::new(domain, bytes.len())?;
        region.bytes_mut(0, bytes.len()).copy_from_slice(bytes);
        Ok(Writes::of_copy(region, bytes.len(), key, offset))
    }

    fn of_copy(region: Region, len: usize, key: u64, offset: u64) -> (Source, Requests) {
        let request = Sends::of_region(&region, 0, len);
        let source = Source {
            copied: Some(region),
            ..Source::default()
        };
        (source, vec![(request, place(key, offset))])
    }

    /// The number of a write that reads a copy.
    pub(super) fn next_copy(&mut self) -> u64 {
        self.copies += 1;
        self.copies
    }

    /// A write was posted: it reads this until it is over.
    pub(super) fn posted(&mut self, read: Read, source: Source) {
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
