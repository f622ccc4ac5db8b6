//! Error detection of `crc64-nh`: in a fragment, by the tests of AES lanes; and the proof's claims,
//! in a field small enough to try all constants.

use crate::random;

use crate::kinds;

use kinds::{contents, Subject, BLOCK};
use marline_checksum::{sum, Algorithm};
use random::Random;

/// All lanes meet only in a sum, also those of different groups.
const NH: Subject = Subject {
    algorithm: Algorithm::Crc64Nh,
    lane: |byte| byte / BLOCK,
};

#[test]
fn no_two_wrong_bytes_of_different_lanes_cancel() {
    NH.no_two_wrong_bytes_of_different_lanes_cancel();
}

#[test]
fn errors_in_different_lanes_add_up() {
    NH.errors_in_different_lanes_add_up();
}

#[test]
fn no_two_flips_of_one_lane_cancel() {
    NH.no_two_flips_of_one_lane_cancel();
}

#[test]
fn what_hardware_does_is_seen() {
    NH.what_hardware_does_is_seen();
}

/// The longest fragment of a packet of 64 KiB: pairs of flips in different lanes, over all blocks.
#[test]
fn no_two_flips_of_a_long_fragment_cancel() {
    let mut r = Random(29);
    let noise: Vec<u8> = (0..63_616).map(|_| r.next() as u8).collect();
    for mut bytes in [vec![0; noise.len()], noise] {
        let want = NH.of(&bytes);
        let mut changes = Vec::with_capacity(8 * bytes.len());
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            changes.push(NH.of(&bytes) ^ want);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        changes.sort_unstable();
        assert_ne!(changes[0], 0, "one flip passed");
        assert!(changes.windows(2).all(|w| w[0] != w[1]), "two flips pass");
    }
}

/// The product of a lane's two words does not depend on their order, but their constants differ.
#[test]
fn exchanged_words_of_a_lane_are_detected() {
    for good in contents() {
        for lane in 0..good.len() / BLOCK {
            let mut bad = good.clone();
            let (low, high) = bad[BLOCK * lane..][..BLOCK].split_at_mut(BLOCK / 2);
            low.swap_with_slice(high);
            assert_eq!(NH.of(&bad) == NH.of(&good), bad == good, "lane {lane}");
        }
    }
}

/// An error that the CRC misses because each column of words cancels over the blocks: two words a
/// block apart. The sum detects it unless their partner words are equal.
#[test]
fn an_error_cancelling_in_a_column_is_detected_in_varied_data() {
    let wrong: u64 = 0x0123_4567_89ab_cdef;
    // The CRC's register, bit 63 - j for x^j, advanced by a block.
    let times_x = |v: u64, _| (v >> 1) ^ (0x9a6c_9329_ac4b_c9b5 & (v & 1).wrapping_neg());
    let moved = (0..8 * 1024).fold(wrong, times_x);
    let mut r = Random(17);
    let noise: Vec<u8> = (0..2048).map(|_| r.next() as u8).collect();
    for (good, shows) in [(vec![0; 2048], false), (noise, true)] {
        let mut bad = good.clone();
        for (at, error) in [(32, wrong), (1024 + 32, moved)] {
            for (byte, by) in bad[at..].iter_mut().zip(error.to_le_bytes()) {
                *byte ^= by;
            }
        }
        let differs = |a| sum(a, 7, &bad) != sum(a, 7, &good);
        assert!(!differs(Algorithm::Crc64Nvme), "no word of the code");
        assert_eq!(differs(Algorithm::Crc64Nh), shows);
    }
}

/// The same construction with words of 4 bits, in the field of x^4 + x + 1, with blocks of four
/// words and four constants: all 65,536 choices of constants are tried.
mod small {
    use super::random::Random;

    /// Words of a block, and of the data.
    const BLOCK: usize = 4;
    const WORDS: usize = 3 * BLOCK;
    /// Choices per constant.
    const VALUES: usize = 16;

    fn times(a: u8, b: u8) -> u8 {
        (0..4).rev().fold(0, |sum, bit| {
            let doubled = sum << 1 ^ (0x13 & (sum >> 3 & 1u8).wrapping_neg());
            doubled ^ (b & (a >> bit & 1).wrapping_neg())
        })
    }

    /// x^16, which advances a sum by a block, is x in this field, as x^15 is 1.
    const MOVED: u8 = 2;
    /// x^4, which advances a sum by a word, is x + 1.
    const MOVED_BY_WORD: u8 = 3;

    fn sum(words: &[u8; WORDS], keys: [u8; BLOCK]) -> u8 {
        words.chunks(BLOCK).fold(0, |sum, block| {
            let product = |i: usize| times(block[i] ^ keys[i], block[i + 1] ^ keys[i + 1]);
            times(sum, MOVED) ^ product(0) ^ product(2)
        })
    }

    fn crc(words: &[u8; WORDS]) -> u8 {
        words
            .iter()
            .fold(0, |sum, word| times(sum, MOVED_BY_WORD) ^ word)
    }

    /// The words of each column, each advanced by the later blocks.
    fn columns(words: &[u8; WORDS]) -> [u8; BLOCK] {
        std::array::from_fn(|column| {
            let words = words.iter().skip(column).step_by(BLOCK);
            words.fold(0, |sum, word| times(sum, MOVED) ^ word)
        })
    }

    fn misses(good: &[u8; WORDS], bad: &[u8; WORDS]) -> usize {
        let all = 0..VALUES.pow(BLOCK as u32);
        all.filter(|choice| {
            let keys = std::array::from_fn(|i| (choice >> (4 * i)) as u8 % 16);
            sum(good, keys) == sum(bad, keys)
        })
        .count()
    }

    #[test]
    fn crc_errors_are_missed_by_one_in_all_values_of_a_word() {
        let mut r = Random(23);
        let all = VALUES.pow(BLOCK as u32);
        let (mut found_by_crc, mut missed_by_crc) = (0, 0);
        for round in 0..300 {
            let good = std::array::from_fn(|_| r.below(16) as u8);
            let mut error: [u8; WORDS] = std::array::from_fn(|_| r.below(16) as u8);
            if round % 3 == 0 {
                // A column that cancels.
                error = [0; WORDS];
                (error[1], error[1 + BLOCK]) = (1, MOVED);
            } else if round % 3 == 1 {
                // A word.
                let at = r.below(WORDS);
                error = std::array::from_fn(|i| if i == at { error[i] | 1 } else { 0 });
            }
            let bad = std::array::from_fn(|i| good[i] ^ error[i]);
            let columns = columns(&error);
            let misses = misses(&good, &bad);
            match columns == [0; BLOCK] {
                false => assert_eq!(misses, all / VALUES, "{error:x?}"),
                true => assert!(misses == 0 || misses == all, "{error:x?}"),
            }
            if crc(&error) != 0 {
                assert_eq!(misses, all / VALUES, "{error:x?}");
                found_by_crc += 1;
            } else {
                missed_by_crc += 1;
            }
        }
        assert!(found_by_crc > 100 && missed_by_crc > 50);
    }
}
