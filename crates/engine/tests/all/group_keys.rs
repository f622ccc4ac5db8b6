//! Multicast groups of engines with the key of a job: broadcasts arrive, packets without the right
//! tag, repeated and misdirected ones change nothing but a counter, and members with another key
//! make no group.

use crate::groups::{broadcast, close, engine, grouped, Member, TOKEN};
use crate::limit::Limit;
use marline_auth::{GroupKey, JobKey};
use marline_checksum::crc32c;
use marline_engine::stats::RailCounters;
use marline_engine::{Core, GroupError, GroupSpec};
use marline_rails::UdpAddr;
use marline_wire::{
    AckFlags, Address, GroupFrame, GroupHead, GroupSeal, GroupWriter, GROUP_HEAD_LEN, TO_ALL,
};
use std::net::UdpSocket;

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OTHER_KEY: &str = "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// Offset of the address in a descriptor, whose length is its second byte, and of the epoch.
const ADDRESS_AT: usize = 30;
const EPOCH_AT: usize = 2;
/// A number that no packet has reached when it is used, within the anti-replay window.
const FAR: u64 = 1_000;

/// An id that no other test's group has: groups of one id have one address.
fn group_id(test: u64) -> u64 {
    u64::from(std::process::id()) << 32 | 0xaced_0000 | test
}

fn members(test: u64, count: usize, faults: &'static str) -> Vec<Member> {
    let settings = [("rails", "lo"), ("key", KEY), ("faults", faults)];
    let engines = (0..count).map(|_| engine(&settings)).collect();
    grouped(engines, group_id(test))
}

/// Address and epoch of a member.
fn names(member: &Member) -> (Address, u32) {
    let descriptor = member.engine.member_descriptor(member.ep).unwrap();
    let address = &descriptor[ADDRESS_AT..][..descriptor[1] as usize];
    let epoch = descriptor[EPOCH_AT..].first_chunk().unwrap();
    (
        Address::decode(address).unwrap(),
        u32::from_le_bytes(*epoch),
    )
}

/// A stranger that knows the names of all members and has a key.
struct Stranger {
    key: GroupKey,
    head: GroupHead,
    socket: UdpSocket,
}

impl Stranger {
    /// In the name of member 0.
    fn new(test: u64, members: &[Member], key: &str) -> Stranger {
        let all: Vec<(Address, u32)> = members.iter().map(names).collect();
        let list: Vec<(u64, u32)> = all.iter().map(|(a, epoch)| (a.id, *epoch)).collect();
        let job = JobKey::from_hex(key).unwrap();
        let (src_id, src_epoch) = list[0];
        Stranger {
            key: GroupKey::new(&job, group_id(test), TOKEN, &list),
            head: GroupHead {
                algorithm: 1,
                group: group_id(test),
                token: TOKEN,
                member: 0,
                src_id,
                src_epoch,
                network: 0,
                flags: 0,
            },
            socket: UdpSocket::bind("127.0.0.1:0").unwrap(),
        }
    }

