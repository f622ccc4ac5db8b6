//! Tags of a member's packets, and what is known about the packets that arrived.

use marline_auth::{GroupKey, JobKey, JOB_KEY_LEN};
use marline_wire::{GroupHead, GroupPacket, GroupSeal, TO_ALL};
use std::collections::BTreeSet;

/// The key of all jobs.
const JOB_KEY: [u8; JOB_KEY_LEN] = [0x5a; JOB_KEY_LEN];

/// The key of a member's group, the number of its next packet, and the packets that arrived.
#[derive(Debug)]
pub(super) struct Keyed {
    key: GroupKey,
    next: u64,
    arrived: BTreeSet<(u16, u64)>,
    /// A deliberate mistake: no tag is checked.
    believes_all: bool,
}

impl Keyed {
    /// State of a member of the group with this head and these members.
    pub(super) fn new(head: &GroupHead, members: &[(u64, u32)], believes_all: bool) -> Keyed {
        Keyed {
            key: GroupKey::new(&JobKey::new(JOB_KEY), head.group, head.token, members),
            next: 0,
            arrived: BTreeSet::new(),
            believes_all,
        }
    }

    /// The seal of the next packet.
    pub(super) fn seal(&mut self, to: Option<u16>) -> GroupSeal {
        let number = self.next;
        self.next += 1;
        let to = to.unwrap_or(TO_ALL);
        GroupSeal { number, to }
    }

    /// The tag of a packet's head.
    pub(super) fn tag(&self, head: &[u8]) -> [u8; 8] {
        self.key.head_key().tag(&head[4..]).to_le_bytes()
    }

    /// Returns whether the packet's tag is right.
    pub(super) fn is_right(&self, packet: &GroupPacket<'_>) -> bool {
        let key = self.key.head_key();
        let tag = packet.tag();
        tag.is_some_and(|tag| self.believes_all || key.is_tag(packet.checked_head(), tag))
    }

    /// Notes a packet; returns whether it is for member `me` and had not arrived before.
    pub(super) fn is_news(&mut self, me: u16, packet: &GroupPacket<'_>) -> bool {
        let multicast = packet.head.flags & GroupHead::FLAG_MULTICAST != 0;
        let to = if multicast { TO_ALL } else { me };
        let mut new = |seal: GroupSeal| self.arrived.insert((packet.head.member, seal.number));
        packet.seal().is_some_and(|seal| seal.to == to && new(seal))
    }
}
