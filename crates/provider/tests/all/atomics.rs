//! Atomic operations by the C API: each operation reported as valid has libfabric's semantics, all
//! others are refused; all variants of the calls, several segments of either side, refusals.

use crate::abi;

use crate::common;

use abi::ep::*;
use abi::*;
use common::elements::{element, is_defined, value, Kind, Kind::*, OPS, TYPES};
use common::target::{Target, KEYS};
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

const NOT_SUPPORTED: c_int = -libc::EOPNOTSUPP;
const INVALID: isize = -(libc::EINVAL as isize);
const BAD_FLAGS: isize = -260;
const UINT64: c_int = 7;
const SUM: c_int = 2;
const READ: c_int = 10;
const CSWAP: c_int = 12;

/// The segments of an operation.
fn pieces<T>(parts: &mut [&mut [T]]) -> Vec<fi_ioc> {
    let ioc = |part: &mut &mut [T]| fi_ioc {
        addr: part.as_mut_ptr().cast(),
        count: part.len(),
    };
    parts.iter_mut().map(ioc).collect()
}

/// An operation on local and remote segments.
struct Ask<'a> {
    kind: Kind,
    datatype: c_int,
    op: c_int,
    operands: &'a [fi_ioc],
    compare: &'a [fi_ioc],
    results: &'a mut [fi_ioc],
    there: &'a [fi_rma_ioc],
    to: fi_addr_t,
}

impl Ask<'_> {
    /// By `fi_atomicmsg` and its variants.
    fn message(&mut self, t: &Target, flags: u64) -> isize {
        let msg = fi_msg_atomic {
            msg_iov: self.operands.as_ptr(),
            desc: null_mut(),
            iov_count: self.operands.len(),
            addr: self.to,
            rma_iov: self.there.as_ptr(),
            rma_iov_count: self.there.len(),
            datatype: self.datatype,
            op: self.op,
            context: 91 as *mut c_void,
            data: 0,
        };
        let (ep, none) = (t.p.ep[0], null_mut());
        let (compare, compares) = (self.compare.as_ptr(), self.compare.len());
        let (results, fetches) = (self.results.as_mut_ptr(), self.results.len());
        // SAFETY: all memory lives until the operation has ended.
        unsafe {
            let ops = &*(*ep).atomic;
            match self.kind {
                Plain => (ops.writemsg)(ep, &msg, flags),
                Fetch => (ops.readwritemsg)(ep, &msg, results, none, fetches, flags),
                Compare => (ops.compwritemsg)(
                    ep, &msg, compare, none, compares, results, none, fetches, flags,
                ),
            }
        }
    }

    /// By `fi_atomicv` and its variants.
    fn vector(&mut self, t: &Target) -> isize {
        let (ep, none, context) = (t.p.ep[0], null_mut(), 91 as *mut c_void);
        let (from, n) = (self.operands.as_ptr(), self.operands.len());
        let (compare, compares) = (self.compare.as_ptr(), self.compare.len());
        let (results, fetches) = (self.results.as_mut_ptr(), self.results.len());
        let (to, addr, key) = (self.to, self.there[0].addr, self.there[0].key);
        let (datatype, op) = (self.datatype, self.op);
        // SAFETY: all memory lives until the operation has ended.
        unsafe {
            let ops = &*(*ep).atomic;
            match self.kind {
                Plain => (ops.writev)(ep, from, none, n, to, addr, key, datatype, op, context),
                Fetch => (ops.readwritev)(
                    ep, from, none, n, results, none, fetches, to, addr, key, datatype, op, context,
                ),
                Compare => (ops.compwritev)(
                    ep, from, none, n, compare, none, compares, results, none, fetches, to, addr,
                    key, datatype, op, context,
                ),
            }
        }
    }
}

fn place(addr: u64, count: usize) -> [fi_rma_ioc; 1] {
    let key = KEYS[0];
    [fi_rma_ioc { addr, count, key }]
}

