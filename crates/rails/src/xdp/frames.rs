//! Ethernet frames of UDP datagrams over IPv4 and IPv6, as the kernel makes them for a UDP rail.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
pub(crate) type Mac = [u8; 6];
/// Ethernet address, IP address and port of one end.
pub(crate) type End = (Mac, IpAddr, u16);

const ETHER_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// Bytes of a frame before the datagram's payload.
pub(crate) const HEADERS_V4_LEN: usize = ETHER_LEN + IPV4_LEN + UDP_LEN;
pub(crate) const HEADERS_V6_LEN: usize = ETHER_LEN + IPV6_LEN + UDP_LEN;

/// Offsets in a frame over IPv4.
const IPV4_TOTAL: usize = ETHER_LEN + 2;
const IPV4_CHECKSUM: usize = ETHER_LEN + 10;
const IPV4_FROM: usize = ETHER_LEN + 12;
/// Offsets in a frame over IPv6.
const IPV6_LENGTH: usize = ETHER_LEN + 4;
const IPV6_NEXT: usize = ETHER_LEN + 6;
const IPV6_FROM: usize = ETHER_LEN + 8;
/// Offset in a UDP header.
const UDP_CHECKSUM: usize = 6;

/// The kernel's default, as in the datagrams of a UDP rail.
const TIME_TO_LIVE: u8 = 64;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Version 4, a header of five words.
const VERSION_4: u8 = 0x45;
const VERSION_6: u8 = 0x60;
/// Routers drop what does not fit instead of cutting it.
const DONT_FRAGMENT: u8 = 0x40;
const UDP: u8 = libc::IPPROTO_UDP as u8;

/// The headers of all frames to one place, and sums of their constant parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    headers: [u8; HEADERS_V6_LEN],
    /// Offset of the UDP header.
    udp_at: usize,
    ip_sum: u64,
    /// Of the pseudo-header and of the ports.
    udp_sum: u64,
}

impl Route {
    /// Frames from one end to the other, in a traffic class (DSCP); `None` if the ends' addresses
    /// are of different families.
    pub(crate) fn new(from: End, to: End, dscp: u8) -> Option<Route> {
        let mut headers = [0; HEADERS_V6_LEN];
        headers[..6].copy_from_slice(&to.0);
        headers[6..12].copy_from_slice(&from.0);
        let udp_at = match (from.1, to.1) {
            (IpAddr::V4(from), IpAddr::V4(to)) => write_v4(&mut headers, (from, to), dscp),
            (IpAddr::V6(from), IpAddr::V6(to)) => write_v6(&mut headers, (from, to), dscp),
            _ => return None,
        };
        headers[udp_at..udp_at + 2].copy_from_slice(&from.2.to_be_bytes());
        headers[udp_at + 2..udp_at + 4].copy_from_slice(&to.2.to_be_bytes());
        Some(Route {
            ip_sum: sum(&headers[ETHER_LEN..udp_at]),
            udp_sum: pseudo_sum(&headers, udp_at) + sum(&headers[udp_at..udp_at + 4]),
            headers,
            udp_at,
        })
    }

    /// Writes the frame of a datagram; returns its length, `None` if it does not fit.
    #[inline]
    pub(crate) fn write(&self, payload: &[u8], frame: &mut [u8]) -> Option<usize> {
        let udp_at = self.udp_at;
        let len = udp_at + UDP_LEN + payload.len();
        let udp_len = u16::try_from(UDP_LEN + payload.len()).ok()?.to_be_bytes();
        let ip_len = u16::try_from(len - ETHER_LEN).ok()?.to_be_bytes();
        let (headers, rest) = frame.get_mut(..len)?.split_at_mut(udp_at + UDP_LEN);
        headers.copy_from_slice(&self.headers[..udp_at + UDP_LEN]);
        rest.copy_from_slice(payload);
        if is_v4(udp_at) {
            let ip_sum = !fold(self.ip_sum + sum(&ip_len));
            headers[IPV4_TOTAL..IPV4_TOTAL + 2].copy_from_slice(&ip_len);
            headers[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&ip_sum.to_ne_bytes());
        } else {
            headers[IPV6_LENGTH..IPV6_LENGTH + 2].copy_from_slice(&udp_len);
        }
        // The length counts in the pseudo-header and in the header.
        let udp_sum = !fold(self.udp_sum + 2 * sum(&udp_len) + sum(payload));
        headers[udp_at + 4..udp_at + UDP_CHECKSUM].copy_from_slice(&udp_len);
        // 0 would mean that there is no checksum.
        let udp_sum = if udp_sum == 0 { u16::MAX } else { udp_sum };
        headers[udp_at + UDP_CHECKSUM..].copy_from_slice(&udp_sum.to_ne_bytes());
        Some(len)
    }
}

/// Tells the family by the offset of the UDP header.
#[inline]
fn is_v4(udp_at: usize) -> bool {
    udp_at == ETHER_LEN + IPV4_LEN
}

