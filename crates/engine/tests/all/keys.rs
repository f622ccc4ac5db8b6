//! Engines with the key of a job, over real loopback sockets: messages arrive, packets without the
//! right tag change nothing but a counter, and differing keys are said on both sides.

use crate::limit;
use crate::side;

use limit::Limit;
use marline_auth::{Direction, HeadKeys, JobKey};
use marline_checksum::crc32c;
use marline_engine::stats::reader::{list_pages, read_page};
use marline_engine::stats::RailCounters;
use marline_engine::{Completion, IoVec, LogSink, OpFlags, RecvReq, SendReq, SubmitError};
use marline_rails::UdpAddr;
use marline_wire::{Address, Answer, HeadWriter, Header, Question, TaggedHead, TAG_LEN, VERSION};
use side::{side, Side};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OTHER_KEY: &str = "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Log lines of an engine.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn sink(&self) -> LogSink {
        let lines = self.0.clone();
        LogSink(Arc::new(move |_, text| {
            lines.lock().unwrap().push(text.to_owned())
        }))
    }

    fn all(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

fn address_of(side: &Side) -> Address {
    let (name, len) = side.engine.ep_name(side.ep).unwrap();
    Address::decode(&name[..len]).unwrap()
}

fn insert(from: &Side, to: &Side) -> Result<u64, SubmitError> {
    let (name, len) = from.engine.ep_name(from.ep).unwrap();
    to.engine.av_insert(to.av, &name[..len])
}

fn poll(side: &Side) -> usize {
    let mut out = [Completion::empty(); 16];
    let read = side.engine.cq_read(side.cq, &mut out);
    read.expect("no operation may fail")
}

/// Sends a message of `len` bytes and waits until it is complete at both ends.
fn exchange(from: &Side, to: &Side, len: usize) {
    let sent: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut got = vec![0; len];
    let into = IoVec {
        base: got.as_mut_ptr(),
        len,
    };
    let recv = RecvReq {
        source: 0,
        iov: &[into],
        tag: None,
        context: 1,
        flags: OpFlags::COMPLETION,
    };
    to.engine.recv(to.ep, &recv).unwrap();
    let piece = IoVec {
        base: sent.as_ptr().cast_mut(),
        len,
    };
    let send = SendReq {
        dest: 0,
        iov: &[piece],
        tag: None,
        data: None,
        context: 2,
        flags: OpFlags::COMPLETION,
    };
    from.engine.send(from.ep, &send).unwrap();
    let (mut open, limit) = (2, Limit::begin());
    while open > 0 {
        limit.check("a message");
        open -= poll(from) + poll(to);
    }
    assert!(got == sent, "{len} B");
}

/// A directory for statistics, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let name = format!("marline-keys-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Counters of the only engine that publishes in this directory.
fn counters(dir: &Path) -> Option<RailCounters> {
    let page = read_page(list_pages(dir).first()?).ok()?;
    page.rails.first().map(|rail| rail.counters)
}

/// A ping in the name of `from` with this flag, CRC and tag in place.
fn forged(from: &Address, to: &Address, epoch: u32, key: Option<&str>) -> Vec<u8> {
    let header = Header {
        version: VERSION,
        algorithm: 1,
        dst_id: to.id,
        dst_token: to.token,
        dst_slot: 0,
        src_id: from.id,
        src_epoch: epoch,
        path: 0,
        flags: if key.is_some() {
            Header::FLAG_TAGGED
        } else {
            0
        },
        number: 1 << 32,
    };
    let mut bytes = [0; 256];
    let tag_len = if key.is_some() { TAG_LEN } else { 0 };
    let (head, len) = HeadWriter::with_tag(&mut bytes, 256, tag_len).finish(&header);
    assert_eq!(bytes[4], VERSION);
    let crc = crc32c(&bytes[4..head]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    if let Some(key) = key {
        let of = Direction {
            src_id: from.id,
            src_epoch: epoch,
            dst_id: to.id,
            dst_token: to.token,
        };
        let keys = HeadKeys::new(&JobKey::from_hex(key).unwrap());
        let covered = TaggedHead::of(&bytes[..head]);
        let key = keys.from(0, &of);
        let tag = key.packet_tag(covered.fixed, covered.frames);
        bytes[head..len].copy_from_slice(&tag.to_le_bytes());
    }
    bytes[..len].to_vec()
}

#[test]
fn messages_of_all_lengths_arrive_with_a_key() {
    let settings = [("rails", "lo"), ("key", KEY)];
    let [a, b] = [(); 2].map(|()| side(&settings, Lines::default().sink()));
    assert_eq!((insert(&a, &b), insert(&b, &a)), (Ok(0), Ok(0)));
    assert_ne!(address_of(&a).key_mark, 0);
    for len in [0, 1, 8, 447, 448, 1_345, 9_000, 65_536, 300_000, 4 << 20] {
        exchange(&a, &b, len);
        exchange(&b, &a, len);
    }
    for side in [a, b] {
        side.engine.ep_close(side.ep);
        side.engine.close();
    }
}

/// Regression: bits that flip in the tag, which the CRC does not cover, were told as forgery.
#[test]
fn damaged_packets_with_a_key_are_not_forged() {
    let dir = Dir::new("damaged");
    let damaged = [("faults", "seed=5;tx:corrupt=0.1")];
    let settings = [("rails", "lo"), ("key", KEY)];
    let a = side(&[&settings[..], &damaged].concat(), Lines::default().sink());
    let told = [("stats_dir", dir.text())];
    let b = side(&[&settings[..], &told].concat(), Lines::default().sink());
    assert_eq!((insert(&a, &b), insert(&b, &a)), (Ok(0), Ok(0)));
    for _ in 0..600 {
        exchange(&a, &b, 8);
    }
    let limit = Limit::begin();
    while counters(&dir.0).is_none_or(|rail| rail.corrupt_heads == 0) {
        limit.check("damaged packets are counted");
        assert_eq!(poll(&b), 0);
    }
    assert_eq!(counters(&dir.0).unwrap().forged, 0);
    for side in [a, b] {
        side.engine.ep_close(side.ep);
        side.engine.close();
    }
}

#[test]
fn messages_of_all_lengths_arrive_with_keyed_sums() {
    let settings = [("rails", "lo"), ("key", KEY), ("auth", "payload")];
    let [a, b] = [(); 2].map(|()| side(&settings, Lines::default().sink()));
    assert_eq!((insert(&a, &b), insert(&b, &a)), (Ok(0), Ok(0)));
    for len in [0, 1, 8, 447, 448, 1_345, 9_000, 65_536, 300_000, 4 << 20] {
        exchange(&a, &b, len);
        exchange(&b, &a, len);
    }
    for side in [a, b] {
        side.engine.ep_close(side.ep);
        side.engine.close();
    }
}

#[test]
fn packets_without_the_right_tag_change_nothing_but_a_counter() {
    let dir = Dir::new("forged");
    let lines = Lines::default();
    let a = side(&[("rails", "lo"), ("key", KEY)], Lines::default().sink());
    let settings = [("rails", "lo"), ("key", KEY), ("stats_dir", dir.text())];
    let b = side(&settings, lines.sink());
    assert_eq!((insert(&a, &b), insert(&b, &a)), (Ok(0), Ok(0)));
    exchange(&a, &b, 8);

    let (from, to) = (address_of(&a), address_of(&b));
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let rail = to.rails().iter().next().unwrap();
    let port = UdpAddr::of(&rail).unwrap().port;
    for key in [None, Some(OTHER_KEY)] {
        for epoch in 0..10 {
            let bytes = forged(&from, &to, epoch, key);
            attacker.send_to(&bytes, ("127.0.0.1", port)).unwrap();
        }
    }
    let limit = Limit::begin();
    while counters(&dir.0).is_none_or(|rail| rail.forged < 20) {
        limit.check("forged packets are counted");
        assert_eq!(poll(&b), 0);
    }
    let said = lines.all();
    assert!(
        said.contains("without a tag") || said.contains("another key"),
        "{said}"
    );
    assert!(
        said.matches("are dropped").count() <= 2,
        "at most one a second: {said}"
    );
    for len in [8, 100_000] {
        exchange(&a, &b, len);
        exchange(&b, &a, len);
    }
    let rail = counters(&dir.0).unwrap();
    assert_eq!((rail.forged, rail.corrupt_heads, rail.unknown), (20, 0, 0));
    for side in [a, b] {
        side.engine.ep_close(side.ep);
        side.engine.close();
    }
}

/// A question gets an answer only with the job's key.
#[test]
fn questions_without_the_key_get_no_answer() {
    let dir = Dir::new("asked");
    let settings = [("rails", "lo"), ("key", KEY), ("stats_dir", dir.text())];
    let side = side(&settings, Lines::default().sink());
    let at = UdpAddr::place(&address_of(&side).rails().iter().next().unwrap()).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let from = UdpAddr::new(at.ip(), stranger.local_addr().unwrap().port()).rail();
    let asked = |key: Option<&str>| {
        let mut from = from;
        from.datagram_max = 1_472;
        let mut bytes = Question { number: 5, from }.encode(crc32c);
        if let Some(key) = key {
            let key = JobKey::from_hex(key).unwrap().questions();
            Question::add_tag(&mut bytes, |covered| key.tag(covered), crc32c);
        }
        stranger.send_to(&bytes, at).unwrap();
    };
    let mut bytes = [0; 256];
    for (forged, key) in [(1, None), (2, Some(OTHER_KEY))] {
        asked(key);
        let limit = Limit::begin();
        while counters(&dir.0).is_none_or(|rail| rail.forged < forged) {
            limit.check("questions without the key are counted");
            assert_eq!(poll(&side), 0);
        }
        assert!(stranger.recv(&mut bytes).is_err(), "no answer");
    }
    asked(Some(KEY));
    let limit = Limit::begin();
    let len = loop {
        limit.check("a question with the key has an answer");
        poll(&side);
        if let Ok(len) = stranger.recv(&mut bytes) {
            break len;
        }
    };
    let answer = Answer::parse(&bytes[..len], crc32c).unwrap();
    assert_eq!(
        Address::decode(&answer.blob).unwrap().id,
        address_of(&side).id
    );
    side.engine.ep_close(side.ep);
    side.engine.close();
}

/// A process without the key drops tagged packets too: it could not answer them.
#[test]
fn differing_keys_are_said_on_both_sides() {
    let (on, other) = (Some((KEY, "on")), Some((OTHER_KEY, "on")));
    let cases = [
        (on, None, "FI_MARLINE_AUTH is off there and on here"),
        (None, on, "FI_MARLINE_AUTH is on there and off here"),
        (on, other, "is not the one of this process"),
        (
            on,
            Some((KEY, "payload")),
            "or FI_MARLINE_AUTH is not the one",
        ),
    ];
    for (here, there, what) in cases {
        let lines = Lines::default();
        let open = |key: Option<(&'static str, &'static str)>, sink| {
            let key = key.map(|(key, auth)| [("key", key), ("auth", auth)]);
            let key = key.into_iter().flatten();
            let settings: Vec<_> = [("rails", "lo")].into_iter().chain(key).collect();
            side(&settings, sink)
        };
        let (a, b) = (
            open(here, lines.sink()),
            open(there, Lines::default().sink()),
        );
        assert_eq!(insert(&b, &a), Err(SubmitError::BadAddress));
        assert_eq!(insert(&a, &b), Err(SubmitError::BadAddress));
        let id = format!("{:016x}", address_of(&b).id);
        assert!(
            lines.all().contains(what) && lines.all().contains(&id),
            "{}",
            lines.all()
        );
        for side in [a, b] {
            side.engine.ep_close(side.ep);
            side.engine.close();
        }
    }
}
