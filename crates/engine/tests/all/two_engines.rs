//! Two engines in one process over real loopback sockets, with faults below the protocol: messages
//! arrive unchanged, and the counters show that the faults were real.

use crate::limit;
use crate::side;

use limit::Limit;
use marline_engine::stats::reader::{list_pages, read_page};
use marline_engine::stats::rows::PeerState;
use marline_engine::{
    Completion, IoVec, LogSink, OpError, OpFlags, RecvReq, Region, RemoteReq, SendReq, SubmitError,
};
use side::Side;
use std::sync::{Arc, Mutex};

/// Log lines of engines.
type Lines = Arc<Mutex<Vec<String>>>;

fn side(settings: &[(&str, &str)]) -> Side {
    side_that_logs(settings, &Lines::default())
}

fn side_that_logs(settings: &[(&str, &str)], lines: &Lines) -> Side {
    let lines = lines.clone();
    let sink = LogSink(Arc::new(move |_, text| {
        lines.lock().unwrap().push(text.to_owned())
    }));
    side::side(settings, sink)
}

fn meet(a: &Side, b: &Side) {
    for (from, to) in [(a, b), (b, a)] {
        let (name, len) = from.engine.ep_name(from.ep).unwrap();
        assert_eq!(to.engine.av_insert(to.av, &name[..len]), Ok(0));
    }
}

fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + number * 7 + i / 251) as u8)
        .collect()
}

/// Lengths around every threshold: block, fragment, eager limit, several grants.
fn size(number: usize) -> usize {
    const SIZES: [usize; 12] = [
        0, 1, 8, 447, 448, 1_344, 1_345, 9_000, 65_535, 65_536, 65_537, 300_000,
    ];
    SIZES[number % SIZES.len()]
}

fn poll(side: &Side) -> usize {
    let mut out = [Completion::empty(); 16];
    side.engine
        .cq_read(side.cq, &mut out)
        .expect("no operation may fail")
}

fn exchange(settings: &[(&str, &str)], messages: usize) {
    exchange_between(side(settings), side(settings), messages);
}

fn exchange_between(a: Side, b: Side, messages: usize) {
    meet(&a, &b);
    let mut sent: Vec<Vec<u8>> = (0..messages).map(|n| content(n, size(n))).collect();
    let mut got: Vec<Vec<u8>> = (0..messages).map(|n| vec![0xee; size(n)]).collect();
    for (n, buffer) in got.iter_mut().enumerate() {
        let iov = [IoVec {
            base: buffer.as_mut_ptr(),
            len: buffer.len(),
        }];
        let tag = Some((n as u64, 0));
        let req = RecvReq {
            source: 0,
            iov: &iov,
            tag,
            context: n,
            flags: OpFlags::COMPLETION,
        };
        b.engine.recv(b.ep, &req).unwrap();
    }
    let (mut done_a, mut done_b, limit) = (0, 0, Limit::begin());
    for (n, buffer) in sent.iter_mut().enumerate() {
        let iov = [IoVec {
            base: buffer.as_mut_ptr(),
            len: buffer.len(),
        }];
        let (tag, data) = (Some(n as u64), None);
        let req = SendReq {
            dest: 0,
            iov: &iov,
            tag,
            data,
            context: n,
            flags: OpFlags::COMPLETION,
        };
        while a.engine.send(a.ep, &req) == Err(SubmitError::Again) {
            limit.check("room for every send");
            done_a += poll(&a);
            done_b += poll(&b);
        }
    }
    while done_a < messages || done_b < messages {
        limit.check("every message");
        done_a += poll(&a);
        done_b += poll(&b);
    }
    for n in 0..messages {
        assert!(
            sent[n] == got[n],
            "message {n} of {} bytes differs",
            sent[n].len()
        );
    }
    // Both close at the same time, like ranks in `MPI_Finalize`.
    std::thread::scope(|scope| {
        for side in [&a, &b] {
            scope.spawn(move || {
                side.engine.ep_close(side.ep);
                side.engine.close();
            });
        }
    });
}

#[test]
fn messages_of_all_sizes_arrive_without_faults() {
    exchange(&[("rails", "lo")], 240);
}

