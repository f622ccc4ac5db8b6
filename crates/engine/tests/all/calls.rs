//! Calls of peers that no engine would make: each is refused and counted, whatever it contains, and
//! the application hears nothing of it.

use crate::side;
use crate::stranger;

use marline_engine::stats::reader::{list_pages, read_page};
use marline_engine::{Completion, IoVec, LogSink, Region};
use marline_wire::Address;
use side::{side, Side};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use stranger::{answers, call, Stranger};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Numbers of calls' verbs, and of their flags, as they travel.
const WRITE: u8 = 1;
const ATOMIC: u8 = 2;
const OVER: u8 = 3;
const WRITES: u8 = 4;
const HAS_DATA: u8 = 2;
const MORE: u8 = 16;
/// A key that the endpoint has given out.
const KEY: u64 = 9;

fn opened(settings: &[(&str, &str)]) -> (Side, Address) {
    opened_with(settings, LogSink(Arc::new(|_, _| ())))
}

fn opened_with(settings: &[(&str, &str)], sink: LogSink) -> (Side, Address) {
    let mut all = vec![("rails", "lo")];
    all.extend_from_slice(settings);
    let side = side(&all, sink);
    let (name, len) = side.engine.ep_name(side.ep).unwrap();
    (side, Address::decode(&name[..len]).unwrap())
}

/// Key, address and data in front of a call's payload.
fn contents(key: u64, addr: u64, data: u64, payload: &[u8]) -> Vec<u8> {
    let words = [key, addr, data].map(u64::to_le_bytes).concat();
    [&words[..], payload].concat()
}

/// A call's second word.
fn word(verb: u8, op: u8, flags: u8, count: u8) -> [u8; 8] {
    [verb, 0, op, flags, count, 0, 0, 0]
}

/// Makes these calls of a peer whose address was inserted; returns which were refused, and the
/// entries that the application read meanwhile.
fn made(side: &Side, to: &Address, calls: &[([u8; 8], Vec<u8>)]) -> (Vec<bool>, usize) {
    let mut peer = Stranger::new(HERE, 17);
    let (blob, len) = peer.address().encode();
    side.engine.av_insert(side.av, &blob[..len]).unwrap();
    let (mut refused, mut entries) = (Vec::new(), 0);
    for (number, (word, contents)) in calls.iter().enumerate() {
        peer.send(to, &[call(number as u32, *word, contents)]);
        while refused.len() <= number {
            let mut out = [Completion::empty(); 4];
            entries += side.engine.cq_read(side.cq, &mut out).unwrap();
            let told = peer.received();
            let mut told = told.iter().flat_map(|datagram| answers(datagram));
            let answer = told.find(|(first, _)| *first == number as u64);
            refused.extend(answer.map(|(_, word)| word[4] != 0));
        }
    }
    (refused, entries)
}

/// Memory that peers may write under [`KEY`].
fn open_memory(side: &Side, memory: &mut [u8]) {
    let piece = IoVec {
        base: memory.as_mut_ptr(),
        len: memory.len(),
    };
    let region = Region {
        key: KEY,
        base: piece.base,
        len: piece.len,
        virt_addr: false,
        readable: true,
        writable: true,
    };
    side.engine.mr_open_pieces(&region, &[piece]).unwrap();
}

fn close(side: Side) {
    side.engine.ep_close(side.ep);
    side.engine.close();
}

/// Regression: the end of an operation that names no memory put an entry with context 0 into the
/// queue of receives, which MPICH dereferences.
#[test]
fn an_end_of_an_operation_brings_no_data() {
    let (side, to) = opened(&[]);
    let calls = [
        (word(OVER, 1, HAS_DATA, 0), contents(1, 0, 5, &[])),
        (word(OVER, 0, HAS_DATA, 9), contents(KEY, 0, 5, &[])),
    ];
    assert_eq!(made(&side, &to, &calls), (vec![true; 2], 0));
    close(side);
}

/// Regression: a refused call was counted without a line in the log, and kept the next line back.
#[test]
fn a_refused_call_is_counted_and_reported() {
    for (rma, why) in [("on", "no engine makes"), ("off", "FI_MARLINE_RMA=off")] {
        let name = format!("marline-calls-{}-{rma}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let settings = [("rma", rma), ("stats_dir", dir.to_str().unwrap())];
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lines);
        let sink = LogSink(Arc::new(move |_, line| {
            log.lock().unwrap().push(line.to_owned())
        }));
        let (side, to) = opened_with(&settings, sink);
        let bad = (word(OVER, 1, HAS_DATA, 0), contents(1, 0, 5, &[]));
        assert_eq!(made(&side, &to, &[bad]), (vec![true], 0));
        close(side);
        let lines = lines.lock().unwrap();
        let refused = |line: &&String| line.contains("refused") && line.contains(why);
        assert_eq!(lines.iter().filter(refused).count(), 1, "{lines:?}");
        let page = read_page(&list_pages(&dir)[0]).unwrap();
        assert_eq!(page.process.remote_refused, 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Fields that belong to another verb, unknown verbs, and contents that are cut off.
#[test]
fn calls_that_no_engine_makes_are_refused() {
    let (side, to) = opened(&[]);
    let mut memory = vec![0; 64];
    open_memory(&side, &mut memory);
    let write = contents(KEY, 0, 0, &[1; 8]);
    let calls = [
        (
            word(WRITE, 0, HAS_DATA | MORE, 0),
            contents(KEY, 0, 5, &[1]),
        ),
        (word(WRITE, 0, 0x80, 0), write.clone()),
        (word(WRITE, 1, HAS_DATA, 9), contents(KEY, 0, 5, &[1; 8])),
        (word(WRITE, 0, 0, 0), contents(KEY, 0, 5, &[1])),
        (word(WRITE, 0, 0, 0), contents(KEY, 60, 0, &[1; 8])),
        (word(WRITE, 0, HAS_DATA, 0), contents(KEY + 1, 0, 5, &[])),
        (word(ATOMIC, 2, HAS_DATA, 1), contents(KEY, 0, 5, &[1])),
        (word(ATOMIC, 99, 0, 1), contents(KEY, 0, 0, &[1])),
        (word(WRITES, 0, HAS_DATA, 0), contents(KEY, 0, 2, &[1])),
        (word(WRITES, 0, 0, 0), contents(KEY, 0, 200, &[1])),
        (word(77, 0, 0, 0), write.clone()),
        (word(255, 255, 255, 255), write[..23].to_vec()),
        (word(OVER, 1, 0, 0), Vec::new()),
    ];
    let refused = vec![true; calls.len()];
    assert_eq!(made(&side, &to, &calls), (refused, 0));
    close(side);
    assert_eq!(memory, [0; 64]);
}

/// Regression: peers wrote registered memory though the user had switched remote memory off.
#[test]
fn without_remote_memory_nothing_is_served() {
    for (rma, refuses) in [("on", false), ("off", true)] {
        let (side, to) = opened(&[("rma", rma)]);
        let mut memory = vec![0; 64];
        open_memory(&side, &mut memory);
        let calls = [
            (word(WRITE, 0, 0, 0), contents(KEY, 0, 0, &[1; 8])),
            (word(WRITES, 0, 0, 0), contents(KEY, 8, 2, &[1])),
            (word(OVER, 1, 0, 0), contents(KEY, 0, 0, &[])),
        ];
        assert_eq!(made(&side, &to, &calls), (vec![refuses; 3], 0), "{rma}");
        close(side);
        assert_eq!(memory.iter().any(|byte| *byte != 0), !refuses);
    }
}
