//! Compares matching with the simplest form of MPI's rule: lists searched from the front.

use super::*;
use crate::base::slab::Slab;
use proptest::prelude::*;
use std::vec::Vec;

fn spec(handle: u32, source: Source, tag: u64, ignore: u64) -> RecvSpec {
    RecvSpec {
        handle,
        source,
        tag: Some((tag, ignore)),
        capacity: 100,
        multi_min: None,
    }
}

fn head(tag: u64) -> MsgHead {
    MsgHead {
        number: 0,
        flags: FLAG_TAGGED,
        tag,
        data: 0,
        total: 10,
    }
}

#[test]
fn the_first_accepting_receive_wins_and_ignore_bits_are_ignored() {
    let mut m = Matching::default();
    m.post(spec(1, Source::Peer(PeerId(7)), 5, 0));
    m.post(spec(2, Source::Any, 4, 1));
    m.post(spec(3, Source::Any, 5, 0));
    assert_eq!(m.arrive(PeerId(1), &head(5)).map(|f| f.handle), Some(2));
    assert_eq!(m.arrive(PeerId(1), &head(5)).map(|f| f.handle), Some(3));
    assert_eq!(m.arrive(PeerId(1), &head(5)), None);
    assert_eq!(m.arrive(PeerId(7), &head(5)).map(|f| f.handle), Some(1));
}

#[test]
fn a_multi_receive_stays_until_less_than_its_minimum_is_left() {
    let mut m = Matching::default();
    let any = Source::Any;
    m.post(RecvSpec {
        handle: 1,
        source: any,
        tag: None,
        capacity: 40,
        multi_min: Some(16),
    });
    let h = MsgHead {
        number: 0,
        flags: 0,
        tag: 0,
        data: 0,
        total: 10,
    };
    let a = m.arrive(PeerId(0), &h).unwrap();
    let b = m.arrive(PeerId(0), &h).unwrap();
    assert_eq!((a.base, a.stays, b.base, b.stays), (0, true, 16, false));
    assert_eq!(m.arrive(PeerId(0), &h), None);
}

/// Long queues match by their tables, here in reverse order of posting and arrival, and lose their
/// index when they are short again.
#[test]
fn long_queues_have_an_index_that_finds_every_entry() {
    let many = if cfg!(miri) { 100 } else { 65_536u32 };
    let source = |n| match n % 2 {
        0 => Source::Any,
        _ => Source::Peer(PeerId(0)),
    };
    let mut m = Matching::default();
    (0..many).for_each(|n| m.post(spec(n, source(n), n as u64, 0)));
    for n in (0..many).rev() {
        let found = m.arrive(PeerId(0), &head(n as u64));
        assert_eq!(found.map(|f| f.handle), Some(n));
        let long = matches!(&m.tagged.posted, Queue::Long(index) if index.is_complete());
        assert_eq!(long, n as usize > FEW_AGAIN, "{n} are left");
    }
    let mut keys = Slab::new();
    (0..many).for_each(|n| m.add_unexpected(PeerId(0), &head(n as u64), keys.insert(())));
    for n in (0..many).rev() {
        let found = m.find_unexpected(&spec(n, source(n), n as u64, 0), true);
        assert_eq!(found.map(|w| w.tag), Some(n as u64));
    }
    let short = |len| len <= FEW_AGAIN;
    assert!(matches!(&m.tagged.posted, Queue::Short(few) if short(few.len())));
    assert!(matches!(&m.tagged.unexpected, Queue::Short(few) if short(few.len())));
}

/// A step of the test; tags and peers are few, so that much matches.
#[derive(Clone, Debug)]
enum Step {
    Post {
        source: Option<u32>,
        tag: Option<(u64, u64)>,
        capacity: u64,
        multi_min: Option<u64>,
    },
    Arrive {
        peer: u32,
        tag: Option<u64>,
        total: u64,
    },
    Peek {
        source: Option<u32>,
        tag: Option<(u64, u64)>,
        take: bool,
    },
    Cancel(u32),
    /// A peer dies: receives that name it are removed.
    TearDown(u32),
    /// An unexpected message is removed with its sender.
    Forget(prop::sample::Index),
}

fn pattern() -> impl Strategy<Value = (Option<u32>, Option<(u64, u64)>)> {
    // Sometimes more classes than have tables.
    let ignore = prop_oneof![Just(0u64), Just(1), Just(3), Just(u64::MAX), 0u64..32];
    (
        prop::option::of(0u32..3),
        prop::option::of((0u64..4, ignore)),
    )
}

fn post() -> impl Strategy<Value = Step> {
    (pattern(), 0u64..100, prop::option::of(0u64..40)).prop_map(|((source, tag), capacity, min)| {
        Step::Post {
            source,
            tag,
            capacity,
            multi_min: min.filter(|_| tag.is_none()),
        }
    })
}

