//! Large groups: how a broadcast's time, packets and memory grow with the members.

use super::setup::{GroupPacketFaults, GroupSetup};
use super::world::GroupWorld;
use marline_proto::group::Scheme;

/// The schemes that are compared, by name.
pub const SCHEMES: [(&str, Scheme); 7] = [
    ("original", Scheme::ORIGINAL),
    ("basic", Scheme::BASIC),
    ("window", Scheme::WINDOW),
    ("co-root2", Scheme::CO_ROOT),
    ("aggregate10", Scheme::AGGREGATE),
    ("nack", Scheme::NACK),
    // The default for the number of members, which has co-roots in large groups.
    ("usual", Scheme::NACK),
];

/// A row of the table: broadcasts from one root to all members, one after another.
#[derive(Clone, Debug, Default)]
pub struct GroupScaled {
    /// Time from a broadcast's post to its last receiver, in ns, on average.
    pub latency_ns: u64,
    /// Time of all broadcasts, back to back, until the last has all, in ns for each.
    pub each_ns: u64,
    /// Packets that the root sends for a broadcast.
    pub root_packets: f64,
    /// Acknowledgements and requests that the busiest member hears, for a broadcast.
    pub busiest: f64,
    /// Requests for missing chunks of all members, for a broadcast.
    pub nacks: f64,
    /// State of the root, in bytes, for each member.
    pub root_bytes: u64,
    /// State of a receiver, in bytes; the largest.
    pub member_bytes: u64,
    /// A broken promise.
    pub failure: Option<String>,
}

/// Broadcasts per row.
pub const BROADCASTS: usize = 40;

/// Measures broadcasts of `len` bytes among `members` over one rail of 10 Gbit/s with a latency of
/// 5 us. Each member loses `drop` of a million packets, and takes 1 us for a packet.
pub fn group_scale(name: &str, members: usize, len: u64, drop: u32) -> GroupScaled {
    let scheme = SCHEMES.iter().find(|(known, _)| *known == name);
    let mut scheme = scheme.map_or(Scheme::NACK, |(_, scheme)| *scheme);
    if name == "usual" {
        scheme = Scheme::usual(members);
    }
    let setup = {
        let mut setup = GroupSetup::calm(members, scheme, vec![(0, len); BROADCASTS]);
        setup.packet_ns = 1_000;
        setup.queue_ns = 20_000_000;
        setup.packet_faults = GroupPacketFaults {
            drop,
            ..GroupPacketFaults::default()
        };
        setup
    };
    let mut row = latency(&setup);
    let mut world = GroupWorld::new(&setup, false);
    if let Err(text) = world.play() {
        row.failure.get_or_insert(text);
    }
    row.each_ns = world.worked_ns / BROADCASTS as u64;
    let each = |count: u64| count as f64 / BROADCASTS as f64;
    row.root_packets = each(world.sent[0]);
    let heard = world.members(0).map(|m| m.group.stats().heard).max();
    row.busiest = each(heard.unwrap_or(0));
    row.nacks = each(world.members(0).map(|m| m.group.stats().nacks).sum());
    let mut states = world.members(0).map(|m| m.group.state_bytes() as u64);
    row.root_bytes = states.next().unwrap_or(0) / members as u64;
    row.member_bytes = states.max().unwrap_or(0);
    row
}

/// Measures single broadcasts, each in a world of its own.
fn latency(setup: &GroupSetup) -> GroupScaled {
    let tries = if setup.packet_faults.drop > 0 { 10 } else { 1 };
    let (mut sum, mut row) = (0, GroupScaled::default());
    for seed in 0..tries {
        let mut setup = setup.clone();
        setup.seed = seed + 1;
        setup.groups[0].script.truncate(1);
        let mut world = GroupWorld::new(&setup, false);
        if let Err(text) = world.play() {
            row.failure.get_or_insert(text);
        }
        let ends = world.members(0).skip(1).map(|m| m.memory.operations[0].end);
        let last = ends.map(|end| end.map_or(0, |(_, at)| at)).max();
        let posted = world
            .members(0)
            .next()
            .map(|m| m.memory.operations[0].posted_at);
        sum += last.unwrap_or(0) - posted.unwrap_or(0);
    }
    row.latency_ns = sum / tries;
    row
}
