//! One process's part in one group: the real machine, the memory of its operations, and the bytes
//! of its packets.

use crate::content::Content as Bytes;
use marline_checksum::{crc32c, sum, Algorithm};
use marline_proto::group::{Chunk, Content, End, Group, GroupEvent, Packet, Place, Rebuild, To};
use marline_wire::{GroupHead, GroupPacket, GroupWriter};
use std::collections::BTreeMap;

const ALGORITHM: Algorithm = Algorithm::Crc64Nvme;
/// Filled in where nothing was received.
const POISON: u8 = 0xa5;

/// An operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub memory: Vec<u8>,
    pub posted_at: u64,
    pub end: Option<(End, u64)>,
}

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub group: Group,
    pub head: GroupHead,
    pub me: u16,
    pub operations: Vec<Operation>,
    pub open: usize,
    early: BTreeMap<u64, Vec<u8>>,
    kept: BTreeMap<(u16, u64), Vec<u8>>,
    /// Broadcasts from here on are done another way.
    pub left_from: Option<u64>,
    /// When its program posts again.
    pub ready_at: u64,
    /// The chunk size, which all members share.
    chunk: usize,
}

/// Where the content of a broadcast begins.
pub(super) fn base(group: u64, broadcast: u64) -> u64 {
    group
        .wrapping_mul(7_919)
        .wrapping_add(broadcast.wrapping_mul(104_729))
}

impl Member {
    pub(super) fn new(group: Group, head: GroupHead, chunk: u32, ready_at: u64) -> Member {
        Member {
            group,
            me: head.member,
            head,
            operations: Vec::new(),
            open: 0,
            early: BTreeMap::new(),
            kept: BTreeMap::new(),
            left_from: None,
            ready_at,
            chunk: chunk as usize,
        }
    }

    /// Posts the next broadcast of the script.
    pub(super) fn post(&mut self, now: u64, (root, len): (u16, u64)) {
        let handle = self.operations.len();
        let mut memory = vec![POISON; len as usize];
        if root == self.me {
            Bytes::shared().copy(base(self.head.group, handle as u64), &mut memory);
        }
        self.operations.push(Operation {
            memory,
            posted_at: now,
            end: None,
        });
        self.open += 1;
        self.group.post(now, root, handle as u32, len);
    }

    /// Takes an event.
    pub(super) fn take_event(
        &mut self,
        now: u64,
        event: GroupEvent,
        script: &[(u16, u64)],
    ) -> Result<(), String> {
        match event {
            GroupEvent::Done { handle, end } => self.done(now, handle as usize, end, script),
            GroupEvent::Adopt { broadcast, handle } => {
                let early = self.early.remove(&broadcast);
                let early = early.ok_or_else(|| format!("nothing came early of {broadcast}"))?;
                self.operation(handle)?.memory = early;
                Ok(())
            }
            GroupEvent::Drop { broadcast } => {
                self.early.remove(&broadcast);
                Ok(())
            }
            GroupEvent::Forget { root, next } => {
                self.kept.retain(|&(of, n), _| of != root || n >= next);
                Ok(())
            }
            GroupEvent::NotCarried { from } => {
                self.left_from = Some(self.left_from.map_or(from, |before| before.min(from)));
                Ok(())
            }
        }
    }

    fn done(
        &mut self,
        now: u64,
        handle: usize,
        end: End,
        script: &[(u16, u64)],
    ) -> Result<(), String> {
        let (me, group) = (self.me, self.head.group);
        let operation = self.operations.get_mut(handle).ok_or("an end of nothing")?;
        if let Some(before) = operation.end.replace((end, now)) {
            return Err(format!(
                "operation {handle} ends twice: {before:?}, {end:?}"
            ));
        }
        self.open -= 1;
        if end == End::Well && script[handle].0 != me {
            let wrong = Bytes::shared().differs(base(group, handle as u64), &operation.memory);
            if let Some(at) = wrong {
                return Err(format!("wrong byte at {at} of operation {handle}"));
            }
        }
        // The memory is its owner's again.
        operation.memory = Vec::new();
        Ok(())
    }

    /// The memory of an operation that has not ended.
    fn operation(&mut self, handle: u32) -> Result<&mut Operation, String> {
        let operation = self
            .operations
            .get_mut(handle as usize)
            .ok_or("no such operation")?;
        match operation.end {
            Some(_) => Err(format!(
                "memory of operation {handle} is used after its end"
            )),
            None => Ok(operation),
        }
    }

    fn span(&mut self, handle: u32, chunk: &Chunk) -> Result<Vec<u8>, String> {
        let (from, to) = (
            chunk.offset as usize,
            chunk.offset as usize + chunk.len as usize,
        );
        let memory = &self.operation(handle)?.memory;
        Ok(memory
            .get(from..to)
            .ok_or("a chunk beyond its broadcast")?
            .to_vec())
    }

