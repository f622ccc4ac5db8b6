//! Memory of an endpoint under test: checks the ownership of the bytes at every write.

use marline_checksum::{sum, Algorithm};
use marline_proto::{Landing, Memory, Payload, PutEnd, RecvSpec, Source, WriteCheck, WrittenSum};
use std::collections::BTreeMap;

/// The specification of a receive for a claimed message.
pub(crate) fn taker(handle: u32, capacity: u64) -> RecvSpec {
    RecvSpec {
        handle,
        source: Source::Any,
        tag: Some((0, 0)),
        capacity,
        multi_min: None,
    }
}

/// A receive or a read.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// Its bytes, up to the last one written.
    pub bytes: Vec<u8>,
    /// Bytes of the buffer.
    pub capacity: u64,
    /// Bytes of a remote write that are already visible to the program.
    pub shown: Vec<bool>,
    /// Set when no more writes are allowed.
    pub done: bool,
}

/// Registered memory that peers may write into.
#[derive(Debug)]
pub(crate) struct Granted {
    /// Receive or read.
    pub handle: u32,
    /// Offset in its buffer.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// All memory of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Memories {
    /// Buffers by operation.
    pub buffers: BTreeMap<u32, Buffer>,
    /// Bounce buffers by inbound name, each as long as its message.
    pub bounces: BTreeMap<u64, Vec<u8>>,
    /// Registered memory by inbound name.
    pub granted: BTreeMap<u64, Granted>,
    /// Fixed verdict on every payload; `None`: the sum decides.
    pub verdict: Option<bool>,
}

impl Memories {
    /// Adds a buffer for operation `handle`.
    pub fn add(&mut self, handle: u32, capacity: u64) {
        let buffer = Buffer {
            capacity,
            ..Buffer::default()
        };
        assert!(self.buffers.insert(handle, buffer).is_none());
    }

    /// Ends an operation; each must end once.
    pub fn end(&mut self, handle: u32) {
        let granted = self
            .granted
            .values()
            .any(|g| g.handle == handle && g.len > 0);
        let buffer = self.buffers.get_mut(&handle).expect("ends what was posted");
        assert!(!granted, "operation {handle} ends before its keys");
        assert!(!buffer.done, "operation {handle} ends twice");
        buffer.done = true;
    }

    /// Frees a bounce buffer, if one was used, and checks that it has at least `len` bytes.
    pub fn free_bounce(&mut self, inbound: Option<u64>, len: u64) {
        let Some(inbound) = inbound else { return };
        let bytes = self.bounces.remove(&inbound);
        assert!(bytes.is_some_and(|b| b.len() as u64 >= len));
    }

    /// Stores the end of a remote write.
    pub fn show_end(&mut self, end: &PutEnd) {
        self.free_bounce(Some(end.inbound), end.len);
        self.show(end.handle, end.offset, &vec![0; end.len as usize], true);
    }

    /// Registers memory for an inbound message.
    pub fn grant(&mut self, inbound: u64, memory: Granted) {
        let buffer = &self.buffers[&memory.handle];
        assert!(!buffer.done, "grants memory of a finished operation");
        assert!(memory.offset + memory.len <= buffer.capacity, "{memory:?}");
        assert!(self.granted.insert(inbound, memory).is_none());
    }

    /// Stores received bytes.
    pub fn write(&mut self, landing: &Landing, bytes: &[u8]) {
        match *landing {
            Landing::Posted {
                handle,
                offset,
                copy,
            } => {
                let buffer = self
                    .buffers
                    .get_mut(&handle)
                    .expect("writes what was posted");
                assert!(!buffer.done, "write into finished operation {handle}");
                let bytes = &bytes[..copy];
                let end = offset + bytes.len() as u64;
                assert!(
                    end <= buffer.capacity || copy == 0,
                    "write behind the buffer"
                );
                if copy > 0 && buffer.bytes.len() < end as usize {
                    buffer.bytes.resize(end as usize, 0);
                }
                if copy > 0 {
                    buffer.bytes[offset as usize..end as usize].copy_from_slice(bytes);
                }
            }
            Landing::Bounce {
                inbound,
                total,
                offset,
            } => {
                let make = || vec![0; total as usize];
                let buffer = self.bounces.entry(inbound).or_insert_with(make);
                assert_eq!(buffer.len() as u64, total, "two lengths of one message");
                let at = offset as usize;
                buffer[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Landing::Discard => {}
        }
    }
}

impl Memory for Memories {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        let right = self.verdict.unwrap_or_else(|| {
            let algorithm = Algorithm::from_u8(payload.algorithm).expect("one of ours");
            sum(algorithm, payload.seed, payload.bytes) == payload.sum
        });
        if right || !payload.verify_first {
            self.write(landing, payload.bytes);
        }
        right
    }

    fn show(&mut self, handle: u32, offset: u64, bytes: &[u8], _: bool) {
        let buffer = self
            .buffers
            .get_mut(&handle)
            .expect("shows what was posted");
        assert!(!buffer.done, "shown in finished operation {handle}");
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        assert!(to as u64 <= buffer.capacity, "shown behind the buffer");
        let len = buffer.shown.len().max(to);
        buffer.shown.resize(len, false);
        let shown = &mut buffer.shown[from..to];
        assert!(
            !shown.contains(&true),
            "stored twice: {from}..{to} of {handle}"
        );
        shown.fill(true);
    }

    fn written(&mut self, landing: &Landing, written: &WrittenSum) -> WriteCheck {
        let &Landing::Posted { handle, offset, .. } = landing else {
            panic!("{landing:?} of a fragment that was written");
        };
        let end = offset + written.len as u64;
        let buffer = self
            .buffers
            .get_mut(&handle)
            .expect("writes what was posted");
        assert!(
            !buffer.done && end <= buffer.capacity,
            "{landing:?} {written:?}"
        );
        let right = self.verdict == Some(true);
        if right && buffer.bytes.len() < end as usize {
            buffer.bytes.resize(end as usize, 0);
        }
        match right {
            true => WriteCheck::Right,
            // Lost and damaged equally often.
            false if written.sum % 2 == 0 => WriteCheck::Missing,
            false => WriteCheck::Wrong,
        }
    }

    fn deregister(&mut self, inbound: u64) {
        self.granted.remove(&inbound);
    }
}
