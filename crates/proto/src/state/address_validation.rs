//! Validation of the addresses of strangers (RFC 9000, sections 8.1 and 8.2).
//!
//! A source that the owner has not named, and that has proved no key, may have a forged address, or
//! name addresses of others in its HELLO. Until a challenge that was sent to an address comes back,
//! bytes sent there count: all addresses of a stranger get at most three times the bytes that came
//! from it. (Acks are no proof: numbers of packets can be guessed.)

use marline_wire::{HEADER_LEN, PATH_CHALLENGE_LEN};

/// Bytes that may be sent for each byte received: the factor of RFC 9000, section 8.1.
const FACTOR: u32 = 3;
/// Bytes of a packet with a challenge, a probe and acks of 1,024 packets.
const LEAST: usize = HEADER_LEN + PATH_CHALLENGE_LEN + PING_LEN + 144;
const PING_LEN: usize = 8;
/// Filler in a probe of an address that the peer may have to validate: the probe's bytes allow an
/// answer ([`LEAST`]).
pub(crate) const PROBE_FILLER: u16 = 16;
const _: () =
    assert!((HEADER_LEN + PING_LEN + 8 + PROBE_FILLER as usize) * FACTOR as usize >= LEAST);
/// Time after which a stranger is forgotten that has not proved any address, and of which no
/// message arrived. A client's retransmission timer begins at 100 ms at most, so that it has sent
/// HELLO again by then; a forgotten stranger may begin anew.
pub(crate) const VALIDATION_NS: u64 = 1_000_000_000;

/// Validation of the address of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressValidation {
    /// Bytes that may be sent; `u32::MAX`: the address is validated, or needs no validation.
    left: u32,
    /// Bytes of the longest packet that must be whole: with HELLO, until the peer has it. With
    /// less, nothing is sent.
    least: u32,
}

impl Default for AddressValidation {
    fn default() -> AddressValidation {
        AddressValidation {
            left: u32::MAX,
            least: 0,
        }
    }
}

impl AddressValidation {
    /// An address to be validated by an endpoint whose HELLO has `hello` bytes.
    pub fn pending(hello: usize) -> AddressValidation {
        let least = LEAST + hello;
        AddressValidation {
            left: 0,
            least: least as u32,
        }
    }

    /// Notes that the peer has HELLO.
    pub fn on_hello_acked(&mut self) {
        self.least = self.least.min(LEAST as u32);
    }

    /// True if the address is to be validated.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.left != u32::MAX
    }

    /// True if nothing may be sent before more bytes arrive.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.left < self.least
    }

    /// Bytes that may be sent.
    #[inline]
    pub fn left(&self) -> usize {
        self.left as usize
    }

    /// Counts received bytes.
    pub fn on_received(&mut self, bytes: usize) {
        if self.is_pending() {
            let more = u32::try_from(bytes)
                .unwrap_or(u32::MAX)
                .saturating_mul(FACTOR);
            self.left = self.left.saturating_add(more).min(u32::MAX - 1);
        }
    }

    /// Counts sent bytes.
    #[inline]
    pub fn on_sent(&mut self, bytes: usize) {
        if self.is_pending() {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.left = self.left.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_times_the_bytes_received_may_be_sent() {
        let mut validation = AddressValidation::pending(80);
        assert!(validation.is_blocked() && validation.is_pending());
        validation.on_received(200);
        assert_eq!(validation.left(), 600);
        validation.on_sent(400);
        assert_eq!((validation.left(), validation.is_blocked()), (200, true));
        validation.on_sent(400);
        assert_eq!(validation.left(), 0, "never negative");
        validation.on_received(usize::MAX);
        assert!(validation.is_pending(), "bytes alone prove nothing");
    }

    #[test]
    fn a_validated_address_has_no_bound() {
        let mut validation = AddressValidation::default();
        validation.on_received(1);
        validation.on_sent(usize::MAX);
        assert!(!validation.is_pending() && !validation.is_blocked());
        assert_eq!(validation.left(), u32::MAX as usize);
    }
}
