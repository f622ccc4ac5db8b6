//! Ethernet frames of UDP datagrams over IPv4, as the kernel makes them for a UDP rail.

use std::net::Ipv4Addr;

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];
/// Ethernet address, IP address and port of one end.
pub(crate) type End = (Mac, Ipv4Addr, u16);

const ETHER_LEN: usize = 14;
const IP_LEN: usize = 20;
const UDP_LEN: usize = 8;
/// Bytes of a frame before the datagram's payload.
pub(crate) const HEADERS_LEN: usize = ETHER_LEN + IP_LEN + UDP_LEN;

/// Offsets in a frame.
const IP_TOTAL: usize = ETHER_LEN + 2;
const IP_CHECKSUM: usize = ETHER_LEN + 10;
const IP_FROM: usize = ETHER_LEN + 12;
const IP_TO: usize = ETHER_LEN + 16;
const UDP_AT: usize = ETHER_LEN + IP_LEN;
const UDP_CHECKSUM: usize = UDP_AT + 6;

/// The kernel's default, as in the datagrams of a UDP rail.
const TIME_TO_LIVE: u8 = 64;
const IPV4: [u8; 2] = [0x08, 0x00];
/// Version 4, a header of five words.
const VERSION: u8 = 0x45;
/// Routers drop what does not fit instead of cutting it.
const DONT_FRAGMENT: u8 = 0x40;
const UDP: u8 = libc::IPPROTO_UDP as u8;

/// The headers of all frames to one place, and sums of their constant parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    headers: [u8; HEADERS_LEN],
    ip_sum: u64,
    /// Of the pseudo-header and of the ports.
    udp_sum: u64,
}

impl Route {
    /// Frames from one end to the other, in a traffic class (DSCP).
    pub(crate) fn new(from: End, to: End, dscp: u8) -> Route {
        let mut headers = [0; HEADERS_LEN];
        headers[..6].copy_from_slice(&to.0);
        headers[6..12].copy_from_slice(&from.0);
        headers[12..14].copy_from_slice(&IPV4);
        headers[ETHER_LEN] = VERSION;
        headers[ETHER_LEN + 1] = dscp << 2;
        headers[ETHER_LEN + 6] = DONT_FRAGMENT;
        headers[ETHER_LEN + 8] = TIME_TO_LIVE;
        headers[ETHER_LEN + 9] = UDP;
        headers[IP_FROM..IP_TO].copy_from_slice(&from.1.octets());
        headers[IP_TO..UDP_AT].copy_from_slice(&to.1.octets());
        headers[UDP_AT..UDP_AT + 2].copy_from_slice(&from.2.to_be_bytes());
        headers[UDP_AT + 2..UDP_AT + 4].copy_from_slice(&to.2.to_be_bytes());
        Route {
            ip_sum: sum(&headers[ETHER_LEN..UDP_AT]),
            udp_sum: pseudo_sum(&headers) + sum(&headers[UDP_AT..UDP_AT + 4]),
            headers,
        }
    }

    /// Writes the frame of a datagram; returns its length, `None` if it does not fit.
    #[inline]
    pub(crate) fn write(&self, payload: &[u8], frame: &mut [u8]) -> Option<usize> {
        let len = HEADERS_LEN + payload.len();
        let udp_len = u16::try_from(UDP_LEN + payload.len()).ok()?.to_be_bytes();
        let ip_len = u16::try_from(len - ETHER_LEN).ok()?.to_be_bytes();
        let frame = frame.get_mut(..len)?;
        frame[..HEADERS_LEN].copy_from_slice(&self.headers);
        frame[HEADERS_LEN..].copy_from_slice(payload);
        let ip_sum = !fold(self.ip_sum + sum(&ip_len));
        // The length counts in the pseudo-header and in the header.
        let udp_sum = !fold(self.udp_sum + 2 * sum(&udp_len) + sum(payload));
        frame[IP_TOTAL..IP_TOTAL + 2].copy_from_slice(&ip_len);
        frame[IP_CHECKSUM..IP_CHECKSUM + 2].copy_from_slice(&ip_sum.to_ne_bytes());
        frame[UDP_AT + 4..UDP_AT + 6].copy_from_slice(&udp_len);
        // 0 would mean that there is no checksum.
        let udp_sum = if udp_sum == 0 { u16::MAX } else { udp_sum };
        frame[UDP_CHECKSUM..HEADERS_LEN].copy_from_slice(&udp_sum.to_ne_bytes());
        Some(len)
    }
}

/// A datagram in a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    /// Sender.
    pub(crate) from: (Ipv4Addr, u16),
    /// Port to which it was sent.
    pub(crate) to_port: u16,
    /// Payload.
    pub(crate) payload: &'a [u8],
}

/// Reads a frame that the program redirected; `None` for one that a UDP socket would not deliver.
#[inline]
pub(crate) fn read(frame: &[u8]) -> Option<Datagram<'_>> {
    let (headers, rest) = frame.split_first_chunk::<HEADERS_LEN>()?;
    let half = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    if headers[12..14] != IPV4 || headers[ETHER_LEN] != VERSION || headers[ETHER_LEN + 9] != UDP {
        return None;
    }
    let len = usize::from(half(UDP_AT + 4));
    // Short frames are padded.
    if usize::from(half(IP_TOTAL)) != IP_LEN + len {
        return None;
    }
    let payload = rest.get(..len.checked_sub(UDP_LEN)?)?;
    if fold(sum(&headers[ETHER_LEN..UDP_AT])) != u16::MAX || !is_whole(headers, payload) {
        return None;
    }
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| headers[IP_FROM + i]);
    Some(Datagram {
        from: (Ipv4Addr::new(a, b, c, d), half(UDP_AT)),
        to_port: half(UDP_AT + 2),
        payload,
    })
}

