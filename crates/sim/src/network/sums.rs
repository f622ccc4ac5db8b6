//! Payloads of packets: the keys of their sums and ciphers, and payloads that are replaced by other
//! ones with the same sum.

use crate::base::rng::Rng;
use crate::setup::choices::Setup;
use crate::setup::key::job_key;
use marline_auth::{Direction, HeadKeys};
use marline_checksum::{Algorithm, Seed, SumKey};
use marline_wire::{Header, Packet, TAG_LEN};

/// The seed with this number of a sum in a packet.
pub(crate) fn seed_of(setup: &Setup, header: &Header, number: u64) -> Seed {
    let keyed = header.algorithm == Algorithm::Aegis as u8;
    let Some(key) = job_key(setup).filter(|_| keyed) else {
        return number.into();
    };
    let payloads = HeadKeys::new(&key).payloads_from(header.dst_slot, &direction_of(header));
    Seed::keyed(number, SumKey::new(payloads.bytes()))
}

fn direction_of(header: &Header) -> Direction {
    Direction {
        src_id: header.src_id,
        src_epoch: header.src_epoch,
        dst_id: header.dst_id,
        dst_token: header.dst_token,
    }
}

/// A copy of a packet with its payload decrypted, if payloads are encrypted and the packet parses.
pub(crate) fn decrypted(setup: &Setup, bytes: &[u8]) -> Option<Vec<u8>> {
    let key = job_key(setup).filter(|_| setup.encrypts())?;
    let claimed = bytes.first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
    let packet = Packet::parse(bytes, |_| claimed).ok()?;
    let header = &packet.header;
    let cipher = HeadKeys::new(&key).cipher_from(header.dst_slot, &direction_of(header))?;
    let payload = packet.head().len()..packet.wire_len() - TAG_LEN;
    let mut clear = bytes.to_vec();
    cipher.apply(packet.tagged_head().fixed, clear.get_mut(payload)?);
    Some(clear)
}

/// The polynomial of CRC-64/NVME as a message of 65 bits, the first bit of each byte the lowest.
/// The exclusive or with it changes no CRC, wherever it is in a payload.
const POLYNOMIAL: u128 = 1 | 0x9a6c_9329_ac4b_c9b5 << 1;
/// Name of the count of replaced payloads.
pub(crate) const REPLACED: &str = "payload replaced";
/// Bytes of [`POLYNOMIAL`].
const POLYNOMIAL_LEN: usize = 9;

/// Replaces a payload by another one that has the same sum, if that is a CRC-64 without a key, as
/// any host on the path can. Returns whether it did.
pub(crate) fn replace_payload(bytes: &mut [u8], rng: &mut Rng) -> bool {
    let claimed = bytes.first_chunk().map_or(0, |c| u32::from_le_bytes(*c));
    let Ok(packet) = Packet::parse(bytes, |_| claimed) else {
        return false;
    };
    let start = bytes.as_ptr() as usize;
    let mut payloads = packet.frames().map(|(_, payload)| payload);
    let Some(payload) = payloads.find(|payload| payload.len() >= POLYNOMIAL_LEN) else {
        return false;
    };
    let (from, len) = (payload.as_ptr() as usize - start, payload.len());
    replace(&mut bytes[from..from + len], rng);
    true
}

/// Changes bytes so that their CRC-64/NVME stays the same, if there are enough.
pub(crate) fn replace(payload: &mut [u8], rng: &mut Rng) {
    let Some(room) = payload.len().checked_sub(POLYNOMIAL_LEN) else {
        return;
    };
    let at = rng.below(room as u64 + 1) as usize;
    let pattern = POLYNOMIAL.to_le_bytes();
    let changed = payload[at..].iter_mut().zip(&pattern[..POLYNOMIAL_LEN]);
    changed.for_each(|(byte, change)| *byte ^= change);
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_checksum::sum;

    #[test]
    fn a_crc_misses_its_polynomial_and_a_keyed_sum_does_not() {
        let good: Vec<u8> = (0..100).collect();
        for seed in 0..50 {
            let mut other = good.clone();
            replace(&mut other, &mut Rng::new(seed, 0));
            let same = |a| sum(a, 7, &good) == sum(a, 7, &other);
            assert!(other != good && same(Algorithm::Crc64Nvme), "{seed}");
            assert!(!same(Algorithm::Aegis), "{seed}");
        }
    }
}
