//! Copies into memory that a program sees and may poll: each byte is stored once, in ascending
//! order. The C library's copy guarantees neither (it stores the overlap of its first and last
//! vectors twice, in an order of its own). Aligned words of 8 bytes are stored whole.

use crate::memory::op_table::Pieces;
use std::sync::atomic::{fence, Ordering::Release};

const WORD: usize = size_of::<u64>();
/// Words that are loaded together before they are stored.
const WORDS: usize = 8;

/// Copies `bytes` to `offset` of memory that its program sees. `last`: all earlier stores are
/// visible before the last word of `bytes` is.
pub(crate) fn show(pieces: &Pieces, offset: u64, bytes: &[u8], last: bool) {
    let mut at = 0;
    pieces.for_range(offset, bytes.len(), |base, len| {
        let part = &bytes[at..at + len];
        at += len;
        let before = match last && at == bytes.len() {
            true => before_last_word(base, len),
            false => len,
        };
        // SAFETY: registered memory, which stays valid until `mr_close`, which needs the engine's
        // lock as this function does; its pieces give its length. Concurrent accesses by the
        // program break the rules for users of the memory.
        unsafe { store_once(base, &part[..before]) };
        if before < len {
            fence(Release);
            // SAFETY: as above.
            unsafe { store_once(base.add(before), &part[before..]) };
        }
    });
}

/// Number of bytes, of the `len` bytes at `base`, before the aligned word that has the last byte.
fn before_last_word(base: *mut u8, len: usize) -> usize {
    let end = base.addr() + len;
    len.saturating_sub(1 + (end - 1) % WORD)
}

/// Stores each byte once, in ascending order, and in whole words where the destination is aligned.
///
/// # Safety
/// `to` is writable for `bytes.len()` bytes, and does not overlap `bytes`.
unsafe fn store_once(to: *mut u8, bytes: &[u8]) {
    let len = bytes.len();
    let head = to.align_offset(WORD).min(len);
    let whole = (len - head) / WORD * WORD;
    // SAFETY: the parts add up to the whole; the destination of the second is aligned.
    unsafe {
        store_few(to, &bytes[..head]);
        store_words(to.add(head).cast(), &bytes[head..head + whole]);
        store_few(to.add(head + whole), &bytes[head + whole..]);
    }
}

/// # Safety
/// As [`store_once`]; `bytes` is whole words and `to` is aligned.
unsafe fn store_words(to: *mut u64, bytes: &[u8]) {
    let word = |bytes: &[u8]| {
        let mut word = [0; WORD];
        word.copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    let mut to = to;
    let mut store = |word: u64| {
        // SAFETY: the caller's contract: there are as many words as `bytes` holds.
        unsafe {
            to.write_volatile(word);
            to = to.add(1);
        }
    };
    let mut blocks = bytes.chunks_exact(WORDS * WORD);
    for block in &mut blocks {
        let words: [u64; WORDS] = std::array::from_fn(|i| word(&block[WORD * i..WORD * (i + 1)]));
        words.into_iter().for_each(&mut store);
    }
    let rest = blocks.remainder().chunks_exact(WORD);
    rest.for_each(|bytes| store(word(bytes)));
}

/// Stores less than a word in aligned parts of 1, 2 and 4 bytes.
///
/// # Safety
/// As [`store_once`].
unsafe fn store_few(to: *mut u8, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let (to, rest) = (to.wrapping_add(at), &bytes[at..]);
        // SAFETY: no part is longer than the rest, and each is aligned.
        at += unsafe {
            match *rest {
                [a, b, c, d, ..] if to.addr() % 4 == 0 => {
                    let word = u32::from_ne_bytes([a, b, c, d]);
                    to.cast::<u32>().write_volatile(word);
                    4
                }
                [a, b, ..] if to.addr() % 2 == 0 => {
                    to.cast::<u16>().write_volatile(u16::from_ne_bytes([a, b]));
                    2
                }
                [a, ..] => {
                    to.write_volatile(a);
                    1
                }
                [] => return,
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{before_last_word, show};
    use crate::api::IoVec;
    use crate::memory::op_table::Pieces;

    #[test]
    fn bytes_of_any_length_are_stored_at_any_offset_only() {
        let bytes: Vec<u8> = (1..=200).collect();
        for start in 0..9 {
            for len in (0..40).chain([63, 64, 65, 127, 128, 130, 200]) {
                for cut in [0, 1.min(len), len / 2, len] {
                    let mut memory = vec![0u8; 220];
                    let base = memory.as_mut_ptr().wrapping_add(start);
                    let pieces = Pieces::new(&[
                        IoVec { base, len: cut },
                        IoVec {
                            base: base.wrapping_add(cut),
                            len: len - cut,
                        },
                    ]);
                    show(&pieces, 0, &bytes[..len], len % 2 == 0);
                    assert_eq!(
                        memory[start..start + len],
                        bytes[..len],
                        "{start} {len} {cut}"
                    );
                    let around = memory[..start].iter().chain(&memory[start + len..]);
                    assert!(around.copied().all(|byte| byte == 0), "{start} {len} {cut}");
                }
            }
        }
    }

    #[test]
    fn the_last_word_is_the_aligned_one_that_holds_the_last_byte() {
        let at =
            |address: usize, len| before_last_word(std::ptr::without_provenance_mut(address), len);
        for (address, len, before) in [
            (64, 64, 56),
            (64, 65, 64),
            (64, 8, 0),
            (65, 7, 0),
            (65, 8, 7),
            (68, 3, 0),
            (68, 6, 4),
            (64, 1, 0),
        ] {
            assert_eq!(at(address, len), before, "{len} bytes at {address}");
        }
    }
}
