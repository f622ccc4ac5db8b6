//! Addresses as text:
//!
//! ```text
//! fi_marline://HOST:PORT/BLOB    complete: the address blob in base64url (RFC 4648, unpadded)
//! fi_marline://HOST:PORT         a place: the endpoint that opened it first
//! ```
//!
//! `HOST:PORT` of a complete address is that of its first IP rail. It is omitted if there is no IP
//! rail or if the text would exceed [`TEXT_LEN_MAX`]. IPv6 hosts are in brackets. The host of a
//! place may be a name.

use crate::platform::random::random;
use marline_auth::JobKey;
use marline_rails::UdpAddr;
pub use marline_rails::Unanswered;
use marline_wire::{Address, RailAddr, ADDRESS_LEN_MAX};
use std::net::SocketAddr;
use std::time::Duration;

/// Prefix of every address text.
pub const SCHEME: &str = "fi_marline://";

/// Longest text in bytes without its terminating zero, so that a caller's 128 bytes hold every text
/// and its zero.
pub const TEXT_LEN_MAX: usize = 126;

/// Digits of base64url (RFC 4648, section 5), 6 bits each; none of them has a meaning in URIs.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Digits of the longest blob.
const BLOB_DIGITS_MAX: usize = (ADDRESS_LEN_MAX * 8).div_ceil(6);

/// The endpoint or place that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// An endpoint, by its address blob.
    Whole([u8; ADDRESS_LEN_MAX]),
    /// A host name or IP address, and a port (never 0).
    Place(String, u16),
}

/// Formats an address blob; `None` if the blob is invalid.
pub fn text_of(blob: &[u8]) -> Option<String> {
    let address = Address::decode(blob).ok()?;
    if is_place(&address) {
        return Some(format!("{SCHEME}{}", place_of(&address)));
    }
    let (bytes, len) = address.encode();
    let digits = digits_of(&bytes[..len]);
    Some(format!(
        "{SCHEME}{}/{digits}",
        place_before(&address, &digits)
    ))
}

/// Shortens a blob to at most `len` bytes: the same endpoint, with as many of its rails as fit.
pub fn shortened(blob: &[u8; ADDRESS_LEN_MAX], len: usize) -> [u8; ADDRESS_LEN_MAX] {
    let Ok(address) = Address::decode(blob) else {
        return *blob;
    };
    let mut rails: Vec<RailAddr> = address.rails().iter().collect();
    loop {
        let mut short = Address::new(address.id, address.token, &rails);
        short.has_more = address.has_more || rails.len() < address.rails().iter().count();
        short.key_mark = address.key_mark;
        short.set_versions(address.versions());
        let short = short.encode();
        if short.1 <= len || rails.pop().is_none() {
            return short.0;
        }
    }
}

/// The `HOST:PORT` part of a complete address, to be followed by these digits.
fn place_before(address: &Address, digits: &str) -> String {
    let place = place_of(address);
    match SCHEME.len() + place.len() + 1 + digits.len() > TEXT_LEN_MAX {
        true => String::new(),
        false => place,
    }
}

/// Host and port of an address's first IP rail; empty without one.
fn place_of(address: &Address) -> String {
    let mut rails = address.rails().iter();
    let first = rails.find_map(|rail| UdpAddr::place(&rail));
    first.map_or(String::new(), |at| at.to_string())
}

/// True for the blob of a place, whose identity is 0 (an endpoint's never is).
fn is_place(address: &Address) -> bool {
    (address.id, address.token) == (0, 0)
}

/// Datagram length in the blob of a place, which requires one although the real limit is unknown.
const DATAGRAM: u16 = 1_472;