/// Verifies the datagram's checksum. A kernel that sends over a virtual link of this host leaves
/// the sum of the pseudo-header in its place (`CHECKSUM_PARTIAL`), since no wire can damage it.
#[inline]
fn is_whole(headers: &[u8; HEADERS_LEN], payload: &[u8]) -> bool {
    let stored = u16::from_ne_bytes([headers[UDP_CHECKSUM], headers[UDP_CHECKSUM + 1]]);
    let len = [headers[UDP_AT + 4], headers[UDP_AT + 5]];
    let pseudo = pseudo_sum(headers) + sum(&len);
    let all = || fold(pseudo + sum(&headers[UDP_AT..]) + sum(payload));
    stored == 0 || stored == fold(pseudo) || all() == u16::MAX
}

/// The sum of the pseudo-header without the length.
#[inline]
fn pseudo_sum(headers: &[u8; HEADERS_LEN]) -> u64 {
    sum(&headers[IP_FROM..UDP_AT]) + u64::from(u16::from_be(u16::from(UDP)))
}

/// The sum of 16-bit words in the order of the bytes in memory, carries not yet added (RFC 1071).
/// An odd last byte is followed by a zero.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: u64 = words
        .iter()
        .map(|&w| u64::from(u32::from_ne_bytes(w)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words + u64::from(u32::from_ne_bytes(last))
}

/// Adds carries until 16 bits are left.
#[inline]
fn fold(sum: u64) -> u16 {
    let mut sum = (sum >> 32) + (sum & 0xffff_ffff);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> Route {
        let from = ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 101, 0, 1), 40_000);
        let to = ([2, 0, 0, 0, 0, 2], Ipv4Addr::new(10, 101, 0, 2), 50_000);
        Route::new(from, to, 0)
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xee; 2_000];
        let len = route().write(payload, &mut frame).unwrap();
        frame.truncate(len);
        frame
    }

    /// The frame of a datagram as a kernel makes it, with checksums that were computed apart.
    const FROM_KERNEL: &[u8] = &[
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x26,
        0x02, 10, 101, 0, 1, 10, 101, 0, 2, 0x9c, 0x40, 0xc3, 0x50, 0, 11, 0xc7, 0x17, b'a', b'b',
        b'c',
    ];

    #[test]
    fn a_frame_is_as_a_kernel_makes_it() {
        assert_eq!(frame(b"abc"), FROM_KERNEL);
    }

    #[test]
    fn what_was_written_is_read() {
        for len in (0..70).chain([1_471, 1_472]) {
            let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8 | 0x80).collect();
            let mut frame = frame(&payload);
            assert_eq!(frame.len(), len + HEADERS_LEN);
            frame.resize(frame.len().max(60), 0); // as a card pads it
            let datagram = read(&frame).unwrap();
            assert_eq!(datagram.payload, payload);
            assert_eq!(datagram.from, (Ipv4Addr::new(10, 101, 0, 1), 40_000));
            assert_eq!(datagram.to_port, 50_000);
        }
    }

    #[test]
    fn a_frame_has_its_traffic_class() {
        let (from, to) = (
            ([1; 6], Ipv4Addr::LOCALHOST, 1),
            ([2; 6], Ipv4Addr::LOCALHOST, 2),
        );
        let mut frame = [0; 60];
        let len = Route::new(from, to, 46).write(b"abc", &mut frame).unwrap();
        assert_eq!(frame[ETHER_LEN + 1], 0xb8);
        assert_eq!(read(&frame[..len]).unwrap().payload, b"abc");
    }

    #[test]
    fn a_damaged_bit_is_noticed() {
        let whole = frame(b"some payload of odd length.");
        for bit in 12 * 8..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&damaged), None, "bit {bit}");
        }
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]), None, "cut to {len} bytes");
        }
    }

    #[test]
    fn a_checksum_may_be_partial_or_missing() {
        let mut other = frame(b"payload");
        let headers = other.first_chunk().unwrap();
        let partial = fold(pseudo_sum(headers) + sum(&headers[UDP_AT + 4..UDP_AT + 6]));
        other[UDP_CHECKSUM..HEADERS_LEN].copy_from_slice(&partial.to_ne_bytes());
        assert!(read(&other).is_some());
        other[UDP_CHECKSUM..HEADERS_LEN].fill(0);
        assert!(read(&other).is_some());
        other[UDP_CHECKSUM] = 1;
        assert_eq!(read(&other), None);
    }

    #[test]
    fn a_sum_of_zero_is_written_as_ones() {
        // The payload that completes the sum to all ones.
        let bare = frame(&[0, 0]);
        let rest = [bare[UDP_CHECKSUM], bare[UDP_CHECKSUM + 1]];
        let full = frame(&rest);
        assert_eq!(full[UDP_CHECKSUM..HEADERS_LEN], [0xff, 0xff]);
        assert_eq!(read(&full).unwrap().payload, rest);
    }

    #[test]
    fn a_payload_without_room_is_refused() {
        assert_eq!(route().write(&[0; 100], &mut [0; 141]), None);
        assert_eq!(route().write(&[0; 100], &mut [0; 142]), Some(142));
        assert_eq!(route().write(&[0; 65_530], &mut vec![0; 66_000]), None);
    }
}
