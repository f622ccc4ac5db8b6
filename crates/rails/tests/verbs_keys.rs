//! The key of a job on verbs rails, and versions of their handshake: on a fake libibverbs, against
//! strangers that send any message.

mod fake_verbs;

use fake_verbs::FakeVerbs;
use marline_auth::{ConnectionKeys, JobKey, JOB_KEY_LEN};
use marline_rails::{
    choose_rails, open_rail, AnyRx, AnyTx, DownReason, KeyMismatch, LinkId, Links, Rail, RailEvent,
    RailRx, RailTx, RailVersions, RailsConfig, SendOutcome, VerbsConfig,
};
use marline_wire::{RailAddr, RailKind};
use std::net::IpAddr;
use std::sync::Arc;

const PORT: &str = "mlx5_0 1 4 2 0 ffff 1 00000000000000000000ffff0a4d0001";
const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 1));
/// An event of a queue pair in error.
const QP_FATAL: u32 = 1;
/// Types of messages, and lengths.
const ASK: u8 = 1;
const CHALLENGE: u8 = 7;
const REFUSAL: u8 = 8;
const LEN: usize = 88;
const REFUSAL_LEN: usize = 56;
const VERSION: u8 = 3;
const TAG_AT: usize = 48;

fn secret(job: u8) -> Arc<ConnectionKeys> {
    Arc::new(ConnectionKeys::new(&JobKey::new([job; JOB_KEY_LEN])))
}

/// A rail, its events and packets.
struct End {
    tx: AnyTx,
    rx: AnyRx,
    events: Vec<RailEvent>,
    packets: Vec<Vec<u8>>,
}

impl End {
    /// A rail in the job with this key; `None`: without one.
    fn open(kind: &str, job: Option<u8>) -> End {
        let clock: marline_rails::Clock = Arc::new(|| 0);
        let config = RailsConfig {
            verbs: VerbsConfig {
                keys: job.map(secret),
                ..VerbsConfig::default()
            },
            ..RailsConfig::default()
        };
        let choice = &choose_rails(&[format!("{kind}:mlx5_0")]).unwrap()[0];
        let (tx, rx) = open_rail(0, choice, &config, &clock).unwrap().split();
        End {
            tx,
            rx,
            events: Vec::new(),
            packets: Vec::new(),
        }
    }

    fn poll(&mut self) {
        self.rx.arm();
        self.rx
            .recv(&mut |received| self.packets.push(received.bytes.to_vec()));
        while let Some(event) = self.tx.poll_event() {
            self.events.push(event);
        }
        std::thread::yield_now();
    }

    fn takes(&mut self, event: RailEvent) -> bool {
        let before = self.events.len();
        self.events.retain(|one| *one != event);
        self.events.len() < before
    }
}

/// Polls until something is there. (Only a hang of the test would end it otherwise.)
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
    }
}

/// A link from `a` to `b` that is up.
fn link(a: &mut End, b: &mut End) -> LinkId {
    let connected = a.tx.connect(&b.tx.local_addr());
    until(|| {
        a.poll();
        b.poll();
        let up = connected.up || a.takes(RailEvent::LinkUp(connected.link));
        up.then_some(connected.link)
    })
}

fn carries(a: &mut End, link: LinkId, b: &mut End) {
    let bytes = vec![7; 1000];
    assert_eq!(a.tx.send(link, &bytes, 1000, 0), SendOutcome::Sent);
    let came = until(|| {
        a.poll();
        b.poll();
        b.packets.pop()
    });
    assert_eq!(came, bytes);
}

#[test]
fn ends_with_one_key_or_none_meet() {
    let Some(fake) = FakeVerbs::enter("ends_with_one_key_or_none_meet", &[PORT]) else {
        return;
    };
    for kind in ["ud", "uc", "rc"] {
        for job in [None, Some(1)] {
            let (mut a, mut b) = (End::open(kind, job), End::open(kind, job));
            let to_b = link(&mut a, &mut b);
            carries(&mut a, to_b, &mut b);
            let to_a = link(&mut b, &mut a);
            carries(&mut b, to_a, &mut a);
            // Again, with an end that was forgotten here, and not there.
            a.tx.close(to_b);
            let to_b = link(&mut a, &mut b);
            carries(&mut a, to_b, &mut b);
            // A new life of the queue pair for datagrams has the same Q_Key.
            let number = b.tx.local_addr().bytes()[..3].to_vec();
            fake.tells(
                QP_FATAL,
                u32::from_le_bytes([number[0], number[1], number[2], 0]),
            );
            b.poll();
            a.tx.close(to_b);
            let to_b = link(&mut a, &mut b);
            carries(&mut a, to_b, &mut b);
            let refused = |event: &RailEvent| matches!(event, RailEvent::Forged(..));
            assert!(![&a, &b].iter().any(|end| end.events.iter().any(refused)));
        }
    }
}

