//! Operations of one endpoint and their memory, with ownership checks: what is written where, and
//! whether it was allowed.

use crate::content::Content;
use crate::truth::{Match, Truth};
use marline_checksum::{sum, Algorithm};
use marline_proto::{Landing, Memory, Payload};
use std::collections::HashMap;

/// What an operation is.
#[derive(Debug)]
pub enum OpKind {
    /// A send of this message.
    Send {
        /// Message.
        uid: u32,
    },
    /// A receive.
    Recv(Box<RecvOp>),
    /// A remote read.
    Read {
        /// Serving endpoint.
        server: u32,
        /// Where the right content starts.
        base: u64,
        /// Its memory.
        buf: Vec<u8>,
        /// Its length.
        len: u64,
        /// The key is wrong: it must be refused.
        bad: bool,
    },
    /// The answer to a peer's read.
    Serve {
        /// Where the content starts.
        base: u64,
        /// Reader.
        reader: u32,
    },
}

/// A receive.
#[derive(Debug, Default)]
pub struct RecvOp {
    /// Memory, made when first written.
    pub buf: Vec<u8>,
    /// Bytes of it.
    pub capacity: u64,
    /// Endpoint it names.
    pub source: Option<u32>,
    /// Whether it takes many messages.
    pub multi: bool,
    /// Messages that it must get, and whether each completion came.
    pub matches: Vec<(Match, bool)>,
    /// Taken back.
    pub cancelled: bool,
    /// A message into it (of many) was lost with its sender.
    pub bereft: bool,
}

/// An operation.
#[derive(Debug)]
pub struct Op {
    /// What it is.
    pub kind: OpKind,
    /// World time of its post.
    pub posted_ns: u64,
    /// World time of its end.
    pub done_ns: Option<u64>,
    /// Counts for the application's round.
    pub in_round: bool,
}

/// A payload that the packet at hand carries.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// Seed of its sum.
    pub seed: u64,
    /// Message (or read) number.
    pub number: u32,
    /// It answers a read.
    pub reply: bool,
    /// Offset in the message.
    pub offset: u64,
}

/// Takes payloads of one packet.
pub struct Lander<'a> {
    /// Operations of the endpoint.
    pub ops: &'a mut Vec<Op>,
    /// Bounce buffers by inbound name.
    pub bounces: &'a mut HashMap<u64, Vec<u8>>,
    /// What really happens.
    pub truth: &'a mut Truth,
    /// Contents.
    pub content: &'a Content,
    /// Payloads of the packet.
    pub notes: &'a [Note],
    /// Sender and receiver.
    pub pair: (u32, u32),
    /// First rule that was broken.
    pub wrong: Option<String>,
    /// Payloads taken.
    pub taken: u32,
}

impl Lander<'_> {
    fn fail(&mut self, text: String) {
        self.wrong.get_or_insert(text);
    }

    fn write(&mut self, landing: &Landing, bytes: &[u8]) {
        match *landing {
            Landing::Posted {
                handle,
                offset,
                copy,
            } => {
                if let Err(text) =
                    self.write_posted(handle, offset, &bytes[..copy.min(bytes.len())])
                {
                    self.fail(text);
                }
            }
            Landing::Bounce {
                inbound,
                total,
                offset,
            } => {
                let buf = self
                    .bounces
                    .entry(inbound)
                    .or_insert_with(|| vec![0; total as usize]);
                let (from, to) = (offset as usize, offset as usize + bytes.len());
                if buf.len() as u64 != total || to > buf.len() {
                    return self.fail(format!("bounce {inbound:#x}: {from}..{to} of {total}"));
                }
                buf[from..to].copy_from_slice(bytes);
            }
            Landing::Discard => {}
        }
    }

    fn write_posted(&mut self, handle: u32, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let op = self
            .ops
            .get_mut(handle as usize)
            .ok_or("write into no operation")?;
        if op.done_ns.is_some() {
            return Err(format!("write into finished operation {handle}"));
        }
        let end = offset + bytes.len() as u64;
        let (buf, capacity) = match &mut op.kind {
            OpKind::Recv(recv) => {
                let msgs = &self.truth.msgs;
                let used = |m: &Match| m.base + msgs[m.uid as usize].len.min(m.room);
                let done = |m: &&(Match, bool)| m.1 && offset < used(&m.0) && m.0.base < end;
                if let Some((m, _)) = recv.matches.iter().rev().find(done) {
                    return Err(format!("write into finished part of {handle}: {m:?}"));
                }
                (&mut recv.buf, recv.capacity)
            }
            OpKind::Read { buf, len, .. } => (buf, *len),
            _ => {
                return Err(format!(
                    "write into operation {handle}, which receives nothing"
                ));
            }
        };
        if end > capacity {
            return Err(format!(
                "write {offset}..{end} into {handle} of {capacity} bytes"
            ));
        }
        // Memory that nothing was written to does not exist.
        if buf.len() < end as usize {
            buf.resize(end as usize, 0);
        }
        buf[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    /// Whether the right bytes landed, by what was really sent.
    fn record(&mut self, payload: &Payload<'_>) {
        let Some(note) = self.notes.iter().find(|n| n.seed == payload.seed) else {
            return self.fail("payload with a seed that the packet does not have".into());
        };
        if note.reply {
            return;
        }
        let (number, offset) = (note.number, note.offset);
        let Some(uid) = self.truth.find(self.pair.0, self.pair.1, number) else {
            return self.fail(format!("message {number} was never sent"));
        };
        let msg = &mut self.truth.msgs[uid as usize];
        let right = self.content.slice(msg.base, offset, payload.bytes.len());
        if right != payload.bytes {
            return self.fail(format!(
                "wrong bytes passed their sum: message {uid} at {offset}"
            ));
        }
        msg.land(offset, payload.bytes.len() as u64);
    }

    fn endangers(&self, payload: &Payload<'_>) -> bool {
        let note = self
            .notes
            .iter()
            .find(|n| n.seed == payload.seed && !n.reply);
        let uid = note.and_then(|n| self.truth.find(self.pair.0, self.pair.1, n.number));
        uid.is_some_and(|uid| {
            let offset = note.map_or(0, |n| n.offset);
            self.truth.msgs[uid as usize].overlaps(offset, payload.bytes.len() as u64)
        })
    }
}

impl Memory for Lander<'_> {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        self.taken += 1;
        let algorithm = Algorithm::from_u8(payload.algorithm).unwrap_or_default();
        let right = sum(algorithm, payload.seed, payload.bytes) == payload.sum;
        if payload.verify_first {
            if right {
                self.write(landing, payload.bytes);
            }
        } else {
            if self.endangers(payload) && *landing != Landing::Discard {
                self.fail("unchecked write over good bytes".into());
            }
            self.write(landing, payload.bytes);
        }
        if right {
            self.record(payload);
        }
        right
    }
}
