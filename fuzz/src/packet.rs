//! Targets of the packet parser and the address blob.

use marline_checksum::crc32c;
use marline_rails::{pairing, show_addr, UdpAddr};
use marline_wire::{
    Address, Frame, HeadWriter, Header, Hello, Packet, RailAddr, HEADER_LEN, PACKET_MAX, TAG_LEN,
    VERSION,
};

/// Parses any bytes as a packet, unchanged and with corrected version and CRC so that the frames
/// are reached. A packet that parses is written again and must read back the same.
pub fn packet(data: &[u8]) {
    let _ = Packet::parse(data, crc32c);
    let mut bytes = data.to_vec();
    if bytes.len() >= HEADER_LEN {
        bytes[4] = VERSION;
    }
    let Some(crc) = seal(&mut bytes) else { return };
    if let Ok(packet) = Packet::parse(&bytes, |_| crc) {
        assert!(packet.wire_len() <= bytes.len());
        rewrite(&packet);
    }
}

/// Corrects the head's CRC and returns it; `None`: there is no head.
pub(crate) fn seal(bytes: &mut [u8]) -> Option<u32> {
    let head_len = usize::from(u16::from_le_bytes([*bytes.get(6)?, *bytes.get(7)?]));
    let crc = crc32c(bytes.get(4..head_len)?);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    Some(crc)
}

fn owned<'a>(packet: &Packet<'a>) -> impl Iterator<Item = (Frame<Hello<'a>>, &'a [u8])> {
    packet
        .frames()
        .map(|(frame, payload)| (frame.fields(), payload))
}

fn rewrite(packet: &Packet<'_>) {
    let frames: Vec<(Frame<Hello<'_>>, &[u8])> = owned(packet).collect();
    for (frame, payload) in &frames {
        assert_eq!(frame.payload_len(), payload.len());
    }
    let bytes = write(&packet.header, &frames);
    let again = Packet::parse(&bytes, crc32c).expect("what we write parses");
    assert_eq!(again.header, packet.header);
    assert!(owned(&again).eq(frames.iter().copied()));
}

/// A packet of these frames with correct CRC.
pub(crate) fn write(header: &Header, frames: &[(Frame<Hello<'_>>, &[u8])]) -> Vec<u8> {
    // Twice the maximum: a parsed packet may lack the padding after its last payload.
    let mut bytes = vec![0; 2 * PACKET_MAX];
    let tag_len = match header.flags & Header::FLAG_TAGGED {
        0 => 0,
        _ => TAG_LEN,
    };
    let mut writer = HeadWriter::with_tag(&mut bytes, 2 * PACKET_MAX, tag_len);
    let mut payloads = Vec::new();
    for (frame, payload) in frames {
        let slot = writer
            .push(frame)
            .expect("twice the largest packet is enough");
        payloads.push((slot.payload_at as usize, payload));
    }
    let (head_len, len) = writer.finish(header);
    for (at, payload) in payloads {
        bytes[head_len + at..][..payload.len()].copy_from_slice(payload);
    }
    bytes.truncate(len);
    seal(&mut bytes);
    bytes
}

/// Decodes any bytes as an address blob; an accepted one survives a round trip and padding.
pub fn address(data: &[u8]) {
    let Ok(address) = Address::decode(data) else {
        return;
    };
    let (bytes, len) = address.encode();
    assert_eq!(Address::decode(&bytes[..len]), Ok(address));
    assert_eq!(Address::decode(&bytes), Ok(address));
    assert!(Address::decode(&bytes[..len - 1]).is_err());
    let rails: Vec<RailAddr> = address.rails().iter().collect();
    assert!(!rails.is_empty());
    assert_eq!(
        rails.len() + address.rails().unknown().count(),
        address.rails().count()
    );
    for rail in &rails {
        let _ = show_addr(rail);
        // Every address is in its own network and on its own host, and IP addresses round-trip.
        assert!(pairing::same_network(rail, rail));
        assert!(pairing::same_host(rail, rail) && pairing::same_end(rail, rail));
        if let Some(udp) = UdpAddr::of(rail) {
            assert_eq!(udp.rail().bytes(), rail.bytes());
        }
    }
    for (from, to) in pairing::pairs(&rails, &rails) {
        assert!(pairing::reaches(&rails[from], &rails[to]));
    }
}