fn arrive() -> impl Strategy<Value = Step> {
    (0u32..3, prop::option::of(0u64..4), 0u64..50).prop_map(|(peer, tag, total)| Step::Arrive {
        peer,
        tag,
        total,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => post(),
        5 => arrive(),
        2 => (pattern(), any::<bool>())
            .prop_map(|((source, tag), take)| Step::Peek { source, tag, take }),
        1 => (0u32..40).prop_map(Step::Cancel),
        1 => (0u32..3).prop_map(Step::TearDown),
        1 => any::<prop::sample::Index>().prop_map(Step::Forget),
    ]
}

/// Receives or messages queued at the start: often enough for an index.
fn backlog() -> impl Strategy<Value = Vec<Step>> {
    let most = if cfg!(miri) { 40 } else { 120 };
    prop_oneof![
        proptest::collection::vec(post(), 0..most),
        proptest::collection::vec(arrive(), 0..most),
    ]
}

/// A receive, and how much of its buffer is used.
#[derive(Clone, Copy, Debug)]
struct PlainPost {
    spec: RecvSpec,
    used: u64,
}

/// An unexpected message with its key in the test.
#[derive(Clone, Copy, Debug)]
struct PlainMessage {
    peer: u32,
    tag: Option<u64>,
    key: Key,
}

fn fits(spec: &RecvSpec, peer: u32, tag: Option<u64>) -> bool {
    let from = match spec.source {
        Source::Any => true,
        Source::Peer(named) => named.0 == peer,
    };
    let tags = match (spec.tag, tag) {
        (Some((want, ignore)), Some(tag)) => want & !ignore == tag & !ignore,
        (None, None) => true,
        _ => false,
    };
    from && tags
}

#[derive(Default)]
struct Both {
    real: Matching,
    posted: Vec<PlainPost>,
    unexpected: Vec<PlainMessage>,
    handles: u32,
}

impl Both {
    fn spec(&mut self, source: Option<u32>, tag: Option<(u64, u64)>) -> RecvSpec {
        self.handles += 1;
        RecvSpec {
            handle: self.handles,
            source: source.map_or(Source::Any, |p| Source::Peer(PeerId(p))),
            tag,
            capacity: 0,
            multi_min: None,
        }
    }

    /// A message goes to the first receive that accepts it. A multi-receive stays posted while at
    /// least its minimum (and at least a byte) is left after the used part, in whole words.
    fn arrive(&mut self, keys: &mut Slab<()>, peer: u32, tag: Option<u64>, total: u64) {
        let head = MsgHead {
            number: 0,
            flags: tag.map_or(0, |_| FLAG_TAGGED),
            tag: tag.unwrap_or(0),
            data: 0,
            total,
        };
        let found = self.real.arrive(PeerId(peer), &head);
        let at = self.posted.iter().position(|p| fits(&p.spec, peer, tag));
        let want = at.map(|at| self.take(at, total));
        assert_eq!(found, want);
        if found.is_none() {
            let key = keys.insert(());
            self.real.add_unexpected(PeerId(peer), &head, key);
            self.unexpected.push(PlainMessage { peer, tag, key });
        }
    }

    fn take(&mut self, at: usize, total: u64) -> Found {
        let PlainPost { spec, used } = self.posted[at];
        let next = ((used + total).div_ceil(8) * 8).min(spec.capacity);
        let left = spec.capacity - next;
        let stays = spec.multi_min.is_some_and(|min| left >= min && left > 0);
        if stays {
            self.posted[at].used = next;
        } else {
            self.posted.remove(at);
        }
        Found {
            handle: spec.handle,
            base: used,
            capacity: spec.capacity - used,
            directed: spec.source != Source::Any,
            stays,
            ignore: spec.wanted().1,
        }
    }

    fn apply(&mut self, keys: &mut Slab<()>, step: &Step) {
        match *step {
            Step::Post {
                source,
                tag,
                capacity,
                multi_min,
            } => {
                let spec = RecvSpec {
                    capacity,
                    multi_min,
                    ..self.spec(source, tag)
                };
                self.real.post(spec);
                self.posted.push(PlainPost { spec, used: 0 });
            }
            Step::Arrive { peer, tag, total } => self.arrive(keys, peer, tag, total),
            Step::Peek { source, tag, take } => {
                let spec = self.spec(source, tag);
                let mut waiting = self.unexpected.iter();
                let at = waiting.position(|m| fits(&spec, m.peer, m.tag));
                let found = self.real.find_unexpected(&spec, take);
                let key = at.map(|at| self.unexpected[at].key);
                assert_eq!(found.map(|w| w.inbound), key);
                if let Some(at) = at.filter(|_| take) {
                    self.unexpected.remove(at);
                }
            }
            Step::Cancel(handle) => {
                let at = self.posted.iter().position(|p| p.spec.handle == handle);
                let gone = self.real.cancel(handle).map(|p| p.spec.handle);
                assert_eq!(gone, at.map(|at| self.posted.remove(at).spec.handle));
            }
            Step::TearDown(peer) => {
                let named = |p: &PlainPost| p.spec.source == Source::Peer(PeerId(peer));
                let mut gone = Vec::new();
                while let Some(p) = self.real.take_directed(PeerId(peer)) {
                    gone.push(p.spec.handle);
                }
                gone.sort_unstable();
                let mut want: Vec<u32> = Vec::new();
                want.extend(
                    self.posted
                        .iter()
                        .filter(|p| named(p))
                        .map(|p| p.spec.handle),
                );
                want.sort_unstable();
                assert_eq!(gone, want);
                self.posted.retain(|p| !named(p));
            }
            Step::Forget(at) => {
                if !self.unexpected.is_empty() {
                    let gone = self.unexpected.remove(at.index(self.unexpected.len()));
                    self.real.remove_unexpected(gone.key);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_lists_searched_from_the_front(
        backlog in backlog(),
        steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 150 }))
    {
        let (mut both, mut keys) = (Both::default(), Slab::new());
        for step in backlog.iter().chain(&steps) {
            both.apply(&mut keys, step);
            prop_assert_eq!(both.real.posted(), both.posted.len());
        }
        // Each remaining receive is returned once.
        let mut left = Vec::new();
        while let Some(posted) = both.real.take_any() {
            left.push(posted.spec.handle);
        }
        left.sort_unstable();
        let mut want: Vec<u32> = both.posted.iter().map(|p| p.spec.handle).collect();
        want.sort_unstable();
        prop_assert_eq!(left, want);
    }
}
