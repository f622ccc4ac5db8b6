//! Loopback messages of an engine on rails that lose every datagram: messages that arrive did not
//! use them.

use marline_engine::settings::Settings;
use marline_engine::stats::reader;
use marline_engine::{
    atomic_max, flag, AtomicKind, AtomicReq, Completion, CqId, Engine, EpId, IoVec, LogSink,
    OpError, OpFlags, RecvReq, Region, RemoteReq, SendReq, SubmitError, ADDR_UNSPEC,
};
use std::sync::Arc;

struct Own {
    engine: Engine,
    cq: CqId,
    ep: EpId,
}

fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + number * 7 + i / 251) as u8)
        .collect()
}

fn iov(bytes: &mut [u8]) -> [IoVec; 1] {
    [IoVec {
        base: bytes.as_mut_ptr(),
        len: bytes.len(),
    }]
}

impl Own {
    fn open(settings: &[(&str, &str)]) -> Own {
        let lookup = |name: &str| {
            let given = settings.iter().find(|(n, _)| *n == name);
            let always = [("rails", "lo"), ("faults", "drop=1")];
            let given = given.or(always.iter().find(|(n, _)| *n == name));
            given.map(|(_, v)| (*v).to_owned())
        };
        let settings = Settings::from_lookup(lookup).unwrap();
        let engine = Engine::open(settings, LogSink(Arc::new(|_, _| ()))).unwrap();
        let (cq, av) = (engine.cq_open(), engine.av_open());
        let ep = engine.ep_open().unwrap();
        engine.ep_bind_av(ep, av);
        engine.ep_bind_tx_cq(ep, cq);
        engine.ep_bind_rx_cq(ep, cq);
        engine.ep_enable(ep).unwrap();
        let (name, len) = engine.ep_name(ep).unwrap();
        assert_eq!(engine.av_insert(av, &name[..len]), Ok(0));
        Own { engine, cq, ep }
    }

    fn send(&self, context: usize, tag: u64, bytes: &mut [u8], flags: OpFlags) {
        assert_eq!(self.try_send(context, tag, bytes, flags), Ok(()));
    }

    fn try_send(
        &self,
        context: usize,
        tag: u64,
        bytes: &mut [u8],
        flags: OpFlags,
    ) -> Result<(), SubmitError> {
        let req = SendReq {
            dest: 0,
            iov: &iov(bytes),
            tag: Some(tag),
            data: Some(tag + 1),
            context,
            flags,
        };
        self.engine.send(self.ep, &req)
    }

    fn recv(&self, context: usize, source: u64, tag: (u64, u64), bytes: &mut [u8], flags: OpFlags) {
        let req = RecvReq {
            source,
            iov: &iov(bytes),
            tag: Some(tag),
            context,
            flags,
        };
        self.engine.recv(self.ep, &req).unwrap();
    }

    /// The operations that one poll completes.
    fn poll(&self) -> Vec<Completion> {
        let mut out = [Completion::empty(); 16];
        let n = match self.engine.cq_read(self.cq, &mut out) {
            Ok(n) => n,
            Err(()) => {
                out[0] = self.engine.cq_take_error(self.cq).unwrap();
                1
            }
        };
        out[..n].to_vec()
    }

    /// Completed operations in order. Two polls suffice, since no packet is awaited.
    fn ends(&self) -> Vec<usize> {
        let ended = [self.poll(), self.poll()].concat();
        ended.iter().map(|c| c.context).collect()
    }

    fn close(self) {
        self.engine.ep_close(self.ep);
        self.engine.close();
    }
}

#[test]
fn messages_of_all_sizes_arrive_in_order_expected_or_not() {
    let own = Own::open(&[]);
    for (n, len) in [0, 1, 448, 65_536, 65_537, 9_000_000]
        .into_iter()
        .enumerate()
    {
        let (mut sent, mut got) = (content(n, len), vec![0xee; len]);
        let mut second = content(n + 1, len);
        let mut got_second = vec![0xee; len];
        // The first message finds its receive posted, the second waits for its receive.
        own.recv(100, 0, (7, 0), &mut got, OpFlags::COMPLETION);
        own.send(200, 7, &mut sent, OpFlags::COMPLETION);
        own.send(201, 7, &mut second, OpFlags::COMPLETION);
        own.recv(
            101,
            ADDR_UNSPEC,
            (0, !0),
            &mut got_second,
            OpFlags::COMPLETION,
        );
        let mut ends = own.ends();
        ends.sort_unstable();
        assert_eq!(ends, [100, 101, 200, 201], "{len} bytes");
        assert!(got == sent && got_second == second, "{len} bytes");
    }
    own.close();
}

