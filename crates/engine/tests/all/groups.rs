//! Groups of engines in one process, with real multicast on the loopback interface: broadcasts
//! arrive at all members under all kinds of packet faults.

use crate::limit;

use limit::Limit;
use marline_engine::settings::Settings;
use marline_engine::{
    AvId, Core, Engine, EpId, GroupEnd, GroupError, GroupId, GroupOpId, GroupSpec, LogSink,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Serialises tests with damage: damaged packets of one test may arrive at another's port.
static DAMAGE: Mutex<()> = Mutex::new(());

fn damage() -> MutexGuard<'static, ()> {
    DAMAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Token of all groups.
pub(crate) const TOKEN: u32 = 7;

pub(crate) struct Member {
    pub(crate) engine: Engine,
    pub(crate) ep: EpId,
    av: AvId,
    pub(crate) group: GroupId,
}

pub(crate) fn engine(settings: &[(&str, &str)]) -> (Engine, EpId, AvId) {
    let lookup = |name: &str| {
        let given = settings.iter().find(|(n, _)| *n == name);
        given.map(|(_, v)| (*v).to_owned())
    };
    let settings = Settings::from_lookup(lookup).unwrap();
    let engine = Engine::open(settings, LogSink(Arc::new(|_, _| ()))).unwrap();
    let (av, cq, ep) = (
        engine.av_open(),
        engine.cq_open(),
        engine.ep_open().unwrap(),
    );
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, cq);
    engine.ep_bind_rx_cq(ep, cq);
    engine.ep_enable(ep).unwrap();
    (engine, ep, av)
}

/// A group with one engine per member; `settings` by member.
fn members(
    count: usize,
    settings: impl Fn(usize) -> Vec<(&'static str, &'static str)>,
) -> Vec<Member> {
    let engines: Vec<_> = (0..count).map(|n| engine(&settings(n))).collect();
    let first = engines[0].0.member_descriptor(engines[0].1).unwrap();
    grouped(
        engines,
        u64::from_le_bytes(first[8..16].try_into().unwrap()),
    )
}

/// A group of these engines.
pub(crate) fn grouped(engines: Vec<(Engine, EpId, AvId)>, id: u64) -> Vec<Member> {
    let descriptors: Vec<_> = engines
        .iter()
        .map(|(e, ep, _)| e.member_descriptor(*ep).unwrap())
        .collect();
    let descriptors: Vec<&[u8]> = descriptors
        .iter()
        .map(|descriptor| &descriptor[..])
        .collect();
    let open = |(me, (engine, ep, av)): (usize, (Engine, EpId, AvId))| {
        let spec = GroupSpec {
            id,
            token: TOKEN,
            me: me as u16,
            descriptors: &descriptors,
        };
        let group = engine.group_open(ep, &spec).unwrap();
        Member {
            engine,
            ep,
            av,
            group,
        }
    };
    engines.into_iter().enumerate().map(open).collect()
}

/// The content of a broadcast.
fn content(number: usize, len: usize) -> Vec<u8> {
    let byte = |i: usize| (i * 31 + number * 7 + i / 251) as u8;
    (0..len).map(byte).collect()
}

fn post(member: &Member, root: usize, memory: &mut [u8]) -> GroupOpId {
    let (base, len) = (memory.as_mut_ptr(), memory.len());
    let posted = member
        .engine
        .group_post(member.group, root as u16, base, len);
    posted.unwrap()
}

