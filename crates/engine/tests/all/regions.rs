//! Registered memory in several pieces, accessed over loopback.

use marline_engine::settings::Settings;
use marline_engine::{
    AtomicKind, AtomicReq, Completion, CqId, Engine, EpId, IoVec, LogSink, OpError, OpFlags,
    Region, RemoteReq,
};
use std::sync::Arc;

const KEY: u64 = 9;
const REFUSED: Option<OpError> = Some(OpError::BadRemoteMemory);
/// libfabric's numbers of a datatype and an operation.
const UINT64: u8 = 7;
const SUM: u8 = 2;

struct Own {
    engine: Engine,
    cq: CqId,
    ep: EpId,
}

fn iov(bytes: &mut [u8]) -> IoVec {
    IoVec {
        base: bytes.as_mut_ptr(),
        len: bytes.len(),
    }
}

impl Own {
    /// Opens an endpoint with these pieces registered in this order.
    fn open(pieces: &[IoVec], virt_addr: bool) -> Own {
        let given = |name: &str| (name == "rails").then(|| "lo".to_owned());
        let settings = Settings::from_lookup(given).unwrap();
        let engine = Engine::open(settings, LogSink(Arc::new(|_, _| ()))).unwrap();
        let (cq, av) = (engine.cq_open(), engine.av_open());
        let ep = engine.ep_open().unwrap();
        engine.ep_bind_av(ep, av);
        engine.ep_bind_tx_cq(ep, cq);
        engine.ep_enable(ep).unwrap();
        let (name, len) = engine.ep_name(ep).unwrap();
        assert_eq!(engine.av_insert(av, &name[..len]), Ok(0));
        let region = Region {
            key: KEY,
            base: pieces[0].base,
            len: pieces.iter().map(|piece| piece.len).sum(),
            virt_addr,
            readable: true,
            writable: true,
        };
        engine.mr_open_pieces(&region, pieces).unwrap();
        Own { engine, cq, ep }
    }

    fn end(&self) -> Option<OpError> {
        let mut entries = [Completion::empty(); 2];
        loop {
            match self.engine.cq_read(self.cq, &mut entries) {
                Ok(0) => continue,
                Ok(n) => assert_eq!(n, 1),
                Err(()) => entries[0] = self.engine.cq_take_error(self.cq).unwrap(),
            }
            assert_eq!(entries[0].context, 5);
            return entries[0].error;
        }
    }

    /// Writes to the region, or reads from it.
    fn go(&self, writes: bool, mine: &mut [u8], at: u64) -> Option<OpError> {
        let req = RemoteReq {
            dest: 0,
            iov: &[iov(mine)],
            remote: &[(at, mine.len(), KEY)],
            data: None,
            context: 5,
            flags: OpFlags::COMPLETION,
        };
        match writes {
            true => self.engine.put(self.ep, &req).unwrap(),
            false => self.engine.read(self.ep, &req).unwrap(),
        }
        self.end()
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + 1) as u8).collect()
}

/// Short operations travel as RPCs, long ones do not.
#[test]
fn pieces_are_contiguous_for_peers() {
    let (mut a, mut b, mut c) = (vec![0; 100], vec![0; 30_000], vec![0; 20]);
    let own = Own::open(
        &[iov(&mut b), iov(&mut a), iov(&mut []), iov(&mut c)],
        false,
    );
    for (from, len) in [(0, 30_120), (29_990, 130), (30_050, 60), (30_100, 20)] {
        let (mut sent, mut got) = (content(len), vec![0; len]);
        assert_eq!(own.go(true, &mut sent, from as u64), None);
        let all = [&b[..], &a, &c].concat();
        assert_eq!(all[from..from + len], sent);
        assert_eq!(own.go(false, &mut got, from as u64), None);
        assert_eq!(got, sent);
    }
    for writes in [true, false] {
        assert_eq!(own.go(writes, &mut [1, 2], 30_119), REFUSED, "beyond");
        assert_eq!(own.go(writes, &mut [1, 2], u64::MAX), REFUSED);
    }
}

#[test]
fn accesses_by_address_stay_in_adjacent_pieces() {
    let mut memory = vec![0; 3_000];
    let base = memory.as_mut_ptr() as u64;
    let (first, rest) = memory.split_at_mut(1_000);
    let (second, rest) = rest.split_at_mut(500);
    let pieces = [iov(second), iov(first), iov(&mut rest[100..])];
    let own = Own::open(&pieces, true);
    for writes in [true, false] {
        assert_eq!(own.go(writes, &mut [1; 500], base + 1_000), None);
        assert_eq!(own.go(writes, &mut [2; 1_000], base), None);
        assert_eq!(own.go(writes, &mut [3; 1_400], base + 1_600), None);
        // The first two pieces are adjacent, but the second is registered in front.
        for (at, len) in [(999, 2), (1_499, 2), (1_599, 1), (1_500, 10), (2_999, 2)] {
            assert_eq!(
                own.go(writes, &mut vec![9; len], base + at),
                REFUSED,
                "{at}"
            );
        }
    }
    let want = [vec![2; 1_000], vec![1; 500], vec![0; 100], vec![3; 1_400]];
    assert_eq!(memory, want.concat());
    let (first, second) = memory.split_at_mut(700);
    let own = Own::open(&[iov(first), iov(second)], true);
    assert_eq!(
        own.go(true, &mut [4; 600], base + 400),
        None,
        "without a gap"
    );
    assert_eq!(memory[400..1_000], [4; 600]);
}

/// Elements may span two pieces.
#[test]
fn atomics_reach_elements_in_two_pieces() {
    let (mut a, mut b) = (vec![0xff; 13], vec![0; 11]);
    let own = Own::open(&[iov(&mut a), iov(&mut b)], false);
    let (mut one, mut old) = ([1u64, 1, 1].map(u64::to_le_bytes).concat(), vec![0; 24]);
    let request = AtomicReq {
        dest: 0,
        kind: AtomicKind::Fetch,
        datatype: UINT64,
        op: SUM,
        operands: &[iov(&mut one)],
        compare: &[],
        result: &[iov(&mut old)],
        remote: &[(0, 3, KEY)],
        context: 5,
        flags: OpFlags::COMPLETION,
    };
    own.engine.atomic(own.ep, &request).unwrap();
    assert_eq!(own.end(), None);
    assert_eq!(old, [vec![0xff; 13], vec![0; 11]].concat());
    let cells = [a, b].concat();
    let cells: Vec<u64> = (cells.chunks_exact(8))
        .map(|cell| u64::from_le_bytes(cell.try_into().unwrap()))
        .collect();
    assert_eq!(cells, [0, (1 << 40), 1]);
}