#[test]
fn ends_that_connect_to_each_other_at_once_meet() {
    let name = "ends_that_connect_to_each_other_at_once_meet";
    let Some(_fake) = FakeVerbs::enter(name, &[PORT]) else {
        return;
    };
    for kind in ["uc", "rc"] {
        let (mut a, mut b) = (End::open(kind, Some(1)), End::open(kind, Some(1)));
        let to_b = a.tx.connect(&b.tx.local_addr()).link;
        let to_a = b.tx.connect(&a.tx.local_addr()).link;
        let (mut there, mut here) = (false, false);
        until(|| {
            a.poll();
            b.poll();
            there |= a.takes(RailEvent::LinkUp(to_b));
            here |= b.takes(RailEvent::LinkUp(to_a));
            (there && here).then_some(())
        });
        carries(&mut a, to_b, &mut b);
        carries(&mut b, to_a, &mut a);
    }
}

#[test]
fn datagrams_of_another_key_are_dropped_by_the_adapter() {
    let name = "datagrams_of_another_key_are_dropped_by_the_adapter";
    let Some(_fake) = FakeVerbs::enter(name, &[PORT]) else {
        return;
    };
    for kind in ["ud", "rc"] {
        for job in [None, Some(2)] {
            let (mut a, mut b) = (End::open(kind, job), End::open(kind, Some(1)));
            let to_b = a.tx.connect(&b.tx.local_addr());
            // (A link of datagrams is up at once.)
            let counted = |event: &RailEvent| matches!(event, RailEvent::QKeyViolations(1..));
            until(|| {
                a.poll();
                b.poll();
                let _ = a.tx.send(to_b.link, &[7; 100], 100, 0);
                b.events.iter().any(counted).then_some(())
            });
            assert!(
                b.packets.is_empty() && b.events.iter().all(counted),
                "{kind}"
            );
            let up = a.takes(RailEvent::LinkUp(to_b.link)) || to_b.up;
            assert_eq!(up, kind == "ud");
        }
    }
}

/// A process that sends any message from a queue pair of datagrams, with the Q_Key of a job.
struct Stranger {
    end: End,
    to: LinkId,
    /// The rail to which it speaks, of kind RC.
    there: RailAddr,
    challenge: [u8; 16],
}

impl Stranger {
    fn of(job: Option<u8>, victim: &End) -> Stranger {
        let mut end = End::open("ud", job);
        let there = victim.tx.local_addr();
        let datagrams = RailAddr::new(RailKind::Ud, there.bytes());
        let to = end.tx.connect(&datagrams);
        until(|| {
            end.poll();
            let up = to.up || end.takes(RailEvent::LinkUp(to.link));
            up.then_some(())
        });
        Stranger {
            end,
            to: to.link,
            there,
            challenge: [0x5a; 16],
        }
    }

    fn here(&self) -> RailAddr {
        RailAddr::new(RailKind::Rc, self.end.tx.local_addr().bytes())
    }

    /// A message, whose tag is under the key of both challenges in a job.
    fn message(&self, (say, version): (u8, u8), job: Option<u8>, theirs: [u8; 16]) -> Vec<u8> {
        let mut out = vec![0; if say == REFUSAL { REFUSAL_LEN } else { LEN }];
        let here = self.here();
        out[..4].copy_from_slice(&(0x4d52_5600 | u32::from(version)).to_le_bytes());
        out[4..7].copy_from_slice(&[say, 6, here.bytes().len() as u8]);
        out[8..][..here.bytes().len()].copy_from_slice(here.bytes());
        if job.is_some() {
            out[32..48].copy_from_slice(&self.challenge);
        }
        if out.len() == LEN {
            out[56..64].copy_from_slice(&theirs[8..]);
        }
        if out.len() == LEN && say != CHALLENGE {
            out[7] = 3;
            out[64..68].copy_from_slice(&77u32.to_le_bytes());
            out[72..80].copy_from_slice(&u64::MAX.to_le_bytes());
        }
        if let Some(job) = job {
            let tag = tag(job, (&here, &self.there), (&self.challenge, &theirs), &out);
            out[TAG_AT..TAG_AT + 8].copy_from_slice(&tag.to_le_bytes());
        }
        out
    }

