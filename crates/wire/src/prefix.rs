//! The first 8 bytes of every frame: its kind, flags, and two fields that depend on the kind.

pub(crate) const KIND_EAGER: u8 = 1;
pub(crate) const KIND_DATA: u8 = 2;
pub(crate) const KIND_RTS: u8 = 3;
pub(crate) const KIND_GRANT: u8 = 4;
pub(crate) const KIND_ACK: u8 = 5;
pub(crate) const KIND_CREDIT: u8 = 6;
pub(crate) const KIND_HELLO: u8 = 7;
pub(crate) const KIND_PING: u8 = 8;
pub(crate) const KIND_BYE: u8 = 10;
pub(crate) const KIND_READ: u8 = 11;
pub(crate) const KIND_READ_FAIL: u8 = 12;
pub(crate) const KIND_PAD: u8 = 13;
pub(crate) const KIND_CORRUPT: u8 = 14;
pub(crate) const KIND_KEY: u8 = 15;
pub(crate) const KIND_WRITTEN: u8 = 16;
pub(crate) const KIND_ADVERTISEMENT: u8 = 17;
pub(crate) const KIND_HAVE: u8 = 18;
pub(crate) const KIND_PATH_CHALLENGE: u8 = 19;
pub(crate) const KIND_PATH_RESPONSE: u8 = 20;

/// The error of a malformed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadFrame;

#[inline]
pub(crate) fn prefix(out: &mut [u8], kind: u8, flags: u8, aux: u16, word: u32) {
    out[0] = kind;
    out[1] = flags;
    out[2..4].copy_from_slice(&aux.to_le_bytes());
    out[4..8].copy_from_slice(&word.to_le_bytes());
}

#[inline]
pub(crate) fn put(out: &mut [u8], at: usize, v: u64) {
    out[at..at + 8].copy_from_slice(&v.to_le_bytes());
}
