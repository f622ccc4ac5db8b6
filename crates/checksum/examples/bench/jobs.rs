//! The timed jobs: our sums and copies, plain copies, and other libraries.

use crate::isal;
use marline_checksum::{
    copy_and_sum, plain_copy, sum, Algorithm, CopyMode, Summer, Tier, Variant, BLOCK_BYTES,
};
use std::hint::black_box;

/// Processes `len` bytes from the second to the first pointer, which are valid for that length.
pub(crate) type Work = Box<dyn Fn(*mut u8, *const u8, usize) -> u64>;

/// A job to time.
pub(crate) struct Job {
    /// An algorithm of ours, or a library and its algorithm.
    pub(crate) name: String,
    /// The kind of job: `sum`, `copy_and_sum`, …
    pub(crate) way: &'static str,
    pub(crate) work: Work,
}

impl Job {
    fn new(name: impl ToString, way: &'static str, work: Work) -> Job {
        let name = name.to_string();
        Job { name, way, work }
    }
}

/// The bytes of a job's source.
///
/// # Safety
/// `src` is readable for `len` bytes while the result is used.
unsafe fn bytes<'a>(src: *const u8, len: usize) -> &'a [u8] {
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(src, len) }
}

/// Copies without a sum: glibc's, ours with plain stores, ours with streaming stores.
pub(crate) fn plain() -> Vec<Job> {
    let own = |mode| -> Work {
        Box::new(move |dst, src, len| {
            // SAFETY: a job's buffers are valid.
            unsafe { plain_copy(dst, src, len, mode) };
            0
        })
    };
    let memcpy: Work = Box::new(|dst, src, len| {
        // SAFETY: a job's buffers are valid.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
        0
    });
    vec![
        Job::new("plain", "memcpy", memcpy),
        Job::new("plain", "own", own(CopyMode::Cached)),
        Job::new("plain", "own_stream", own(CopyMode::Streaming)),
    ]
}

/// An algorithm of ours in all variants.
pub(crate) fn ours(algorithm: Algorithm) -> Vec<Job> {
    let with = move |mode, variant| -> Work {
        Box::new(move |dst, src, len| {
            let mut s = Summer::new(algorithm, black_box(1));
            // SAFETY: a job's buffers are valid.
            unsafe { s.copy_with(dst, src, len, mode, variant) };
            s.finish()
        })
    };
    let whole: Work = Box::new(move |_, src, len| {
        // SAFETY: a job's buffers are valid.
        sum(algorithm, black_box(1), unsafe { bytes(src, len) })
    });
    let narrow: Work = Box::new(move |_, src, len| {
        let mut s = Summer::with_tier(algorithm, black_box(1), Tier::Sse42);
        // SAFETY: a job's buffers are valid.
        s.update(unsafe { bytes(src, len) });
        s.finish()
    });
    let copy: Work = Box::new(move |dst, src, len| {
        // SAFETY: a job's buffers are valid.
        unsafe { copy_and_sum(algorithm, black_box(1), dst, src, len) }
    });
    vec![
        Job::new(algorithm, "sum", whole),
        Job::new(algorithm, "sum_sse42", narrow),
        Job::new(algorithm, "copy_and_sum", copy),
        Job::new(
            algorithm,
            "blocked",
            with(CopyMode::Cached, Variant::Blocked),
        ),
        Job::new(
            algorithm,
            "stream_fused",
            with(CopyMode::Streaming, Variant::Fused),
        ),
        Job::new(
            algorithm,
            "stream_blocked",
            with(CopyMode::Streaming, Variant::Blocked),
        ),
    ]
}

/// A library's sum, alone and combined with copying in the usual way: memcpy of a block that stays
/// in L1, then the block's sum.
fn library<S: Copy + 'static>(
    name: &str,
    start: S,
    update: impl Fn(S, &[u8]) -> S + Copy + 'static,
    finish: impl Fn(S) -> u64 + Copy + 'static,
) -> Vec<Job> {
    // SAFETY: a job's buffers are valid.
    let alone: Work =
        Box::new(move |_, src, len| unsafe { finish(update(black_box(start), bytes(src, len))) });
    let copy: Work = Box::new(move |dst, src, len| {
        let (mut state, mut at) = (black_box(start), 0);
        while at < len {
            let n = BLOCK_BYTES.min(len - at);
            // SAFETY: a job's buffers are valid, and the block ends at or before `len`.
            state = unsafe {
                std::ptr::copy_nonoverlapping(src.add(at), dst.add(at), n);
                update(state, bytes(dst.add(at), n))
            };
            at += n;
        }
        finish(state)
    });
    vec![
        Job::new(name, "sum", alone),
        Job::new(name, "copy_and_sum", copy),
    ]
}

/// A library whose state cannot be continued and copied: only its sum is measured.
fn library_sum(name: &str, of: impl Fn(&[u8]) -> u64 + 'static) -> Vec<Job> {
    // SAFETY: a job's buffers are valid.
    let work: Work = Box::new(move |_, src, len| of(unsafe { bytes(src, len) }));
    vec![Job::new(name, "sum", work)]
}

/// Libraries to compare with.
pub(crate) fn libraries() -> Vec<Job> {
    use crc_fast::{CrcAlgorithm, Digest};
    let fast = |name, algorithm| {
        let update = |mut d: Digest, b: &[u8]| {
            d.update(b);
            d
        };
        library(name, Digest::new(algorithm), update, |d: Digest| {
            d.finalize()
        })
    };
    let mut all = fast("crc-fast crc64-nvme", CrcAlgorithm::Crc64Nvme);
    all.extend(fast("crc-fast crc32c", CrcAlgorithm::Crc32Iscsi));
    all.extend(library(
        "crc32c crc32c",
        0,
        crc32c::crc32c_append,
        u64::from,
    ));
    all.extend(library_sum("xxhash-rust xxh3", xxhash_rust::xxh3::xxh3_64));
    all.extend(library_sum(
        "twox-hash xxh3",
        twox_hash::XxHash3_64::oneshot,
    ));
    all.extend(library_sum("xxhash-rust xxh64", |b| {
        xxhash_rust::xxh64::xxh64(b, 0)
    }));
    if let Some(isal) = isal::load() {
        let (crc64, crc32c) = (isal.crc64_ecma, isal.crc32_iscsi);
        all.extend(library(
            "isa-l crc64-ecma",
            0,
            // SAFETY: ISA-L reads the slice.
            move |state, b: &[u8]| unsafe { crc64(state, b.as_ptr(), b.len() as u64) },
            |state| state,
        ));
        all.extend(library(
            "isa-l crc32c",
            !0,
            // SAFETY: ISA-L reads the slice; no job is 2 GiB.
            move |state, b: &[u8]| unsafe { crc32c(b.as_ptr(), b.len() as i32, state) },
            |state| !state as u64,
        ));
    }
    all
}
