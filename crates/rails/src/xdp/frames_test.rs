//! Frames: as a kernel makes them, and read again.

use super::*;

const PORTS: (u16, u16) = (40_000, 50_000);

/// A route between two addresses.
fn route(from: &str, to: &str, dscp: u8) -> Route {
    let end = |mac, ip: &str, port| ([2, 0, 0, 0, 0, mac], ip.parse().unwrap(), port);
    Route::new(end(1, from, PORTS.0), end(2, to, PORTS.1), dscp).unwrap()
}

/// A route of each family, with the length of its headers and its first address.
fn routes() -> [(Route, usize, IpAddr); 2] {
    let (v4, v6) = (["10.101.0.1", "10.101.0.2"], ["fd00::1", "fd00::2"]);
    [(v4, HEADERS_V4_LEN), (v6, HEADERS_V6_LEN)]
        .map(|([from, to], len)| (route(from, to, 0), len, from.parse().unwrap()))
}

fn frame(route: &Route, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; 2_000];
    let len = route.write(payload, &mut frame).unwrap();
    frame.truncate(len);
    frame
}

/// Frames of a datagram as a kernel makes them, with checksums that were computed apart.
const FROM_KERNEL_V4: &[u8] = &[
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x26, 0x02,
    10, 101, 0, 1, 10, 101, 0, 2, 0x9c, 0x40, 0xc3, 0x50, 0, 11, 0xc7, 0x17, b'a', b'b', b'c',
];
const FROM_KERNEL_V6: &[u8] = &[
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 11, 17, 64, 0xfd, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0x9c, 0x40,
    0xc3, 0x50, 0, 11, 0xe1, 0xdf, b'a', b'b', b'c',
];

#[test]
fn a_frame_is_as_a_kernel_makes_it() {
    let [(v4, ..), (v6, ..)] = routes();
    assert_eq!(frame(&v4, b"abc"), FROM_KERNEL_V4);
    assert_eq!(frame(&v6, b"abc"), FROM_KERNEL_V6);
}

#[test]
fn a_route_has_one_family() {
    let end = |ip: &str| ([0; 6], ip.parse().unwrap(), 1);
    assert_eq!(Route::new(end("10.0.0.1"), end("fd00::1"), 0), None);
}

#[test]
fn what_was_written_is_read() {
    for (route, headers_len, from) in routes() {
        for len in (0..70).chain([1_451, 1_452]) {
            let payload: Vec<u8> = (0..len).map(|i| (i * 7) as u8 | 0x80).collect();
            let mut frame = frame(&route, &payload);
            assert_eq!(frame.len(), len + headers_len);
            frame.resize(frame.len().max(60), 0); // as a card pads it
            let datagram = read(&frame).unwrap();
            assert_eq!(datagram.payload, payload);
            assert_eq!(
                (datagram.from, datagram.to_port),
                ((from, PORTS.0), PORTS.1)
            );
        }
    }
}

#[test]
fn a_frame_has_its_traffic_class() {
    let v4 = frame(&route("127.0.0.1", "127.0.0.1", 46), b"abc");
    assert_eq!(v4[ETHER_LEN + 1], 0xb8);
    assert_eq!(read(&v4).unwrap().payload, b"abc");
    let v6 = frame(&route("::1", "::1", 46), b"abc");
    assert_eq!(v6[ETHER_LEN..ETHER_LEN + 2], [0x6b, 0x80]);
    assert_eq!(read(&v6).unwrap().payload, b"abc");
}

#[test]
fn a_damaged_bit_is_noticed() {
    for (route, ..) in routes() {
        let whole = frame(&route, b"some payload of odd length.");
        for bit in 12 * 8..whole.len() * 8 {
            // IPv6 has no sum of its traffic class, flow label and hop limit.
            let unsummed = whole[12..14] == IPV6
                && matches!((bit / 8, bit % 8), (14, 0..4) | (15..18 | 21, _));
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&damaged).is_none(), !unsummed, "bit {bit}");
        }
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]), None, "cut to {len} bytes");
        }
    }
}

#[test]
fn a_checksum_may_be_partial_and_over_ipv4_missing() {
    for (route, headers_len, from) in routes() {
        let (udp_at, at) = (headers_len - UDP_LEN, headers_len - 2);
        let mut other = frame(&route, b"payload");
        let partial = fold(pseudo_sum(&other, udp_at) + sum(&other[udp_at + 4..at]));
        other[at..headers_len].copy_from_slice(&partial.to_ne_bytes());
        assert!(read(&other).is_some());
        other[at..headers_len].fill(0);
        assert_eq!(read(&other).is_some(), from.is_ipv4());
        other[at] = 1;
        assert_eq!(read(&other), None);
    }
}

#[test]
fn a_sum_of_zero_is_written_as_ones() {
    for (route, headers_len, _) in routes() {
        // The payload that completes the sum to all ones.
        let bare = frame(&route, &[0, 0]);
        let rest = [bare[headers_len - 2], bare[headers_len - 1]];
        let full = frame(&route, &rest);
        assert_eq!(full[headers_len - 2..headers_len], [0xff, 0xff]);
        assert_eq!(read(&full).unwrap().payload, rest);
    }
}

#[test]
fn a_payload_without_room_is_refused() {
    for (route, headers_len, _) in routes() {
        let len = headers_len + 100;
        assert_eq!(route.write(&[0; 100], &mut vec![0; len - 1]), None);
        assert_eq!(route.write(&[0; 100], &mut vec![0; len]), Some(len));
        assert_eq!(route.write(&[0; 65_530], &mut vec![0; 66_000]), None);
    }
}