/// Encodes as many places as fit into a blob, which stands for any endpoint that answers at one of
/// them. No endpoint itself has such a blob as its name.
pub fn place_blob(at: &[SocketAddr]) -> [u8; ADDRESS_LEN_MAX] {
    let rail = |at: &SocketAddr| {
        let mut rail = UdpAddr::new(at.ip(), at.port()).rail();
        rail.datagram_max = DATAGRAM;
        rail
    };
    let rails: Vec<RailAddr> = at.iter().map(rail).collect();
    Address::new(0, 0, &rails).encode().0
}

/// Decodes the places in a blob; `None` if the blob is invalid, or is the address of an endpoint.
pub fn places_of(blob: &[u8]) -> Option<Vec<SocketAddr>> {
    let address = Address::decode(blob).ok().filter(is_place)?;
    let rails = address.rails().iter();
    Some(rails.filter_map(|rail| UdpAddr::place(&rail)).collect())
}

/// Asks the places for their endpoints, for at most `time`. Returns the blob of the first endpoint
/// that answers. `key`: the job's key, without which its endpoints do not answer.
pub fn ask(
    places: &[SocketAddr],
    time: Duration,
    key: Option<&JobKey>,
) -> Result<[u8; ADDRESS_LEN_MAX], Unanswered> {
    let number = random()().map_err(|_| Unanswered::NoWay)?;
    let key = key.map(JobKey::questions);
    let tag = key.map(|key| move |bytes: &[u8]| key.tag(bytes));
    let tag = tag.as_ref().map(|tag| tag as &dyn Fn(&[u8]) -> u64);
    let blob = marline_rails::ask(places, number, time, marline_checksum::crc32c, tag)?;
    let address = Address::decode(&blob).ok();
    match address.is_some_and(|address| address.id != 0) {
        true => Ok(blob),
        false => Err(Unanswered::Silent),
    }
}

/// Parses the text of an address. Errors are texts for the user.
pub fn read(text: &str) -> Result<Named, String> {
    let rest = text
        .strip_prefix(SCHEME)
        .ok_or_else(|| format!("\"{text}\" is no address of Marline: those begin with {SCHEME}"))?;
    let (place, blob) = match rest.split_once('/') {
        Some((place, blob)) if !blob.is_empty() => (place, Some(blob)),
        Some((place, _)) => (place, None),
        None => (rest, None),
    };
    let Some(digits) = blob else {
        let (host, port) = split_place(place).map_err(|why| format!("\"{text}\": {why}"))?;
        return Ok(Named::Place(host.to_owned(), port));
    };
    let bytes = bytes_of(digits).ok_or_else(|| {
        format!("\"{text}\": behind the port come up to {BLOB_DIGITS_MAX} digits of base64url")
    })?;
    let address = Address::decode(&bytes).map_err(|why| format!("\"{text}\": {why}"))?;
    let (encoded, len) = address.encode();
    let canonical = digits_of(&encoded[..len]);
    let of = place_before(&address, &canonical);
    if canonical != digits {
        return Err(format!(
            "\"{text}\": it is cut off, or something follows it"
        ));
    }
    if place != of {
        return Err(format!("\"{text}\": what follows is the address of {of}"));
    }
    Ok(Named::Whole(bytes))
}

/// Splits `HOST:PORT`.
fn split_place(place: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = place.rsplit_once(':').ok_or("a port is missing")?;
    let port: u16 = port.parse().map_err(|_| "this is no port")?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').ok_or("a bracket is missing")?,
        None if host.contains(':') => return Err("an IPv6 address stands in brackets"),
        None => host,
    };
    match host {
        "" => Err("a host is missing"),
        _ => Ok((host, port)),
    }
}

/// Encodes bytes in base64url without padding.
fn digits_of(bytes: &[u8]) -> String {
    let digits = bytes.chunks(3).flat_map(|three| {
        let mut word = [0; 4];
        word[1..=three.len()].copy_from_slice(three);
        let word = u32::from_be_bytes(word);
        let digit = move |at: u32| DIGITS[(word >> (18 - 6 * at)) as usize & 63] as char;
        (0..=three.len() as u32).map(digit)
    });
    digits.collect()
}