/// Broadcasts these lengths, each from another root, several at a time; one member posts `late`
/// posts later than the others.
pub(crate) fn broadcast(members: &[Member], lens: &[usize], late: usize) {
    let limit = Limit::begin();
    let count = members.len();
    let mut memory: Vec<Vec<Vec<u8>>> = (0..count).map(|_| Vec::new()).collect();
    let mut open: Vec<Vec<(usize, GroupOpId)>> = (0..count).map(|_| Vec::new()).collect();
    for (at, memory) in memory.iter_mut().enumerate() {
        let of = |(n, &len): (usize, &usize)| match n % count == at {
            true => content(n, len),
            false => vec![0xee; len],
        };
        memory.extend(lens.iter().enumerate().map(of));
    }
    let mut posted = vec![0; count];
    while posted.iter().any(|&n| n < lens.len()) || open.iter().any(|o| !o.is_empty()) {
        limit.check("every broadcast");
        for (at, member) in members.iter().enumerate() {
            let first = posted.iter().max().copied().unwrap_or(0);
            let waits = at == 1 && posted[at] + late > first && posted[0] < lens.len();
            if posted[at] < lens.len() && !waits {
                let n = posted[at];
                let op = post(member, n % count, &mut memory[at][n]);
                open[at].push((n, op));
                posted[at] += 1;
            }
            member.engine.progress();
            open[at].retain(|&(n, op)| {
                let end = member.engine.group_test(member.group, op);
                assert!(
                    end.is_none_or(|e| e == GroupEnd::Well),
                    "{n} at {at}: {end:?}"
                );
                end.is_none()
            });
        }
    }
    for (at, memory) in memory.iter().enumerate() {
        for (n, bytes) in memory.iter().enumerate() {
            assert!(
                *bytes == content(n, lens[n]),
                "broadcast {n} at {at} differs"
            );
        }
    }
    while !members.iter().all(|m| m.engine.group_is_idle(m.group)) {
        limit.check("all to know that all have all");
        members.iter().for_each(|m| m.engine.progress());
    }
}

pub(crate) fn close(members: Vec<Member>) {
    std::thread::scope(|scope| {
        for member in &members {
            scope.spawn(|| {
                member.engine.group_close(member.group);
                member.engine.ep_close(member.ep);
                member.engine.av_close(member.av);
                member.engine.close();
            });
        }
    });
}

const LENS: [usize; 12] = [
    1, 8, 100, 1_344, 9_000, 65_536, 65_537, 300_000, 0, 7, 1_000_000, 64_000,
];

#[test]
fn a_broadcast_arrives_at_all_and_leaves_its_root_once() {
    let members = members(4, |_| vec![("rails", "lo")]);
    broadcast(&members, &LENS, 0);
    broadcast(&members, &[8; 500], 20);
    for member in &members {
        let look = |core: &Core<_>| *core.group_stats(member.group).unwrap();
        let stats = member.engine.inspect(look);
        assert!(
            stats.chunks > 100 && stats.repairs < stats.chunks / 10,
            "{stats:?}"
        );
    }
    close(members);
}

/// Where windows are small, a root waits for members that sleep instead of reading.
#[test]
fn no_member_sleeps_with_a_small_window() {
    for (scheme, sleeps) in [("basic", false), ("window", true)] {
        let settings = vec![("rails", "lo"), ("multicast_scheme", scheme)];
        let members = members(2, |_| settings.clone());
        let mut memory = vec![0; 1 << 20];
        post(&members[1], 0, &mut memory);
        assert_eq!(members[1].engine.sleep_briefly(), sleeps, "{scheme}");
        close(members);
    }
}

/// A probe is longer than its contents, and leftovers of an earlier packet in its buffer are not
/// sent.
#[test]
fn nothing_is_damaged_where_probes_follow_chunks() {
    let _alone = damage();
    let members = members(3, |_| vec![("rails", "lo")]);
    for _ in 0..10 {
        broadcast(&members, &[100_000, 20, 65_536], 0);
        for member in &members {
            member.engine.group_probe(member.group).unwrap();
            member.engine.progress();
        }
    }
    for member in &members {
        let limit = Limit::begin();
        while member.engine.group_heard(member.group).unwrap() == 0 {
            limit.check("the others to be heard");
            member.engine.progress();
        }
        let look = |core: &Core<_>| {
            let rail = core.rail_counters(0).unwrap();
            (rail.corrupt_heads, rail.truncated, rail.wrong_version)
        };
        assert_eq!(member.engine.inspect(look), (0, 0, 0));
    }
    close(members);
}