/// The validity of an operation: an error, or the maximum of elements.
fn said(t: &Target, kind: Kind, datatype: c_int, op: c_int) -> Result<usize, c_int> {
    let (mut count, mut attr) = (0, fi_atomic_attr { count: 0, size: 0 });
    let flags = match kind {
        Plain => 0,
        Fetch => FI_FETCH_ATOMIC,
        Compare => FI_COMPARE_ATOMIC,
    };
    // SAFETY: objects of the provider.
    let answers = unsafe {
        let ops = &*(*t.p.ep[0]).atomic;
        let valid = match kind {
            Plain => ops.writevalid,
            Fetch => ops.readwritevalid,
            Compare => ops.compwritevalid,
        };
        let query = (*(*t.p.domain).ops).query_atomic;
        [
            valid(t.p.ep[0], datatype, op, &mut count),
            valid(t.p.ep[0], datatype, op, null_mut()),
            query(t.p.domain, datatype, op, &mut attr, flags),
            query(t.p.domain, datatype, op, null_mut(), flags),
        ]
    };
    assert_eq!(answers, [answers[0]; 4], "{kind:?} {datatype} {op}");
    if answers[0] != 0 {
        return Err(answers[0]);
    }
    let (_, _, size) = TYPES[datatype as usize];
    assert_eq!((attr.count, attr.size), (count, size));
    assert_eq!(count, (64 << 10) / size);
    Ok(count)
}

/// Performs an operation on the peer and on the endpoint itself, and checks the results.
fn works(t: &mut Target, kind: Kind, datatype: usize, op: usize) {
    let (name, result, _) = OPS[op];
    for to in [1, 0] {
        let here = element(datatype, 5);
        t.memory[0][..here.len()].copy_from_slice(&here);
        let (mut operand, mut compare) = (element(datatype, 3), element(datatype, 5));
        let mut old = vec![0u8; here.len()];
        let one = |bytes: &mut Vec<u8>| fi_ioc {
            addr: bytes.as_mut_ptr().cast(),
            count: 1,
        };
        let mut ask = Ask {
            kind,
            datatype: datatype as c_int,
            op: op as c_int,
            operands: &[one(&mut operand)],
            compare: &[one(&mut compare)],
            results: &mut [one(&mut old)],
            there: &place(0, 1),
            to,
        };
        assert_eq!(ask.message(t, FI_COMPLETION), 0);
        let direction = if kind == Plain { FI_WRITE } else { FI_READ };
        assert_eq!(t.p.entry().0.flags, FI_ATOMIC | direction);
        let what = format!("{name} of {}, {kind:?}", TYPES[datatype].0);
        let there = value(datatype, &t.memory[0]);
        assert_eq!(there, value(datatype, &element(datatype, result)), "{what}");
        if kind != Plain {
            assert_eq!(value(datatype, &old), value(datatype, &here), "{what}");
        }
    }
}

#[test]
fn valid_atomics_work_and_all_others_are_refused() {
    let mut t = Target::open();
    let mut word = [1u64; 4];
    for datatype in 0..TYPES.len() + 1 {
        for op in (0..OPS.len()).chain([OPS.len()]) {
            for kind in [Plain, Fetch, Compare] {
                let defined = datatype < TYPES.len()
                    && op < OPS.len()
                    && is_defined(datatype, OPS[op].0)
                    && OPS[op].2.contains(&kind)
                    && (cfg!(target_arch = "x86_64") || ![12, 13].contains(&datatype));
                let (number, code) = (datatype as c_int, op as c_int);
                let answer = said(&t, kind, number, code);
                assert_eq!(answer.is_ok(), defined, "{kind:?} {datatype} {op}");
                if defined {
                    works(&mut t, kind, datatype, op);
                    continue;
                }
                assert_eq!(answer, Err(NOT_SUPPORTED));
                let one = fi_ioc {
                    addr: word.as_mut_ptr().cast(),
                    count: 1,
                };
                let mut ask = Ask {
                    kind,
                    datatype: number,
                    op: code,
                    operands: &[one],
                    compare: &[one],
                    results: &mut [one],
                    there: &place(0, 1),
                    to: 1,
                };
                for rc in [ask.message(&t, 0), ask.vector(&t)] {
                    assert_eq!(rc, NOT_SUPPORTED as isize, "{kind:?} {datatype} {op}");
                }
            }
        }
    }
    for (datatype, op) in [(-1, 0), (0, -1), (256, 2), (7, 258)] {
        assert_eq!(said(&t, Plain, datatype, op), Err(NOT_SUPPORTED));
    }
    // SAFETY: objects of the provider.
    unsafe {
        let query = (*(*t.p.domain).ops).query_atomic;
        let of = |flags| query(t.p.domain, UINT64, SUM, null_mut(), flags);
        assert_eq!(of(FI_TAGGED), NOT_SUPPORTED, "atomics on tagged buffers");
        assert_eq!(of(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC), -libc::EINVAL);
    }
    t.close();
}