    /// The payload of a packet.
    fn payload(&mut self, content: &Content) -> Result<(Chunk, Vec<u8>), String> {
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
            Content::Kept(chunk) => {
                let kept = self.kept.get(&(chunk.root, chunk.number));
                let kept = kept.ok_or_else(|| format!("{chunk:?} was not kept"))?;
                Ok((chunk, kept.clone()))
            }
            Content::Parity { handle, chunk } => {
                let mut parity = vec![0; chunk.len as usize];
                for n in 0..chunk.parity as u64 {
                    let offset = chunk.offset + n * chunk.len as u64;
                    let len = (chunk.total - offset).min(chunk.len as u64) as u32;
                    let part = self.span(
                        handle,
                        &Chunk {
                            offset,
                            len,
                            ..chunk
                        },
                    )?;
                    parity.iter_mut().zip(part).for_each(|(p, b)| *p ^= b);
                }
                Ok((chunk, parity))
            }
            Content::Mark { .. } => Err("a mark is not a packet".into()),
        }
    }

    /// The bytes of a packet.
    pub(super) fn encode(&mut self, packet: &Packet) -> Result<Vec<u8>, String> {
        let mut head = self.head;
        if let To::All { lane } = packet.to {
            head.lane = lane;
            head.flags = GroupHead::FLAG_MULTICAST;
        }
        let load = packet.content.as_ref().map(|content| self.payload(content));
        let load = load.transpose()?;
        let mut bytes = vec![0; 512];
        let mut writer = GroupWriter::new(&mut bytes);
        if !packet.words.iter().all(|word| writer.push(word)) {
            return Err("too many words".into());
        }
        let seeded = |chunk: &Chunk, bytes: &[u8]| sum(ALGORITHM, chunk.seed(head.group), bytes);
        let chunk = load
            .as_ref()
            .map(|(chunk, bytes)| (chunk, seeded(chunk, bytes)));
        let len = writer.finish(&head, chunk).ok_or("no room for the head")?;
        bytes.truncate(len);
        let crc = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes.extend(load.iter().flat_map(|(_, payload)| payload));
        Ok(bytes)
    }

    /// Takes a packet that names this group, or seems to.
    pub(super) fn take_packet(&mut self, now: u64, packet: &GroupPacket<'_>) -> Result<(), String> {
        let Some(heard) = self.group.admit(&packet.head) else {
            return Ok(());
        };
        for word in packet.words() {
            self.group.handle_word(now, heard, &word);
        }
        let Some((chunk, sent_sum, payload)) = packet.chunk() else {
            return Ok(());
        };
        let right = sum(ALGORITHM, chunk.seed(packet.head.group), payload) == sent_sum;
        let (place, chunk, bytes) = if chunk.parity > 0 {
            // A damaged parity makes damaged chunks: it is not looked at.
            let rebuild = right.then(|| self.group.place_parity(now, heard, &chunk));
            let Some(rebuild) = rebuild.flatten() else {
                return Ok(());
            };
            let bytes = self.rebuild(&rebuild, payload)?;
            (rebuild.place, rebuild.chunk, bytes)
        } else {
            (
                self.group.place(now, heard, &chunk),
                chunk,
                payload.to_vec(),
            )
        };
        if self.write(place, &chunk, &bytes, right)? {
            self.group.commit(now, heard, &chunk, right);
        }
        Ok(())
    }

    /// Writes a chunk to its place; `false`: it has none.
    fn write(
        &mut self,
        place: Place,
        chunk: &Chunk,
        bytes: &[u8],
        right: bool,
    ) -> Result<bool, String> {
        let keeps = matches!(
            place,
            Place::Posted { keep: true, .. } | Place::Early { keep: true }
        );
        let Some(memory) = self.memory(place, chunk)? else {
            return Ok(false);
        };
        let at = chunk.offset as usize;
        let span = memory.get_mut(at..at + bytes.len());
        span.ok_or("a chunk beyond its memory")?
            .copy_from_slice(bytes);
        if keeps && right {
            self.kept.insert((chunk.root, chunk.number), bytes.to_vec());
        }
        Ok(true)
    }

    fn memory(&mut self, place: Place, chunk: &Chunk) -> Result<Option<&mut Vec<u8>>, String> {
        match place {
            Place::Posted { handle, .. } => Ok(Some(&mut self.operation(handle)?.memory)),
            Place::Early { .. } => {
                let new = || vec![POISON; chunk.total as usize];
                Ok(Some(self.early.entry(chunk.broadcast).or_insert_with(new)))
            }
            _ => Ok(None),
        }
    }

    /// Makes a chunk of a parity and its neighbours.
    fn rebuild(&mut self, rebuild: &Rebuild, parity: &[u8]) -> Result<Vec<u8>, String> {
        let Rebuild { place, chunk, span } = *rebuild;
        let size = self.chunk;
        let memory = self.memory(place, &chunk)?.ok_or("no place for a parity")?;
        let around = memory
            .get(span.0 as usize..span.1 as usize)
            .ok_or("a parity beyond")?;
        let mine = (chunk.offset - span.0) as usize / size;
        let mut bytes = parity.to_vec();
        for (_, other) in around.chunks(size).enumerate().filter(|(n, _)| *n != mine) {
            bytes
                .iter_mut()
                .zip(other)
                .for_each(|(byte, other)| *byte ^= other);
        }
        bytes.truncate(chunk.len as usize);
        Ok(bytes)
    }

    /// Bytes that wait in early buffers, that are kept of others' chunks, and of own ones.
    pub(super) fn buffered(&self) -> (u64, u64, u64) {
        let early = self.early.values().map(|b| b.len() as u64).sum();
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
