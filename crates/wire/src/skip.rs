//! Additions of later versions, skipped by their length: frames of extension kinds,
//! and further fields of HELLO.

use crate::header::{u16_at, u32_at};
use crate::prefix::prefix;
use core::ops::RangeInclusive;

/// Kinds of frames that state their length, so that a version which does not know one skips it. A
/// frame that must not be skipped has a kind below, and is sent only in packets of a version that
/// has it.
pub const EXTENSION_KINDS: RangeInclusive<u8> = 128..=255;
/// Most bytes of further fields in a HELLO: with 32 addresses and header it stays below the 1,232
/// bytes that every IPv6 path carries.
pub const HELLO_FIELDS_MAX: usize = 64;

/// A frame of a kind that this version does not know.
///
/// ```text
///  0 u8 kind   1 u8 its own   2 u16 bytes of the frame, a multiple of 8
///  4 u16 bytes of its payload   6 u16 its own    8 ... its own
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The kind, one of [`EXTENSION_KINDS`].
    pub kind: u8,
    /// Bytes of the frame, a multiple of 8 and at least 8.
    pub len: u16,
    /// Bytes of payload.
    pub payload: u16,
}

impl Extension {
    /// Writes a frame whose own bytes are 0.
    pub(crate) fn write(&self, out: &mut [u8]) {
        prefix(out, self.kind, 0, self.len, self.payload.into());
        out[8..self.len as usize].fill(0);
    }

    /// Length in bytes of the frame of kind `kind` at the start of `b`; `None` if the kind states
    /// no length or the length is impossible.
    pub(crate) fn frame_len(kind: u8, aux: u16) -> Option<usize> {
        let stated = EXTENSION_KINDS.contains(&kind) && aux >= 8 && aux.is_multiple_of(8);
        stated.then_some(aux as usize)
    }

    /// Reads a frame that fills `b`.
    pub(crate) fn read(b: &[u8]) -> Extension {
        Extension {
            kind: b[0],
            len: u16_at(b, 2),
            payload: u32_at(b, 4) as u16,
        }
    }
}

/// Fields behind the rails of a HELLO, each `kind u8, length u8, bytes`; kind 0 ends them. This
/// version knows no kind: it writes none, and skips all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloFields<'a>(&'a [u8]);

impl<'a> HelloFields<'a> {
    /// No fields.
    pub const NONE: HelloFields<'static> = HelloFields(&[]);

    /// Writes one field to `out`; `None` if it does not fit or cannot be stated.
    pub fn write<'b>(out: &'b mut [u8], kind: u8, bytes: &[u8]) -> Option<HelloFields<'b>> {
        let len = u8::try_from(bytes.len()).ok().filter(|_| kind != 0)?;
        let out = out.get_mut(..2 + bytes.len())?;
        (out[0], out[1]) = (kind, len);
        out[2..].copy_from_slice(bytes);
        Some(HelloFields(out))
    }

    /// The fields at the start of `b`, up to the end mark; `None` if the last one is truncated or
    /// they are too long.
    pub(crate) fn read(b: &'a [u8]) -> Option<HelloFields<'a>> {
        let mut at = 0;
        while b.get(at).is_some_and(|kind| *kind != 0) {
            at += 2 + *b.get(at + 1)? as usize;
        }
        let fields = b.get(..at)?;
        (at <= HELLO_FIELDS_MAX).then_some(HelloFields(fields))
    }

    /// The kinds and bytes of the fields.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + 'a {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (&kind, &len) = rest.first().zip(rest.get(1))?;
            let bytes = rest.get(2..2 + len as usize)?;
            rest = &rest[2 + len as usize..];
            Some((kind, bytes))
        })
    }

    /// The encoded fields.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }
}
