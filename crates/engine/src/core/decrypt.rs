//! Decrypts the payloads of received packets, in jobs that encrypt them (docs/design/security.md).

use crate::core::Core;
use crate::memory::tags::direction_of;
use crate::platform::system::System;
use crate::state::group_seal::{is_believed, nonce_of};
use marline_auth::CipherKey;
use marline_checksum::crc32c;
use marline_rails::Received;
use marline_wire::{GroupPacket, TAG_LEN};
use std::ops::Range;

/// The payload of a packet in its datagram, and what encrypted it.
struct Encrypted {
    payload: Range<usize>,
    cipher: CipherKey,
    nonce: [u64; 2],
}

impl<S: System> Core<S> {
    /// Processes received bytes whose payloads are encrypted.
    pub(super) fn ingest_encrypted(&mut self, now: u64, rail: usize, received: &Received<'_>) {
        let mut clear = std::mem::take(&mut self.buffers.clear);
        clear.clear();
        clear.extend_from_slice(received.bytes);
        let (segment, _) = self.segment_of(rail, received, &mut None);
        for datagram in clear.chunks_mut(segment.max(1)) {
            if let Some(found) = self.encrypted_in(datagram) {
                let payload = &mut datagram[found.payload];
                found.cipher.apply(found.nonce, payload);
            }
        }
        let decrypted = Received {
            bytes: &clear,
            ..*received
        };
        self.ingest_clear(now, rail, &decrypted, received.bytes);
        self.buffers.clear = clear;
    }

    /// The payload of a datagram with the right tag. Another datagram stays as it is: it is refused
    /// later, and counted there.
    fn encrypted_in(&mut self, datagram: &[u8]) -> Option<Encrypted> {
        if GroupPacket::claimed(datagram) {
            return self.encrypted_in_group(datagram);
        }
        let mut proven = None;
        let packet = self.read_packet(datagram, &mut proven).ok()?;
        let endpoint = self.dir.eps[proven? as usize].as_ref()?;
        let of = direction_of(&packet.header);
        let keys = endpoint.keys.as_ref()?;
        Some(Encrypted {
            payload: packet.head().len()..packet.wire_len() - TAG_LEN,
            cipher: keys.cipher_from(packet.header.dst_slot, &of)?,
            nonce: packet.tagged_head().fixed,
        })
    }

    /// The same for a packet of a multicast group.
    fn encrypted_in_group(&mut self, datagram: &[u8]) -> Option<Encrypted> {
        let packet = GroupPacket::parse(datagram, crc32c).ok()?;
        let number = self.groups.number_of(&packet.head)? as u32;
        let sealer = self.groups.get(number)?.sealer.as_ref()?;
        if !is_believed(Some(&sealer.key()), &packet) {
            return None;
        }
        Some(Encrypted {
            payload: packet.checked_head().len() + 4..packet.wire_len() - TAG_LEN,
            cipher: sealer.cipher()?,
            nonce: nonce_of(packet.head.src_id, &packet.seal()?),
        })
    }
}