    /// Sends an acknowledgement of member 1's chunks to a member's port, which says whether
    /// multicast is lost. If it is, the group is abandoned.
    fn send(&self, to: &Member, seal: Option<GroupSeal>, unreachable: bool) {
        let mut bytes = [0; 256];
        let mut writer = GroupWriter::with_seal(&mut bytes, seal);
        assert!(writer.push(&GroupFrame::Ack {
            root: 1,
            next: 0,
            flags: AckFlags {
                unreachable,
                lossy: false,
            },
        }));
        let mut len = writer.finish(&self.head, None).unwrap();
        assert!(len > GROUP_HEAD_LEN);
        let crc = crc32c(&bytes[4..len]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        if seal.is_some() {
            let tag = self.key.head_key().tag(&bytes[4..len]);
            bytes[len..len + 8].copy_from_slice(&tag.to_le_bytes());
            len += 8;
        }
        let rail = names(to).0.rails().iter().next().unwrap();
        let port = UdpAddr::of(&rail).unwrap().port;
        self.socket
            .send_to(&bytes[..len], ("127.0.0.1", port))
            .unwrap();
    }
}

fn counters(member: &Member) -> RailCounters {
    let look = |core: &Core<_>| *core.rail_counters(0).unwrap();
    member.engine.inspect(look)
}

/// Frames that a member has handled.
fn heard(member: &Member) -> u64 {
    let look = |core: &Core<_>| core.group_stats(member.group).unwrap().heard;
    member.engine.inspect(look)
}

/// Waits until a counter of a member has this value.
fn counts(member: &Member, what: &str, value: u64, count: impl Fn(&RailCounters) -> u64) {
    let limit = Limit::begin();
    while count(&counters(member)) < value {
        limit.check(what);
        member.engine.progress();
    }
    assert_eq!(count(&counters(member)), value, "{what}");
}

#[test]
fn broadcasts_arrive_with_a_key() {
    let members = members(1, 4, "");
    broadcast(
        &members,
        &[1, 8, 1_344, 9_000, 65_537, 300_000, 0, 1_000_000],
        0,
    );
    broadcast(&members, &[8; 300], 20);
    for member in &members {
        member.engine.group_probe(member.group).unwrap();
        member.engine.progress();
    }
    broadcast(&members, &[100_000, 20], 0);
    for member in &members {
        let rail = counters(member);
        let bad = [rail.forged, rail.corrupt_heads, rail.truncated];
        assert_eq!((bad, rail.replayed), ([0; 3], 0));
    }
    close(members);
}

#[test]
fn broadcasts_with_a_key_arrive_despite_packet_faults() {
    let faults = "seed=5;tx:drop=0.05;tx:duplicate=0.05;tx:reorder=0.05";
    let members = members(2, 3, faults);
    broadcast(&members, &[100_000, 20, 65_536, 300_000, 7], 3);
    broadcast(&members, &[500; 200], 10);
    let replayed = |member| counters(member).replayed;
    assert!(members.iter().map(replayed).sum::<u64>() > 0, "duplicates");
    let forged = |member| counters(member).forged;
    assert_eq!(members.iter().map(forged).sum::<u64>(), 0);
    close(members);
}

/// Regression: bits that flip in the tag, which the CRC does not cover, were told as forgery.
#[test]
fn damaged_packets_with_a_key_are_not_forged() {
    let members = members(4, 3, "seed=5;tx:corrupt=0.3");
    broadcast(&members, &[8; 1_500], 10);
    let count = |of: fn(&RailCounters) -> u64| -> u64 {
        members.iter().map(|member| of(&counters(member))).sum()
    };
    assert!(count(|rail| rail.corrupt_heads) > 0);
    assert_eq!(count(|rail| rail.forged), 0);
    close(members);
}

#[test]
fn forged_repeated_and_misdirected_packets_change_nothing_but_a_counter() {
    let members = members(3, 3, "");
    broadcast(&members, &[8; 3], 0);
    let victim = &members[1];
    let [right, other] = [KEY, OTHER_KEY].map(|key| Stranger::new(3, &members, key));
    let seal = |number, to| Some(GroupSeal { number, to });
    let before = heard(victim);
    for n in 0..5 {
        right.send(victim, None, true);
        other.send(victim, seal(FAR + n, 1), true);
    }
    counts(victim, "packets without the right tag", 10, |rail| {
        rail.forged
    });
    right.send(victim, seal(FAR, 2), true);
    right.send(victim, seal(FAR, TO_ALL), true);
    counts(victim, "packets to others", 2, |rail| rail.replayed);
    assert_eq!(heard(victim), before, "none of them was handled");
    // The tool of this test works: with the key, a packet is handled, once.
    right.send(victim, seal(FAR, 1), false);
    right.send(victim, seal(FAR, 1), false);
    counts(victim, "a repeated packet", 3, |rail| rail.replayed);
    assert_eq!(heard(victim), before + 1);
    let rail = counters(victim);
    assert_eq!((rail.forged, rail.wrong_token), (10, 0));
    broadcast(&members, &[8; 200], 0); // no member has left
    close(members);
}

#[test]
fn members_with_another_key_make_no_group() {
    let keys = [Some(KEY), Some(OTHER_KEY), None];
    let engines = keys.map(|key| {
        let key = key.map(|key| ("key", key));
        let settings: Vec<_> = [("rails", "lo")].into_iter().chain(key).collect();
        engine(&settings)
    });
    let descriptor = |at: usize| engines[at].0.member_descriptor(engines[at].1).unwrap();
    for (me, other) in [(0, 1), (0, 2), (2, 0)] {
        let both = [descriptor(me), descriptor(other)];
        let spec = GroupSpec {
            id: group_id(4),
            token: TOKEN,
            me: 0,
            descriptors: &[&both[0], &both[1]],
        };
        let opened = engines[me].0.group_open(engines[me].1, &spec);
        assert_eq!(opened, Err(GroupError::NoNetwork), "{me} and {other}");
    }
    for (engine, ep, _) in engines {
        engine.ep_close(ep);
        engine.close();
    }
}