/// Decodes base64url digits, padded with zeros.
fn bytes_of(digits: &str) -> Option<[u8; ADDRESS_LEN_MAX]> {
    let mut bytes = [0; ADDRESS_LEN_MAX];
    if digits.len() > BLOB_DIGITS_MAX || digits.len() % 4 == 1 {
        return None;
    }
    for (room, four) in bytes.chunks_mut(3).zip(digits.as_bytes().chunks(4)) {
        let mut word = 0;
        for (at, digit) in four.iter().enumerate() {
            let value = DIGITS.iter().position(|d| d == digit)? as u32;
            word |= value << (18 - 6 * at);
        }
        let three = word.to_be_bytes();
        room.copy_from_slice(&three[1..=room.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_wire::RailKind;

    fn blob(rails: &[RailAddr]) -> [u8; ADDRESS_LEN_MAX] {
        let rails: Vec<RailAddr> = rails.iter().map(|rail| sized(*rail)).collect();
        Address::new(0x0123_4567_89ab_cdef, 0xfeed_beef, &rails)
            .encode()
            .0
    }

    fn sized(mut rail: RailAddr) -> RailAddr {
        rail.datagram_max = 1_472;
        rail
    }

    fn udp(ip: &str, port: u16) -> RailAddr {
        UdpAddr::new(ip.parse().unwrap(), port).rail()
    }

    #[test]
    fn texts_are_parsed_to_the_same_address() {
        let near = RailAddr::new(RailKind::Shm, &[7; 16]);
        for (rails, place) in [
            (
                vec![udp("10.1.0.1", 4_000), udp("10.2.0.1", 4_001)],
                "10.1.0.1:4000",
            ),
            (vec![udp("fd00::7", 5_000)], "[fd00::7]:5000"),
            (vec![near, udp("10.1.0.1", 4_000)], "10.1.0.1:4000"),
            (vec![near], ""),
        ] {
            let blob = blob(&rails);
            let text = text_of(&blob).unwrap();
            assert!(text.starts_with(&format!("{SCHEME}{place}/")), "{text}");
            assert_eq!(read(&text), Ok(Named::Whole(blob)));
        }
    }

    #[test]
    fn a_place_is_a_host_and_a_port() {
        let place = |host: &str, port| Ok(Named::Place(host.to_owned(), port));
        assert_eq!(read("fi_marline://node1:7471"), place("node1", 7_471));
        assert_eq!(read("fi_marline://10.1.0.1:1/"), place("10.1.0.1", 1));
        assert_eq!(read("fi_marline://[::1]:65535"), place("::1", 65_535));
    }

    #[test]
    fn the_blob_of_a_place_has_its_text() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let both = [at("10.1.0.1:7471"), at("[fd00::7]:0")];
        let blob = place_blob(&both);
        assert_eq!(places_of(&blob).unwrap(), both);
        let text = text_of(&blob).unwrap();
        assert_eq!(text, "fi_marline://10.1.0.1:7471");
        assert_eq!(read(&text), Ok(Named::Place("10.1.0.1".to_owned(), 7_471)));
        assert_eq!(
            text_of(&place_blob(&[both[1]])).unwrap(),
            "fi_marline://[fd00::7]:0"
        );
        assert_eq!(places_of(&blob_of_nobody()), None);
    }

    fn blob_of_nobody() -> [u8; ADDRESS_LEN_MAX] {
        blob(&[udp("10.1.0.1", 4_000)])
    }

    #[test]
    fn texts_that_are_no_address_are_refused_with_a_reason() {
        let whole = text_of(&blob(&[udp("10.1.0.1", 4_000)])).unwrap();
        let elsewhere = whole.replacen("10.1.0.1", "10.1.0.2", 1);
        let cut = &whole[..whole.len() - 6];
        for (text, why) in [
            ("", "begin with"),
            ("10.1.0.1:4000", "begin with"),
            ("fi_sockaddr_in://10.1.0.1:4000", "begin with"),
            ("fi_marline://", "port is missing"),
            ("fi_marline://node1", "port is missing"),
            ("fi_marline://node1:", "no port"),
            ("fi_marline://node1:65536", "no port"),
            ("fi_marline://:7471", "host is missing"),
            ("fi_marline://[::1:7471", "bracket is missing"),
            ("fi_marline://::1:7471", "in brackets"),
            ("fi_marline://node1:1/xyz.", "base64url"),
            ("fi_marline://node1:1/+1", "base64url"),
            ("fi_marline://node1:1/ée", "base64url"),
            ("fi_marline://node1:1/abcde", "base64url"),
            ("fi_marline://node1:1/00", "no address of Marline"),
            (cut, "cut off"),
            (&format!("{whole}00"), "something follows"),
            (&elsewhere, "the address of 10.1.0.1:4000"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        assert_eq!(text_of(&[0; 64]), None);
    }

    #[test]
    fn the_longest_text_has_room_in_128_bytes() {
        let v4: Vec<RailAddr> = (0..4)
            .map(|n| udp(&format!("210.211.212.21{n}"), 65_535))
            .collect();
        let v6 = |n: u16| {
            udp(
                &format!("2001:1db8:1234:5678:9abc:def0:1234:{:x}", 0xf000 + n),
                65_535,
            )
        };
        for (rails, starts) in [
            (v4, "fi_marline://210.211.212.210:65535/"),
            (vec![v6(0), v6(1)], "fi_marline:///"),
            (
                vec![v6(0)],
                "fi_marline://[2001:1db8:1234:5678:9abc:def0:1234:f000]:65535/",
            ),
        ] {
            let blob = blob(&rails);
            let text = text_of(&blob).unwrap();
            assert!(text.len() <= TEXT_LEN_MAX, "{} bytes: {text}", text.len());
            assert!(text.starts_with(starts), "{text}");
            assert_eq!(read(&text), Ok(Named::Whole(blob)));
        }
    }

    #[test]
    fn a_short_blob_names_the_first_rails() {
        let v4 = |n: u16| udp("10.1.0.1", 4_000 + n);
        let v6 = |n: u16| udp("fd00::7", 4_000 + n);
        for (rails, kept) in [
            (vec![v4(0), v4(1), v4(2), v4(3)], 2),
            (vec![v4(0), v6(1)], 1),
            (vec![v6(0), v6(1)], 1),
            (vec![RailAddr::new(RailKind::Ud, &[1; 24])], 1),
        ] {
            let mut long = Address::decode(&blob(&rails)).unwrap();
            long.key_mark = 0x5a5;
            let long = long.encode().0;
            assert_eq!(shortened(&long, ADDRESS_LEN_MAX), long);
            let short = shortened(&long, 48);
            assert_eq!(short[48..], [0; 16]);
            let [short, long] = [short, long].map(|blob| Address::decode(&blob).unwrap());
            assert_eq!((short.id, short.token), (long.id, long.token));
            assert_eq!(short.key_mark, 0x5a5);
            assert_eq!(short.has_more, kept < rails.len());
            assert!(short.rails().iter().eq(long.rails().iter().take(kept)));
        }
        assert_eq!(
            shortened(&[7; 64], 48),
            [7; 64],
            "no address stays what it is"
        );
    }

    /// Changing any character gives another address or an error, never a panic.
    #[test]
    fn damaged_texts_are_read_without_harm() {
        let whole = text_of(&blob(&[udp("fd00::7", 4_000), udp("10.1.0.1", 4_000)])).unwrap();
        for at in 0..whole.len() {
            for with in ["", "0", "f", ":", "/", "]", "é", "\0"] {
                let mut text = whole.clone();
                text.replace_range(at..at + 1, with);
                let _ = read(&text);
            }
        }
    }
}
