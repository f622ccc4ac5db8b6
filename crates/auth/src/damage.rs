//! Tells a damaged tag from a forged one.

/// Most bits that differ in a damaged tag. Faults flip one bit or a few; a tag by another key
/// differs in at most this many with a probability of 3e-10.
const FLIPPED_MAX: u32 = 8;

/// Returns whether a wrong `tag` is the `right` one with flipped bits. Tags lie outside the CRC of
/// their packet. The packet is dropped in both cases: only the counter differs.
pub fn is_damaged(right: u64, tag: u64) -> bool {
    (right ^ tag).count_ones() <= FLIPPED_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_flipped_bits_are_damage() {
        let right = 0x726f_db47_dd0e_0e31;
        assert!(is_damaged(right, right ^ 1 << 63) && is_damaged(right, right ^ 0xff));
        assert!(!is_damaged(right, right ^ 0x1ff) && !is_damaged(right, !right));
    }
}