#[test]
fn native_mode_and_no_checksums_carry_the_same() {
    exchange(&[("rails", "lo"), ("checksum", "none")], 120);
    // Without reliability only the kernel's buffer prevents loss: few messages at a time.
    exchange(&[("rails", "lo"), ("reliability", "off")], 24);
}

#[test]
fn drops_duplicates_and_flipped_bits_are_repaired_and_counted() {
    let dir = std::env::temp_dir().join(format!("marline-two-engines-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let faults = "seed=11;tx:drop=0.03;tx:corrupt=0.02;tx:duplicate=0.02;tx:reorder=0.02";
    let stats_dir = dir.to_str().unwrap();
    exchange(
        &[
            ("rails", "lo"),
            ("faults", faults),
            ("stats_dir", stats_dir),
        ],
        240,
    );
    let (mut lost, mut corrupt, mut resent) = (0, 0, 0);
    for path in list_pages(&dir) {
        let page = read_page(&path).unwrap();
        for (n, rail) in page.rails.iter().enumerate() {
            let paths = page.path_totals(n);
            lost += paths.lost;
            resent += paths.resent();
            corrupt += paths.corrupt_payloads + rail.counters.corrupt_heads;
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(
        lost > 0 && corrupt > 0 && resent > 0,
        "{lost} {corrupt} {resent}"
    );
}

#[test]
fn a_close_before_delivery_names_the_receivers() {
    let lines = Lines::default();
    let a = side_that_logs(&[("rails", "lo"), ("faults", "tx:drop=1")], &lines);
    let b = side(&[("rails", "lo")]);
    meet(&a, &b);
    let mut bytes = content(0, 100);
    let iov = [IoVec {
        base: bytes.as_mut_ptr(),
        len: bytes.len(),
    }];
    for context in 0..3 {
        let req = SendReq {
            dest: 0,
            iov: &iov,
            tag: None,
            data: None,
            context,
            flags: OpFlags::COMPLETION,
        };
        a.engine.send(a.ep, &req).unwrap();
    }
    a.engine.ep_close(a.ep);
    let lines = lines.lock().unwrap();
    let told = |line: &String| line.contains("within 2 s (3 to ") && line.contains(" at ");
    assert!(lines.iter().any(told), "{lines:#?}");
}

#[test]
fn peers_that_ask_for_different_checksums_agree_and_say_so() {
    let (a, b) = (Lines::default(), Lines::default());
    let with = |checksum, lines| side_that_logs(&[("rails", "lo"), ("checksum", checksum)], lines);
    exchange_between(with("none", &a), with("xxh3", &b), 120);
    for (lines, preference, ours) in [(a, "xxh3", "none"), (b, "none", "xxh3")] {
        let lines = lines.lock().unwrap();
        let said = format!("asks for checksum {preference}, this process for {ours}: xxh3 is used");
        assert!(lines.iter().any(|line| line.contains(&said)), "{lines:#?}");
    }
}

#[test]
fn two_strong_checksums_are_not_reported() {
    let (a, b) = (Lines::default(), Lines::default());
    let with = |checksum, lines| side_that_logs(&[("rails", "lo"), ("checksum", checksum)], lines);
    exchange_between(with("crc64-nvme", &a), with("crc64-nh", &b), 120);
    for lines in [a, b] {
        let lines = lines.lock().unwrap();
        let told = |line: &String| line.contains("asks for checksum");
        assert!(!lines.iter().any(told), "{lines:#?}");
    }
}

/// Lone messages of an endpoint that is not its engine's first: a packet sent before its message is
/// posted belongs to this endpoint, not to the first.
#[test]
fn the_second_endpoint_of_an_engine_sends_lone_messages() {
    let [a, b] = [(); 2].map(|()| side(&[("rails", "lo")]));
    let second = a.engine.ep_open().unwrap();
    a.engine.ep_bind_av(second, a.av);
    a.engine.ep_bind_tx_cq(second, a.cq);
    a.engine.ep_bind_rx_cq(second, a.cq);
    a.engine.ep_enable(second).unwrap();
    let a = Side { ep: second, ..a };
    meet(&a, &b);
    for n in 0..20 {
        let (mut sent, mut got) = ([n; 8], [0xee; 8]);
        let piece = |bytes: &mut [u8; 8]| {
            let base = bytes.as_mut_ptr();
            [IoVec { base, len: 8 }]
        };
        let receive = RecvReq {
            source: 0,
            iov: &piece(&mut got),
            tag: Some((7, 0)),
            context: 1,
            flags: OpFlags::COMPLETION,
        };
        b.engine.recv(b.ep, &receive).unwrap();
        let send = SendReq {
            dest: 0,
            iov: &piece(&mut sent),
            tag: Some(7),
            data: None,
            context: 2,
            flags: OpFlags::COMPLETION,
        };
        a.engine.send(a.ep, &send).unwrap();
        let (mut done_a, mut done_b) = (0, 0);
        let limit = Limit::begin();
        while done_a + done_b < 2 {
            limit.check("the message");
            done_a += poll(&a);
            done_b += poll(&b);
        }
        assert_eq!(sent, got);
    }
}

/// While an application only posts, messages that wait for credit have to continue. Credit is for 1
/// MiB; without polls in between, further credit would not be received.
#[test]
fn a_long_burst_goes_on_leaving_while_it_is_posted() {
    const MESSAGES: usize = 64;
    let settings = [("rails", "lo"), ("progress_thread", "off")];
    let [a, b] = [(); 2].map(|()| side(&settings));
    meet(&a, &b);
    let mut sent = content(1, 65_536);
    let mut got = vec![vec![0; sent.len()]; MESSAGES];
    let piece = |bytes: &mut Vec<u8>| {
        let (base, len) = (bytes.as_mut_ptr(), bytes.len());
        [IoVec { base, len }]
    };
    for (context, buffer) in got.iter_mut().enumerate() {
        let receive = RecvReq {
            source: 0,
            iov: &piece(buffer),
            // A tag each, so that no message waits for the retransmission of an earlier one.
            tag: Some((context as u64, 0)),
            context,
            flags: OpFlags::COMPLETION,
        };
        b.engine.recv(b.ep, &receive).unwrap();
    }
    let mut done_b = 0;
    for context in 0..MESSAGES {
        let send = SendReq {
            dest: 0,
            iov: &piece(&mut sent),
            tag: Some(context as u64),
            data: None,
            context,
            flags: OpFlags::COMPLETION,
        };
        a.engine.send(a.ep, &send).unwrap();
        done_b += poll(&b);
    }
    assert!(done_b > MESSAGES / 2, "{done_b} arrived");
    let mut done_a = 0;
    let limit = Limit::begin();
    while done_a < MESSAGES || done_b < MESSAGES {
        limit.check("every message");
        done_a += poll(&a);
        done_b += poll(&b);
    }
    assert!(got.iter().all(|bytes| *bytes == sent));
}

/// An application that is notified of a dead peer may end its job, and with it this process: by
/// then the page has the death.
/// Opens two engines, one of which never answers, and waits until the other has declared it dead.
fn with_a_dead_peer(settings: &[(&str, &str)]) -> Side {
    let a = side(&[&SHORT_LIVED, settings].concat());
    // Without a thread and never polled: its sockets exist but it does not answer.
    let b = side(&SHORT_LIVED);
    meet(&a, &b);
    let mut byte = [7];
    let iov = [IoVec {
        base: byte.as_mut_ptr(),
        len: 1,
    }];
    let send = SendReq {
        dest: 0,
        iov: &iov,
        tag: Some(7),
        data: None,
        context: 1,
        flags: OpFlags {
            delivery_complete: true,
            ..OpFlags::COMPLETION
        },
    };
    a.engine.send(a.ep, &send).unwrap();
    let mut out = [Completion::empty(); 16];
    while a.engine.cq_read(a.cq, &mut out).is_ok() {}
    assert!(a.engine.cq_take_error(a.cq).is_some());
    a
}

const SHORT_LIVED: [(&str, &str); 3] = [
    ("rails", "lo"),
    ("progress_thread", "off"),
    ("peer_timeout_ms", "300"),
];

#[test]
fn a_dead_peer_is_on_the_page_before_the_application_is_notified() {
    let dir = std::env::temp_dir().join(format!("marline-dead-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let a = with_a_dead_peer(&[("stats_dir", dir.to_str().unwrap())]);
    let page = read_page(&list_pages(&dir)[0]).unwrap();
    assert_eq!(page.process.peers_dead, 1);
    assert_eq!(page.peers[0].state, PeerState::Dead);
    drop(a);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A caller, as Mercury, posts a receive for the reply of a peer that has died, cancels the receive
/// before it reads the queue, and then waits for the cancellation alone.
#[test]
fn a_receive_whose_failure_is_unread_can_be_cancelled() {
    let a = with_a_dead_peer(&[]);
    let mut byte = [0];
    let iov = [IoVec {
        base: byte.as_mut_ptr(),
        len: 1,
    }];
    let receive = |context| RecvReq {
        source: 0,
        iov: &iov,
        tag: Some((7, 0)),
        context,
        flags: OpFlags::COMPLETION,
    };
    for context in [2, 3] {
        a.engine.recv(a.ep, &receive(context)).unwrap();
    }
    a.engine.cancel(a.ep, 3).unwrap();
    let again = a.engine.cancel(a.ep, 3);
    assert!(matches!(again, Err(SubmitError::NotFound)), "{again:?}");
    for (context, error) in [(2, OpError::PeerDead), (3, OpError::Cancelled)] {
        let entry = a.engine.cq_take_error(a.cq).unwrap();
        assert_eq!((entry.context, entry.error), (context, Some(error)));
    }
}

/// Like rank 0 of a job that a batch system started.
#[test]
fn a_process_prints_its_summary_at_its_end_if_enabled() {
    for (asked, told) in [("on", 1), ("off", 0)] {
        let lines = Lines::default();
        let speaks = side_that_logs(&[("rails", "lo"), ("summary", asked)], &lines);
        exchange_between(speaks, side(&[("rails", "lo")]), 12);
        let lines = lines.lock().unwrap();
        let sent: Vec<_> = lines.iter().filter(|l| l.contains(" sent ")).collect();
        assert_eq!(sent.len(), told, "{lines:#?}");
        assert!(
            sent.iter()
                .all(|l| l.starts_with("Marline: 1 process sent ")),
            "{lines:#?}"
        );
    }
    // An engine that met no other has no report.
    let lines = Lines::default();
    let alone = side_that_logs(&[("rails", "lo"), ("summary", "on")], &lines);
    alone.engine.ep_close(alone.ep);
    alone.engine.close();
    assert!(!lines
        .lock()
        .unwrap()
        .iter()
        .any(|l| l.contains("Marline: ")));
}

/// MPICH yields after each poll without completions, such as one that serves a peer: the peer's
/// next request would have to wait for the yield.
#[test]
fn a_process_that_serves_a_peer_expects_more() {
    let (a, b) = (side(&[("rails", "lo")]), side(&[("rails", "lo")]));
    meet(&a, &b);
    let (mut memory, mut from) = ([0u8; 8], [7u8; 8]);
    let region = Region {
        key: 1,
        base: memory.as_mut_ptr(),
        len: 8,
        virt_addr: false,
        readable: false,
        writable: true,
    };
    b.engine.mr_open(&region).unwrap();
    let put = RemoteReq {
        dest: 0,
        iov: &[IoVec {
            base: from.as_mut_ptr(),
            len: 8,
        }],
        remote: &[(0, 8, 1)],
        data: None,
        context: 0,
        flags: OpFlags::COMPLETION,
    };
    let limit = Limit::begin();
    // The thread may serve it as well, and other processes get the core from time to time.
    let mut expects = 0;
    while expects < 3 {
        limit.check("a poll that serves");
        a.engine.put(a.ep, &put).unwrap();
        while poll(&a) == 0 {
            limit.check("an answer");
            poll(&b);
            expects = (0..9)
                .filter(|_| b.engine.expects_more())
                .count()
                .max(expects);
        }
    }
    assert_eq!(memory, from);
    assert!((0..9).all(|_| !b.engine.expects_more()), "nothing since");
    b.engine.mr_close(1);
    for side in [&a, &b] {
        side.engine.ep_close(side.ep);
        side.engine.close();
    }
}