/// Writes an IPv4 header without length and checksum; returns the offset of the UDP header.
fn write_v4(headers: &mut [u8], (from, to): (Ipv4Addr, Ipv4Addr), dscp: u8) -> usize {
    let udp_at = ETHER_LEN + IPV4_LEN;
    headers[12..14].copy_from_slice(&IPV4);
    headers[ETHER_LEN] = VERSION_4;
    headers[ETHER_LEN + 1] = dscp << 2;
    headers[ETHER_LEN + 6] = DONT_FRAGMENT;
    headers[ETHER_LEN + 8] = TIME_TO_LIVE;
    headers[ETHER_LEN + 9] = UDP;
    headers[IPV4_FROM..udp_at].copy_from_slice([from.octets(), to.octets()].as_flattened());
    udp_at
}

/// Writes an IPv6 header without length; returns the offset of the UDP header.
fn write_v6(headers: &mut [u8], (from, to): (Ipv6Addr, Ipv6Addr), dscp: u8) -> usize {
    let udp_at = ETHER_LEN + IPV6_LEN;
    headers[12..14].copy_from_slice(&IPV6);
    headers[ETHER_LEN] = VERSION_6 | dscp >> 2;
    headers[ETHER_LEN + 1] = dscp << 6;
    headers[IPV6_NEXT] = UDP;
    headers[IPV6_NEXT + 1] = TIME_TO_LIVE;
    headers[IPV6_FROM..udp_at].copy_from_slice([from.octets(), to.octets()].as_flattened());
    udp_at
}

/// A datagram in a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    /// Sender.
    pub(crate) from: (IpAddr, u16),
    /// Port to which it was sent.
    pub(crate) to_port: u16,
    /// Payload.
    pub(crate) payload: &'a [u8],
}

/// Reads a frame that the program redirected; `None` for one that a UDP socket would not deliver.
#[inline]
pub(crate) fn read(frame: &[u8]) -> Option<Datagram<'_>> {
    match <[u8; 2]>::try_from(frame.get(12..14)?).ok()? {
        IPV4 => read_v4(frame),
        IPV6 => read_v6(frame),
        _ => None,
    }
}

#[inline]
fn read_v4(frame: &[u8]) -> Option<Datagram<'_>> {
    let (headers, rest) = frame.split_first_chunk::<HEADERS_V4_LEN>()?;
    let udp_at = ETHER_LEN + IPV4_LEN;
    if headers[ETHER_LEN] != VERSION_4 || headers[ETHER_LEN + 9] != UDP {
        return None;
    }
    let len = usize::from(half(headers, udp_at + 4));
    if usize::from(half(headers, IPV4_TOTAL)) != IPV4_LEN + len
        || fold(sum(&headers[ETHER_LEN..udp_at])) != u16::MAX
    {
        return None;
    }
    let from = headers[IPV4_FROM..].first_chunk::<4>()?;
    datagram(headers, (udp_at, Ipv4Addr::from(*from).into()), rest)
}

#[inline]
fn read_v6(frame: &[u8]) -> Option<Datagram<'_>> {
    let (headers, rest) = frame.split_first_chunk::<HEADERS_V6_LEN>()?;
    let udp_at = ETHER_LEN + IPV6_LEN;
    if headers[ETHER_LEN] >> 4 != VERSION_6 >> 4 || headers[IPV6_NEXT] != UDP {
        return None;
    }
    if half(headers, IPV6_LENGTH) != half(headers, udp_at + 4) {
        return None;
    }
    let from = headers[IPV6_FROM..].first_chunk::<16>()?;
    datagram(headers, (udp_at, Ipv6Addr::from(*from).into()), rest)
}

/// The datagram behind an IP header, from an address, if its length and checksum are right.
#[inline]
fn datagram<'a>(
    headers: &[u8],
    (udp_at, from): (usize, IpAddr),
    rest: &'a [u8],
) -> Option<Datagram<'a>> {
    let len = usize::from(half(headers, udp_at + 4));
    // Short frames are padded.
    let payload = rest.get(..len.checked_sub(UDP_LEN)?)?;
    is_whole(headers, udp_at, payload).then(|| Datagram {
        from: (from, half(headers, udp_at)),
        to_port: half(headers, udp_at + 2),
        payload,
    })
}

/// Verifies the datagram's checksum. A kernel that sends over a virtual link of this host leaves
/// the sum of the pseudo-header in its place (`CHECKSUM_PARTIAL`), since no wire can damage it.
/// Over IPv6 a sum of zero is invalid (RFC 8200, section 8.1).
#[inline]
fn is_whole(headers: &[u8], udp_at: usize, payload: &[u8]) -> bool {
    let at = udp_at + UDP_CHECKSUM;
    let stored = u16::from_ne_bytes([headers[at], headers[at + 1]]);
    let len = [headers[udp_at + 4], headers[udp_at + 5]];
    let pseudo = pseudo_sum(headers, udp_at) + sum(&len);
    let all = || fold(pseudo + sum(&headers[udp_at..at + 2]) + sum(payload));
    match stored {
        0 => is_v4(udp_at),
        _ => stored == fold(pseudo) || all() == u16::MAX,
    }
}

/// The 16-bit number at an offset.
#[inline]
fn half(headers: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([headers[at], headers[at + 1]])
}

/// The sum of the pseudo-header without the length.
#[inline]
fn pseudo_sum(headers: &[u8], udp_at: usize) -> u64 {
    let from = if is_v4(udp_at) { IPV4_FROM } else { IPV6_FROM };
    sum(&headers[from..udp_at]) + u64::from(u16::from_be(u16::from(UDP)))
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
#[path = "frames_test.rs"]
mod tests;