    fn send(&mut self, bytes: &[u8]) {
        let sent = self.end.tx.send(self.to, bytes, bytes.len(), 0);
        assert_eq!(sent, SendOutcome::Sent);
    }

    /// The next message of the rail, whose tag has to be right in a job.
    fn answer(&mut self, victim: &mut End, job: Option<u8>) -> Vec<u8> {
        let mut bytes = until(|| {
            victim.poll();
            self.end.poll();
            self.end.packets.pop()
        });
        let field = |at: usize| -> [u8; 16] { bytes[at..at + 16].try_into().unwrap() };
        let (challenge, there) = (field(32), bytes[TAG_AT..TAG_AT + 8].to_vec());
        let whole = bytes.clone();
        bytes[TAG_AT..TAG_AT + 8].fill(0);
        let right = job.map_or(0, |job| {
            let between = (&self.there, &self.here());
            // An `Ask` to an unknown end is under no challenge.
            let known = bytes.len() == REFUSAL_LEN || bytes[56..64] != [0; 8];
            let ours = if known { self.challenge } else { [0; 16] };
            tag(job, between, (&challenge, &ours), &bytes)
        });
        assert_eq!(there, right.to_le_bytes());
        whole
    }
}

/// The tag of a message of a rail of kind RC, as in docs/design/security.md.
fn tag(job: u8, (from, to): (&RailAddr, &RailAddr), c: (&[u8; 16], &[u8; 16]), m: &[u8]) -> u64 {
    let mut context = b"verbs\x01\x06".to_vec();
    for addr in [from, to] {
        let mut place = [0; 25];
        place[0] = addr.bytes().len() as u8;
        place[1..][..addr.bytes().len()].copy_from_slice(addr.bytes());
        context.extend_from_slice(&place);
    }
    secret(job).messages(c.0, c.1, &context).tag(m)
}

fn forged(why: KeyMismatch) -> RailEvent {
    RailEvent::Forged(Some(IP), why)
}

#[test]
fn strangers_without_the_key_get_no_answer() {
    let name = "strangers_without_the_key_get_no_answer";
    let Some(_fake) = FakeVerbs::enter(name, &[PORT]) else {
        return;
    };
    let mut victim = End::open("rc", Some(1));
    let mut stranger = Stranger::of(Some(1), &victim); // the Q_Key, which it has seen
    for (job, why) in [
        (None, KeyMismatch::UnkeyedThere),
        (Some(2), KeyMismatch::OtherKey),
    ] {
        for say in [ASK, CHALLENGE] {
            // An `Ask` is examined; other messages are of no link.
            let message = stranger.message((say, VERSION), job, [0; 16]);
            stranger.send(&message);
            victim.poll();
            let counted = say == ASK || job.is_none();
            assert_eq!(victim.takes(forged(why)), counted, "{job:?} {say}");
        }
        let message = stranger.message((ASK, VERSION + 1), job, [0; 16]);
        stranger.send(&message);
        victim.poll();
        assert!(victim.takes(forged(why)), "{job:?}");
    }
    stranger.end.poll();
    assert_eq!((stranger.end.packets, victim.events), (vec![], vec![]));

    // A rail without a key does not believe an end with one.
    let mut victim = End::open("rc", None);
    let mut stranger = Stranger::of(None, &victim);
    let message = stranger.message((ASK, VERSION), Some(1), [0; 16]);
    stranger.send(&message);
    victim.poll();
    assert_eq!(victim.events, [forged(KeyMismatch::KeyedThere)]);
}