#[test]
fn broadcasts_arrive_despite_loss_damage_duplicates_and_delay() {
    let _alone = damage();
    let faults = "seed=5;tx:drop=0.05;tx:corrupt=0.02;tx:duplicate=0.02;tx:reorder=0.02";
    let members = members(3, |_| vec![("rails", "lo"), ("faults", faults)]);
    for _ in 0..5 {
        broadcast(&members, &LENS, 3);
    }
    broadcast(&members, &[500; 200], 10);
    close(members);
}

/// A batch contains the first packet of a broadcast after a damaged chunk of it: later packets of
/// the batch are right, and stay so.
#[test]
fn damaged_early_chunks_do_not_overwrite_good_ones() {
    let _alone = damage();
    let faults = "seed=5;tx:drop=0.02;tx:corrupt=0.2;tx:reorder=0.02";
    let members = members(3, |_| vec![("rails", "lo"), ("faults", faults)]);
    broadcast(&members, &[500; 3_000], 30);
    close(members);
}

#[test]
fn members_hear_each_other_if_multicast_is_carried() {
    let some = members(2, |_| vec![("rails", "lo")]);
    some.iter()
        .for_each(|m| m.engine.group_probe(m.group).unwrap());
    // All members are on one host: no member has to be heard.
    for member in &some {
        assert_eq!(member.engine.group_heard(member.group), Ok(1));
        member.engine.group_start(member.group, 1).unwrap();
    }
    broadcast(&some, &[8], 0);
    close(some);
}

#[test]
fn a_killed_member_ends_operations_that_wait_for_it() {
    let mut members = members(3, |at| {
        let mut settings = vec![("rails", "lo"), ("peer_timeout_ms", "1000")];
        // Its process stops when the test stops polling for it.
        settings.extend((at == 2).then_some(("progress_thread", "off")));
        settings
    });
    broadcast(&members, &[100, 200, 300], 0);
    // Silent from now on.
    let dead = members.pop().unwrap();
    std::mem::forget(dead);
    let limit = Limit::begin();
    let mut memory = [vec![1; 300_000], vec![0; 300_000], vec![0; 9]];
    let of_root = post(&members[0], 0, &mut memory[0]);
    let of_receiver = post(&members[1], 0, &mut memory[1]);
    let from_dead = post(&members[1], 2, &mut memory[2]);
    let mut ends = [None; 3];
    while ends.contains(&None) {
        limit.check("the ends");
        let all = [(0, of_root), (1, of_receiver), (1, from_dead)];
        for (end, (at, op)) in ends.iter_mut().zip(all) {
            let member = &members[at];
            member.engine.progress();
            if end.is_none() {
                *end = member.engine.group_test(member.group, op);
            }
        }
    }
    assert_eq!(ends[1], Some(GroupEnd::Well));
    assert!(memory[1] == memory[0]);
    close(members);
}

#[test]
fn groups_of_other_endpoints_are_refused() {
    let (engine, ep, _) = engine(&[("rails", "lo")]);
    let descriptor = engine.member_descriptor(ep).unwrap();
    let refused = |me: u16, descriptors: &[&[u8]]| {
        let spec = GroupSpec {
            id: 1,
            token: 2,
            me,
            descriptors,
        };
        engine.group_open(ep, &spec).err()
    };
    assert_eq!(refused(0, &[]), Some(GroupError::Invalid));
    assert_eq!(refused(1, &[&descriptor]), Some(GroupError::Invalid));
    assert_eq!(refused(0, &[&descriptor[1..]]), Some(GroupError::Invalid));
    assert_eq!(refused(0, &[&descriptor]), None);
    let gone = GroupId(9);
    assert_eq!(engine.group_probe(gone), Err(GroupError::Invalid));
    assert_eq!(
        engine.group_test(gone, GroupOpId(0)),
        Some(GroupEnd::Closed)
    );
    engine.ep_close(ep);
    engine.close();
}