fn words(t: &Target, at: usize, count: usize) -> Vec<u64> {
    let bytes = t.memory[0][at..at + 8 * count].chunks_exact(8);
    bytes
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// Both variants accept several local segments, split differently, with few elements and with many.
#[test]
fn operands_and_results_lie_in_pieces() {
    for count in [10, 5_000] {
        let mut t = Target::open();
        let mut operands: Vec<u64> = (1..=count as u64).collect();
        let mut expected = vec![0; count];
        let mut old = vec![0u64; count];
        for (round, (kind, op)) in [(Plain, SUM), (Fetch, SUM), (Compare, CSWAP), (Fetch, READ)]
            .into_iter()
            .cycle()
            .take(8)
            .enumerate()
        {
            let before = expected.clone();
            let mut compare = expected.clone();
            compare[3] ^= 1; // the comparison fails for this one
            let (a, b) = operands.split_at_mut(3);
            let (c, d) = compare.split_at_mut(7);
            let (e, f) = old.split_at_mut(1);
            let (f, g) = f.split_at_mut(5);
            let (operands, compare) = (pieces(&mut [a, b]), pieces(&mut [c, d]));
            let mut results = pieces(&mut [e, f, g]);
            let mut ask = Ask {
                kind,
                datatype: UINT64,
                op,
                operands: &operands,
                compare: &compare,
                results: &mut results,
                there: &place(16, count),
                to: 1,
            };
            let rc = match round < 4 {
                true => ask.message(&t, FI_COMPLETION),
                false => ask.vector(&t),
            };
            assert_eq!(rc, 0);
            t.p.entry();
            for (i, word) in expected.iter_mut().enumerate() {
                let operand = i as u64 + 1;
                *word = match op {
                    SUM => *word + operand,
                    CSWAP if i != 3 => operand,
                    _ => *word,
                };
            }
            assert_eq!(words(&t, 16, count), expected, "{kind:?}");
            if kind != Plain {
                assert_eq!(old, before, "{kind:?}");
            }
        }
        t.counted(8, 0);
        t.memory[0].clear();
        t.close();
    }
}

/// Both endpoints sum into one word of one of them: every fetched value is different.
#[test]
fn own_operations_are_atomic_with_those_of_others() {
    const EACH: usize = 200;
    let t = Target::open();
    let (mut one, mut old) = (1u64, [[u64::MAX; EACH]; 2]);
    let (none, key) = (null_mut(), KEYS[0]);
    let from = (&raw mut one).cast();
    let mut posted = 0;
    for i in 0..EACH {
        for (side, old) in old.iter_mut().enumerate() {
            let back = (&raw mut old[i]).cast();
            // SAFETY: the memory lives until the operation has ended.
            while unsafe {
                let (ep, context) = (t.p.ep[side], 7 as *mut c_void);
                let readwrite = (*(*ep).atomic).readwrite;
                readwrite(
                    ep, from, 1, none, back, none, 1, 0, key, UINT64, SUM, context,
                )
            } != 0
            {
                assert!(t.p.poll().is_ok_and(|_| posted > 0));
                posted -= 1;
            }
            posted += 1;
        }
    }
    (0..posted).for_each(|_| _ = t.p.entry());
    let mut found = old.concat();
    found.sort_unstable();
    assert!(found.into_iter().eq(0..2 * EACH as u64), "none twice");
    assert_eq!(words(&t, 0, 1), [2 * EACH as u64]);
    t.close();
}

/// An injected atomic copies its operands at once; `fi_inject_atomic` writes no entry.
#[test]
fn injected_atomics_write_entries_on_request() {
    let t = Target::open();
    let (mut operands, mut old) = ([5u64; 2], [0u64; 2]);
    for (i, (kind, flags)) in [
        (Plain, FI_INJECT | FI_COMPLETION),
        (Plain, FI_INJECT | FI_DELIVERY_COMPLETE),
        (Fetch, FI_INJECT | FI_COMPLETION),
    ]
    .into_iter()
    .enumerate()
    {
        operands.fill(5);
        let (operand, mut result) = (pieces(&mut [&mut operands]), pieces(&mut [&mut old]));
        let mut ask = Ask {
            kind,
            datatype: UINT64,
            op: SUM,
            operands: &operand,
            compare: &[],
            results: &mut result,
            there: &place(0, 2),
            to: 1,
        };
        assert_eq!(ask.message(&t, flags), 0);
        operands.fill(u64::MAX);
        if flags & FI_COMPLETION != 0 {
            assert_eq!(t.p.entry().0.op_context as usize, 91);
        }
        t.counted(i as u64 + 1, 0);
        assert_eq!(words(&t, 0, 2), [5 * (i as u64 + 1); 2]);
    }
    assert_eq!(old, [10; 2]);
    // SAFETY: the memory is free when the call returns.
    let rc = unsafe {
        let (ep, from) = (t.p.ep[0], operands.as_mut_ptr());
        *from = 7;
        let rc = ((*(*ep).atomic).inject)(ep, from.cast(), 1, 1, 0, KEYS[0], UINT64, SUM);
        *from = 0;
        rc
    };
    assert_eq!(rc, 0);
    t.counted(4, 0);
    assert_eq!(words(&t, 0, 2), [22, 15]);
    assert!(t.p.poll().is_err(), "nobody asked for an entry");
    t.close();
}

/// The result of a sum (or swap) with these numbers of local words (operands, compare values,
/// results) at these remote places.
fn asked(
    t: &Target,
    kind: Kind,
    (operands, compare, results): (usize, usize, usize),
    there: &[fi_rma_ioc],
    flags: u64,
) -> isize {
    static WORDS: [u64; 9_000] = [1; 9_000];
    let lone = |count| {
        let addr = WORDS.as_ptr().cast_mut().cast(); // (nothing that succeeds has results)
        [fi_ioc { addr, count }]
    };
    let mut ask = Ask {
        kind,
        datatype: UINT64,
        op: if kind == Compare { CSWAP } else { SUM },
        operands: &lone(operands),
        compare: &lone(compare),
        results: &mut lone(results),
        there,
        to: 1,
    };
    ask.message(t, flags)
}

#[test]
fn flags_and_lengths_that_cannot_be_are_refused_at_once() {
    let t = Target::open();
    let one = place(0, 1);
    for flags in [FI_REMOTE_CQ_DATA, FI_TAGGED, FI_PEEK] {
        for kind in [Plain, Fetch, Compare] {
            assert_eq!(asked(&t, kind, (1, 1, 1), &one, flags), BAD_FLAGS);
        }
    }
    // More than 64 KiB by one element; lengths that differ.
    for count in [8_193, usize::MAX] {
        let lengths = (count.min(9_000), 1, 1);
        assert_eq!(asked(&t, Plain, lengths, &place(0, count), 0), INVALID);
    }
    for (kind, lengths) in [
        (Plain, (2, 0, 0)),
        (Plain, (0, 0, 0)),
        (Fetch, (1, 0, 2)),
        (Fetch, (2, 0, 1)),
        (Compare, (1, 2, 1)),
        (Compare, (1, 0, 1)),
        (Compare, (1, 1, 0)),
    ] {
        let rc = asked(&t, kind, lengths, &one, 0);
        assert_eq!(rc, INVALID, "{kind:?} {lengths:?}");
    }
    assert_eq!(asked(&t, Plain, (0, 0, 0), &place(0, 0), 0), INVALID);
    assert_eq!(asked(&t, Plain, (1, 0, 0), &[], 0), INVALID);
    assert_eq!(asked(&t, Plain, (9, 0, 0), &[one[0]; 9], 0), INVALID);
    t.counted(0, 0);
    // Only the target can detect this.
    assert_eq!(asked(&t, Plain, (1, 0, 0), &place(199_993, 1), 0), 0);
    assert_eq!(t.p.error().err, libc::EACCES);
    t.counted(0, 1);
    // SAFETY: no entries.
    unsafe {
        let (ep, none) = (t.p.ep[0], null_mut());
        let writev = (*(*ep).atomic).writev;
        for count in [1, 9] {
            let context = null_mut();
            let rc = writev(ep, null(), none, count, 1, 0, KEYS[0], UINT64, SUM, context);
            assert_eq!(rc, INVALID, "no list of {count}");
        }
    }
    t.close();
}

/// Several segments in several regions of the peer are one operation.
#[test]
fn several_remote_pieces_are_one_operation() {
    for to in [1, 0] {
        let mut t = Target::open();
        let lengths = [3, 0, 600, 1, 2_000];
        let total: usize = lengths.iter().sum();
        let mut operands: Vec<u64> = (1..=total as u64).collect();
        let (mut old, mut compare) = (vec![7u64; total], vec![0u64; total]);
        let mut ends = [8u64, 24];
        let there: Vec<fi_rma_ioc> = lengths
            .into_iter()
            .enumerate()
            .map(|(i, count)| {
                let (addr, key) = (ends[i % 2], KEYS[i % 2]);
                ends[i % 2] += 8 * count as u64;
                fi_rma_ioc { addr, count, key }
            })
            .collect();
        let gathered = |t: &Target| -> Vec<u64> {
            let of = |piece: &fi_rma_ioc| {
                let memory = &t.memory[(piece.key - KEYS[0]) as usize];
                let bytes = &memory[piece.addr as usize..][..8 * piece.count];
                bytes.to_vec()
            };
            let bytes: Vec<u8> = there.iter().flat_map(of).collect();
            let words = bytes.chunks_exact(8);
            words
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                .collect()
        };
        let rounds = [(Plain, SUM, 1), (Fetch, SUM, 2), (Compare, CSWAP, 2)];
        for (round, (kind, op, times)) in rounds.into_iter().enumerate() {
            let before = gathered(&t);
            let (from, with) = (pieces(&mut [&mut operands]), pieces(&mut [&mut compare]));
            let mut results = pieces(&mut [&mut old]);
            let mut ask = Ask {
                kind,
                datatype: UINT64,
                op,
                operands: &from,
                compare: &with,
                results: &mut results,
                there: &there,
                to,
            };
            assert_eq!(ask.message(&t, FI_COMPLETION), 0);
            assert_eq!(t.p.entry().0.op_context as usize, 91);
            t.counted(round as u64 + 1, 0);
            let expected: Vec<u64> = operands.iter().map(|word| word * times).collect();
            assert_eq!(gathered(&t), expected, "{kind:?}");
            if kind != Plain {
                assert_eq!(old, before, "{kind:?}");
            }
        }
        assert!(t.p.poll().is_err(), "one entry each");
        let untouched = 400_000 - 8 * total;
        let zeros = t.memory.iter_mut().flat_map(|memory| memory.drain(..));
        assert!(zeros.filter(|byte| *byte == 0).count() >= untouched);
        t.close();
    }
}
