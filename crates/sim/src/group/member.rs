//! The part of a process in a group: the real group, its memory, and the bytes of its packets.

use super::keyed::Keyed;
use super::memory::{Memory, ALGORITHM};
use marline_checksum::{crc32c, sum};
use marline_proto::group::{Group, Packet, To};
use marline_wire::{Chunk, GroupHead, GroupPacket, GroupWriter};

/// The endpoint of a process.
pub(super) fn endpoint(proc: usize) -> (u64, u32) {
    (proc as u64 * 2 + 1, 3)
}

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    pub group: Group,
    pub head: GroupHead,
    pub me: u16,
    pub memory: Memory,
    /// When the member's program posts again.
    pub ready_at: u64,
    /// In a job with a key.
    pub keyed: Option<Keyed>,
}

impl Member {
    pub(super) fn new(group: Group, head: GroupHead, chunk: u32, ready_at: u64) -> Member {
        Member {
            group,
            me: head.member,
            memory: Memory::new((head.member, head.group), chunk),
            head,
            ready_at,
            keyed: None,
        }
    }

    /// Posts the next broadcast of the script.
    pub(super) fn post(&mut self, now: u64, (root, len): (u16, u64)) {
        let handle = self.memory.insert(now, (root, len));
        self.group.post(now, root, handle, len);
    }

    /// True if a timer of the group is due.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.group.next_deadline().is_some_and(|at| at <= now)
    }

    /// The bytes of a packet.
    pub(super) fn encode(&mut self, packet: &Packet) -> Result<Vec<u8>, String> {
        let mut head = self.head;
        if let To::All { network } = packet.to {
            head.network = network;
            head.flags = GroupHead::FLAG_MULTICAST;
        }
        let content = packet.content.as_ref();
        let load = content.map(|content| self.memory.payload(content));
        let load = load.transpose()?;
        let mut bytes = vec![0; 512];
        let to = match packet.to {
            To::All { .. } => None,
            To::Member(to) => Some(to),
        };
        let seal = self.keyed.as_mut().map(|keyed| keyed.seal(to));
        let mut writer = GroupWriter::with_seal(&mut bytes, seal);
        if !packet.frames.iter().all(|frame| writer.push(frame)) {
            return Err("too many frames".into());
        }
        let seeded = |chunk: &Chunk, bytes: &[u8]| sum(ALGORITHM, chunk.seed(head.group), bytes);
        let chunk = load
            .as_ref()
            .map(|(chunk, bytes)| (chunk, seeded(chunk, bytes)));
        let len = writer.finish(&head, chunk).ok_or("no room for the head")?;
        bytes.truncate(len);
        let crc = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        let tag = self.keyed.as_ref().map(|keyed| keyed.tag(&bytes));
        bytes.extend(load.iter().flat_map(|(_, payload)| payload));
        bytes.extend(tag.iter().flatten());
        Ok(bytes)
    }

    /// Takes packets of which the first names this group, or seems to: how many. With a key up to
    /// the first packet without the right tag.
    pub(super) fn take_batch<'a>(
        &mut self,
        now: u64,
        packets: impl Iterator<Item = GroupPacket<'a>>,
    ) -> Result<usize, String> {
        self.memory.now = now;
        let Some(keyed) = &mut self.keyed else {
            let tally = self.group.take_batch(now, packets, &mut self.memory);
            return Ok(tally.packets);
        };
        let right: Vec<_> = packets
            .take_while(|packet| keyed.is_right(packet))
            .collect();
        let tally = self
            .group
            .take_batch(now, right.iter().copied(), &mut self.memory);
        let taken = right[..tally.packets].iter();
        let old = taken
            .filter(|packet| !keyed.is_news(self.me, packet))
            .count();
        match tally.replayed < old as u64 {
            true => Err(format!(
                "member {} takes {old} packets that are not for it or came before, and refuses {}",
                self.me, tally.replayed
            )),
            false => Ok(tally.packets),
        }
    }
}