/// No receive takes the messages, so only copies can end the sends. Their memory is then reused.
#[test]
fn sends_that_borrow_end_without_their_receives() {
    let own = Own::open(&[("borrow", "on"), ("aggregate_after", "0")]);
    let mut bytes: Vec<_> = (0..6).map(|n| content(n, 60_000)).collect();
    for (n, bytes) in bytes.iter_mut().enumerate() {
        own.send(n, 7, bytes, OpFlags::COMPLETION);
    }
    assert_eq!(own.poll().len(), 0, "they wait for their receives at first");
    let mut ended = Vec::new();
    while ended.len() < 6 {
        ended.extend(own.poll());
    }
    let said: Vec<_> = ended.iter().map(|c| (c.context, c.error)).collect();
    assert_eq!(said, (0..6).map(|n| (n, None)).collect::<Vec<_>>());
    bytes.iter_mut().for_each(|b| b.fill(0xee));
    for n in 0..6 {
        let mut got = vec![0; 60_000];
        own.recv(100 + n, 0, (7, 0), &mut got, OpFlags::COMPLETION);
        assert_eq!(own.ends(), [100 + n], "and no second end of the send");
        assert!(got == content(n, 60_000), "message {n}");
    }
    own.close();
}

/// Loopback messages have no checksum, and their statistics row names none.
#[test]
fn the_statistics_name_no_checksum_for_loopback() {
    let dir = std::env::temp_dir().join(format!("marline-own-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let own = Own::open(&[("stats_dir", dir.to_str().unwrap())]);
    let (mut sent, mut got) = (content(1, 448), vec![0; 448]);
    own.recv(1, 0, (7, 0), &mut got, OpFlags::COMPLETION);
    own.send(2, 7, &mut sent, OpFlags::COMPLETION);
    assert_eq!(own.ends().len(), 2);
    own.close();
    let pages = reader::list_pages(&dir);
    let page = reader::read_page(&pages[0]).unwrap();
    let rows: Vec<_> = page.peers.iter().map(|p| p.checksum).collect();
    assert_eq!(rows, [None]);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_short_receive_is_reported_as_truncated_without_overrun() {
    let own = Own::open(&[]);
    for len in [1_000, 300_000] {
        let (mut sent, mut got) = (content(3, len), vec![0xee; len]);
        own.recv(1, 0, (7, 0), &mut got[..500], OpFlags::COMPLETION);
        own.send(2, 7, &mut sent, OpFlags::COMPLETION);
        let ends = [own.poll(), own.poll()].concat();
        let cut = ends.iter().find(|c| c.context == 1).unwrap();
        assert_eq!((cut.error, cut.olen), (Some(OpError::Truncated), len - 500));
        assert_eq!((cut.source, cut.data, cut.len), (0, 8, 500));
        assert!(ends.iter().any(|c| c.context == 2 && c.error.is_none()));
        assert!(got[..500] == sent[..500] && got[500..].iter().all(|&b| b == 0xee));
    }
    own.close();
}

#[test]
fn peek_claim_discard_and_cancel() {
    let own = Own::open(&[]);
    let peek = |claim, discard| OpFlags {
        peek: true,
        claim,
        discard,
        ..OpFlags::COMPLETION
    };
    let (mut long, mut got) = (content(1, 200_000), vec![0; 200_000]);
    own.recv(1, 0, (7, 0), &mut [], peek(false, false));
    assert_eq!(own.poll()[0].error, Some(OpError::NoMessage));
    own.send(2, 7, &mut long, OpFlags::COMPLETION);
    own.recv(3, 0, (7, 0), &mut [], peek(true, false));
    let found = own.poll();
    assert_eq!((found[0].context, found[0].len), (3, 200_000));
    // After a claim no other peek finds the message.
    own.recv(4, 0, (7, 0), &mut [], peek(false, false));
    assert_eq!(own.poll()[0].error, Some(OpError::NoMessage));
    let claimed = OpFlags {
        claim: true,
        ..OpFlags::COMPLETION
    };
    own.recv(3, 0, (7, 0), &mut got, claimed);
    assert_eq!(own.ends(), [3, 2]);
    assert!(got == long);
    // After a discard the send ends, too.
    own.send(5, 7, &mut long, OpFlags::COMPLETION);
    own.recv(6, 0, (7, 0), &mut [], peek(false, true));
    assert_eq!(own.ends(), [6, 5]);
    // A cancelled receive takes no message.
    own.recv(7, 0, (7, 0), &mut got, OpFlags::COMPLETION);
    own.engine.cancel(own.ep, 7).unwrap();
    assert_eq!(own.poll()[0].error, Some(OpError::Cancelled));
    own.send(8, 7, &mut long, OpFlags::COMPLETION);
    assert_eq!(own.ends(), [0; 0]);
    own.recv(9, 0, (7, 0), &mut got, OpFlags::COMPLETION);
    assert_eq!(own.ends(), [9, 8]);
    own.close();
}

#[test]
fn delivery_complete_waits_for_the_receive() {
    let own = Own::open(&[]);
    let delivered = OpFlags {
        delivery_complete: true,
        ..OpFlags::COMPLETION
    };
    let (mut sent, mut got) = ([7; 100], [0; 100]);
    own.send(1, 7, &mut sent, delivered);
    assert_eq!(own.ends(), [0; 0]);
    own.recv(2, 0, (7, 0), &mut got, OpFlags::COMPLETION);
    assert_eq!(own.ends(), [2, 1]);
    assert_eq!(got, sent);
    own.close();
}

impl Own {
    /// Posts a multi-receive buffer for untagged messages.
    fn recv_many(&self, context: usize, buffer: &mut [u8]) {
        let req = RecvReq {
            source: ADDR_UNSPEC,
            iov: &iov(buffer),
            tag: None,
            context,
            flags: OpFlags {
                multi_recv: true,
                ..OpFlags::COMPLETION
            },
        };
        self.engine.recv(self.ep, &req).unwrap();
    }

    /// Sends an untagged message without completion.
    fn send_plain(&self, context: usize, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let req = SendReq {
            dest: 0,
            iov: &iov(&mut bytes),
            tag: None,
            data: None,
            context,
            flags: OpFlags::default(),
        };
        self.engine.send(self.ep, &req).unwrap();
    }
}

#[test]
fn one_buffer_takes_many_and_is_released_once() {
    let own = Own::open(&[]);
    let (mut buffer, sent) = (vec![0xee; 960], content(2, 300));
    own.send_plain(2, &sent); // the receive finds this one, later ones find the receive
    own.recv_many(1, &mut buffer);
    (3..5).for_each(|context| own.send_plain(context, &sent));
    let ends = [own.poll(), own.poll()].concat();
    let released: Vec<bool> = ends
        .iter()
        .map(|c| c.flags & flag::MULTI_RECV != 0)
        .collect();
    assert_eq!(released, [false, false, true]);
    for (n, end) in ends.iter().enumerate() {
        assert_eq!(end.buf, buffer.as_mut_ptr().wrapping_add(304 * n));
        assert!(buffer[304 * n..304 * n + 300] == sent, "message {n}");
    }
    own.close();
}

/// A message that the buffer took arrives before the cancelled buffer completes: a copy at the next
/// poll would find no receive, and the message would be lost.
#[test]
fn one_buffer_taken_back_keeps_what_came_before() {
    let own = Own::open(&[("aggregate_after", "0")]);
    let (mut buffer, sent) = (vec![0xee; 4_000], content(2, 300));
    own.recv_many(1, &mut buffer);
    (2..5).for_each(|context| own.send_plain(context, &sent));
    own.engine.cancel(own.ep, 1).unwrap();
    let ends = [own.poll(), own.poll(), own.poll()].concat();
    let said: Vec<_> = ends.iter().map(|c| (c.len, c.error)).collect();
    let message = (300, None);
    assert_eq!(
        said,
        [message, message, message, (0, Some(OpError::Cancelled))]
    );
    assert_eq!(ends[3].flags & flag::MULTI_RECV, flag::MULTI_RECV);
    for n in 0..3 {
        assert!(buffer[304 * n..304 * n + 300] == sent, "message {n}");
    }
    own.close();
}

#[test]
fn own_memory_is_read_only_where_registered() {
    let own = Own::open(&[]);
    let (mut region, mut got) = (content(5, 100_000), vec![0; 70_000]);
    let base = region.as_mut_ptr();
    let opened = own.engine.mr_open(&Region {
        key: 42,
        base,
        len: region.len(),
        virt_addr: false,
        readable: true,
        writable: false,
    });
    opened.unwrap();
    for (context, key) in [(1, 42), (2, 43)] {
        let req = RemoteReq {
            dest: 0,
            iov: &iov(&mut got),
            remote: &[(1_000, 70_000, key)],
            data: None,
            context,
            flags: OpFlags::COMPLETION,
        };
        own.engine.read(own.ep, &req).unwrap();
    }
    let ends = [own.poll(), own.poll()].concat();
    assert_eq!((ends[0].context, ends[0].error), (1, None));
    assert_eq!(ends[1].error, Some(OpError::BadRemoteMemory));
    assert!(got == region[1_000..71_000]);
    own.close();
}

/// Writes or reads one range of registered memory; returns the error.
fn remote(own: &Own, context: usize, mine: &mut [u8], at: u64, key: u64) -> Option<OpError> {
    let req = RemoteReq {
        dest: 0,
        iov: &iov(mine),
        remote: &[(at, mine.len(), key)],
        data: None,
        context,
        flags: OpFlags::COMPLETION,
    };
    own.engine.put(own.ep, &req).unwrap();
    let ends = own.poll();
    assert_eq!((ends.len(), ends[0].context), (1, context));
    assert_eq!(ends[0].flags, flag::RMA | flag::WRITE);
    ends[0].error
}

#[test]
fn own_memory_is_written_only_where_registered_for_writing() {
    let own = Own::open(&[]);
    let (mut region, mut sent) = (vec![0; 100_000], content(5, 70_000));
    let base = region.as_mut_ptr();
    for (key, writable) in [(42, true), (43, false)] {
        let region = Region {
            key,
            base,
            len: 100_000,
            virt_addr: key == 42,
            readable: true,
            writable,
        };
        own.engine.mr_open(&region).unwrap();
        assert_eq!(own.engine.mr_open(&region), Err(SubmitError::Invalid));
    }
    let at = base as u64 + 1_000;
    assert_eq!(remote(&own, 1, &mut sent, at, 42), None);
    assert!(region[1_000..71_000] == sent && region[..1_000] == [0; 1_000]);
    let refused = Some(OpError::BadRemoteMemory);
    assert_eq!(remote(&own, 2, &mut sent, at + 29_001, 42), refused);
    assert_eq!(remote(&own, 3, &mut sent, 0, 43), refused, "read-only");
    assert_eq!(remote(&own, 4, &mut sent, 0, 44), refused, "unknown");
    assert_eq!(remote(&own, 5, &mut [], 0, 44), refused, "also no bytes");
    assert_eq!(remote(&own, 5, &mut [], at, 42), None);
    own.engine.mr_close(42);
    assert_eq!(remote(&own, 6, &mut sent, at, 42), refused, "closed");
    assert!(region[71_000..] == [0; 29_000]);
    // Failure is reported although no completion was requested.
    let req = RemoteReq {
        dest: 0,
        iov: &iov(&mut sent),
        remote: &[(at, 70_000, 42)],
        data: None,
        context: 7,
        flags: OpFlags::default(),
    };
    own.engine.put(own.ep, &req).unwrap();
    assert_eq!(own.poll()[0].error, refused);
    own.close();
}

#[test]
fn messages_that_nothing_receives_are_bounded_and_do_not_hold_up_the_close() {
    // Room for 8,192 empty messages by the charge for each.
    let own = Own::open(&[("unexpected_bytes", "1M")]);
    let mut refused = None;
    for n in 0..10_000 {
        if own
            .try_send(n, n as u64, &mut [], OpFlags::COMPLETION)
            .is_err()
        {
            refused = Some(n);
            break;
        }
    }
    assert_eq!(refused, Some(8_192));
    while !own.poll().is_empty() {}
    own.recv(9_999, 0, (0, !0), &mut [], OpFlags::COMPLETION);
    assert_eq!(own.ends(), [9_999]);
    own.send(8_192, 7, &mut [], OpFlags::COMPLETION);
    own.close();
}

/// Long remote writes wait for the next poll; the memory for their state is bounded.
#[test]
fn writes_to_oneself_are_bounded_and_go_on_once_polled() {
    // Too long for an RPC, which would execute immediately.
    const LONG: usize = 5_000;
    // As many as empty messages above.
    let own = Own::open(&[("unexpected_bytes", "1M"), ("progress_thread", "off")]);
    let (mut region, mut sent) = (vec![0; LONG], content(5, LONG));
    let base = region.as_mut_ptr();
    let memory = Region {
        key: 42,
        base,
        len: LONG,
        virt_addr: false,
        readable: true,
        writable: true,
    };
    own.engine.mr_open(&memory).unwrap();
    let put = |context, bytes: &mut [u8]| {
        let req = RemoteReq {
            dest: 0,
            iov: &iov(bytes),
            remote: &[(0, LONG, 42)],
            data: None,
            context,
            flags: OpFlags::COMPLETION,
        };
        own.engine.put(own.ep, &req)
    };
    let first = (0..10_000).find_map(|n| put(n, &mut sent).err().map(|e| (n, e)));
    assert_eq!(first, Some((8_192, SubmitError::Again)));
    let mut ended = Vec::new();
    while ended.len() < 8_192 {
        let some = own.poll();
        assert!(!some.is_empty(), "{} ended", ended.len());
        ended.extend(some.iter().map(|c| (c.context, c.error)));
    }
    assert!(ended.iter().copied().eq((0..8_192).map(|n| (n, None))));
    assert_eq!(region, sent);
    put(8_192, &mut sent).unwrap();
    assert_eq!(own.ends(), [8_192]);
    own.close();
}

/// libfabric's numbers of 64-bit integers and of operations on them.
const UINT64: u8 = 7;
const SUM: u8 = 2;
const CSWAP: u8 = 12;

/// An atomic that is too long for one RPC is split; remote pieces may end within elements.
#[test]
fn long_atomics_reach_each_element_once_and_end_once() {
    let own = Own::open(&[]);
    let most = atomic_max(AtomicKind::Fetch, 8);
    assert_eq!(most * 8, 65_536);
    let mut cells: Vec<u64> = (0..most as u64).collect();
    let region = Region {
        key: 9,
        base: cells.as_mut_ptr().cast(),
        len: most * 8,
        virt_addr: false,
        readable: true,
        writable: true,
    };
    own.engine.mr_open(&region).unwrap();
    let bytes =
        |values: &[u64]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let (mut operands, mut old) = (bytes(&vec![5; most]), vec![0; most * 8]);
    let (mut compare, mut again) = (bytes(&vec![7; most]), vec![0; most * 8]);
    let mut pieces = Vec::new();
    for piece in old.chunks_mut(4_099) {
        pieces.extend(iov(piece));
    }
    let add = AtomicReq {
        dest: 0,
        kind: AtomicKind::Fetch,
        datatype: UINT64,
        op: SUM,
        operands: &iov(&mut operands),
        compare: &[],
        result: &pieces,
        remote: &[(0, most, 9)],
        context: 1,
        flags: OpFlags::COMPLETION,
    };
    assert_eq!(own.engine.atomic(own.ep, &add), Ok(()));
    assert_eq!(own.ends(), [1]);
    assert_eq!(old, bytes(&(0..most as u64).collect::<Vec<_>>()));
    // One of the elements 5, 6, 7, … compares equal.
    let swap = AtomicReq {
        kind: AtomicKind::Compare,
        op: CSWAP,
        compare: &iov(&mut compare),
        result: &iov(&mut again),
        context: 2,
        ..add
    };
    assert_eq!(own.engine.atomic(own.ep, &swap), Ok(()));
    assert_eq!(own.ends(), [2]);
    let mut wanted: Vec<u64> = (5..5 + most as u64).collect();
    assert_eq!(again, bytes(&wanted));
    wanted[2] = 5;
    assert_eq!(cells, wanted);
    let long = AtomicReq {
        remote: &[(0, most + 1, 9)],
        ..add
    };
    assert_eq!(own.engine.atomic(own.ep, &long), Err(SubmitError::Invalid));
    // The last part is beyond the memory.
    let beyond = AtomicReq {
        remote: &[(8, most, 9)],
        context: 3,
        ..add
    };
    assert_eq!(own.engine.atomic(own.ep, &beyond), Ok(()));
    let ended = own.poll();
    let errors: Vec<_> = ended.iter().map(|c| (c.context, c.error)).collect();
    assert_eq!(errors, [(3, Some(OpError::BadRemoteMemory))]);
}