#[test]
fn a_recorded_message_draws_a_challenge_and_nothing_else() {
    let name = "a_recorded_message_draws_a_challenge_and_nothing_else";
    let Some(_fake) = FakeVerbs::enter(name, &[PORT]) else {
        return;
    };
    let mut victim = End::open("rc", Some(1));
    let mut stranger = Stranger::of(Some(1), &victim);
    let first = stranger.message((ASK, VERSION), Some(1), [0; 16]);
    stranger.send(&first);
    let challenge = stranger.answer(&mut victim, Some(1));
    assert_eq!((challenge.len(), challenge[4]), (LEN, CHALLENGE));
    stranger.send(&first);
    let again = stranger.answer(&mut victim, Some(1));
    assert_eq!(again, challenge, "no state was changed");

    // With the challenge the same process is a peer.
    let theirs = challenge[32..48].try_into().unwrap();
    let fresh = stranger.message((ASK, VERSION), Some(1), theirs);
    stranger.send(&fresh);
    assert_eq!(stranger.answer(&mut victim, Some(1))[4], 2, "an answer");
    // A message with another byte is none of it.
    for at in [7, 40, 64, 72, 80] {
        let mut other = fresh.clone();
        other[at] ^= 1;
        stranger.send(&other);
        victim.poll();
        assert!(victim.takes(forged(KeyMismatch::OtherKey)), "{at}");
    }
    // Copies are of no other rail, and of no later link of the same one.
    let mut other = End::open("rc", Some(1));
    let there = std::mem::replace(&mut stranger.there, other.tx.local_addr());
    let mut late = Stranger::of(Some(1), &other);
    late.send(&first);
    other.poll();
    assert_eq!(other.events, [forged(KeyMismatch::OtherKey)]);
    late.send(&fresh);
    other.poll();
    assert_eq!(other.events.len(), 1, "of another link");
    (stranger.there, other.events) = (there, Vec::new());
    assert_eq!(victim.events, []);
}

#[test]
fn other_versions_are_refused_by_name_at_both_ends() {
    let name = "other_versions_are_refused_by_name_at_both_ends";
    let Some(_fake) = FakeVerbs::enter(name, &[PORT]) else {
        return;
    };
    let ours = VERSION;
    for (job, theirs) in [(None, 2), (None, 4), (Some(1), 4)] {
        let mut victim = End::open("rc", job);
        let mut stranger = Stranger::of(job, &victim);
        let named = |theirs| RailEvent::OtherVersion(Some(IP), RailVersions { theirs, ours });
        // The end that is asked.
        let ask = stranger.message((ASK, theirs), job, [0; 16]);
        let ask = &ask[..if theirs == 2 { 56 } else { LEN }];
        stranger.send(ask);
        let refusal = stranger.answer(&mut victim, job);
        assert!(refusal.len() <= ask.len(), "no longer than the message");
        assert_eq!((refusal[0], refusal[4]), (ours, REFUSAL));
        assert!(victim.takes(named(theirs)));
        // A refusal is not answered, and ends no link unless it is fresh.
        let link = victim.tx.connect(&stranger.here()).link;
        let ask = stranger.answer(&mut victim, job);
        assert_eq!((ask[0], ask[4]), (ours, ASK));
        if job.is_some() {
            let old = stranger.message((REFUSAL, theirs), job, [0; 16]);
            stranger.send(&old);
            victim.poll();
            assert!(victim.takes(named(theirs)));
        }
        let down = RailEvent::LinkDown(link, DownReason::Broken(libc::EPROTONOSUPPORT));
        assert!(!victim.takes(down));
        let fresh = ask[32..48].try_into().unwrap();
        let refusal = stranger.message((REFUSAL, theirs), job, fresh);
        stranger.send(&refusal);
        victim.poll();
        assert!(victim.takes(named(theirs)) && victim.takes(down), "{job:?}");
    }
}

#[test]
fn a_version_without_tags_draws_nothing_from_an_end_with_a_key() {
    let name = "a_version_without_tags_draws_nothing_from_an_end_with_a_key";
    let Some(_fake) = FakeVerbs::enter(name, &[PORT]) else {
        return;
    };
    let mut victim = End::open("rc", Some(1));
    let mut stranger = Stranger::of(Some(1), &victim);
    let link = victim.tx.connect(&stranger.here()).link;
    let _ = stranger.answer(&mut victim, Some(1));
    let old = stranger.message((ASK, 2), None, [0; 16]);
    stranger.send(&old[..56]);
    victim.poll();
    let versions = RailVersions {
        theirs: 2,
        ours: VERSION,
    };
    assert!(victim.takes(RailEvent::OtherVersion(Some(IP), versions)));
    let down = |event: &RailEvent| matches!(event, RailEvent::LinkDown(of, _) if *of == link);
    assert!(!victim.events.iter().any(down));
}
