//! Addresses as people read and write them:
//!
//! ```text
//! fi_marline://HOST:PORT/BLOB    whole: BLOB is the address blob in hexadecimal digits
//! fi_marline://HOST:PORT         a place: whoever has opened it there first
//! ```
//!
//! `HOST:PORT` of a whole address is that of its first rail over IP; it is left out where there is
//! none. A host of IPv6 stands in brackets. The host of a place may be a name.

use crate::platform::random::random;
use marline_rails::UdpAddr;
pub use marline_rails::Unanswered;
use marline_wire::{Address, RailAddr, ADDRESS_LEN_MAX};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// How the text of an address begins.
pub const SCHEME: &str = "fi_marline://";

/// The endpoint or the place that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// An endpoint, by its address blob.
    Whole([u8; ADDRESS_LEN_MAX]),
    /// A host, or its IP address, and a port; 0 is nobody's.
    Place(String, u16),
}

/// The text of an address blob; `None` if it is none.
pub fn text_of(blob: &[u8]) -> Option<String> {
    let address = Address::decode(blob).ok()?;
    if is_place(&address) {
        return Some(format!("{SCHEME}{}", place_of(&address)));
    }
    let mut text = format!("{SCHEME}{}/", place_of(&address));
    let (bytes, len) = address.encode();
    for byte in &bytes[..len] {
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

/// The host and the port of an address's first rail over IP; empty without one.
fn place_of(address: &Address) -> String {
    let mut rails = address.rails().iter();
    let first = rails.find_map(|rail| UdpAddr::place(&rail));
    first.map_or(String::new(), |at| at.to_string())
}

/// Identities are never 0.
fn is_place(address: &Address) -> bool {
    (address.id, address.token) == (0, 0)
}

/// Largest datagram of a place, which nobody knows yet: a place has to say one.
const DATAGRAM: u16 = 1_472;

/// The blob of places, as many as it has room for: whoever is reached at one of them. Nobody has it
/// as a name.
pub fn place_blob(at: &[SocketAddr]) -> [u8; ADDRESS_LEN_MAX] {
    let rail = |at: &SocketAddr| {
        let mut rail = UdpAddr::new(at.ip(), at.port()).rail();
        rail.datagram_max = DATAGRAM;
        rail
    };
    let rails: Vec<RailAddr> = at.iter().map(rail).collect();
    Address::new(0, 0, &rails).encode().0
}

/// The places that a blob stands for; `None` if it is the address of an endpoint, or none.
pub fn places_of(blob: &[u8]) -> Option<Vec<SocketAddr>> {
    let address = Address::decode(blob).ok().filter(is_place)?;
    let rails = address.rails().iter();
    Some(rails.filter_map(|rail| UdpAddr::place(&rail)).collect())
}

/// Asks who is at one of these places, for so long: the blob of the endpoint that answers first.
pub fn ask(places: &[SocketAddr], time: Duration) -> Result<[u8; ADDRESS_LEN_MAX], Unanswered> {
    let number = random()().map_err(|_| Unanswered::NoWay)?;
    let blob = marline_rails::ask(places, number, time, marline_checksum::crc32c)?;
    let address = Address::decode(&blob).ok();
    match address.is_some_and(|address| address.id != 0) {
        true => Ok(blob),
        false => Err(Unanswered::Silent),
    }
}

/// Reads the text of an address. Errors are texts for people.
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
        format!("\"{text}\": behind the port come up to 128 hexadecimal digits, two for each byte")
    })?;
    let address = Address::decode(&bytes).map_err(|why| format!("\"{text}\": {why}"))?;
    let of = place_of(&address);
    if 2 * address.encode().1 != digits.len() {
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

/// The bytes of a blob, filled up with zeros.
fn bytes_of(digits: &str) -> Option<[u8; ADDRESS_LEN_MAX]> {
    let mut bytes = [0; ADDRESS_LEN_MAX];
    let fits = digits.len() % 2 == 0 && digits.len() <= 2 * ADDRESS_LEN_MAX;
    if !fits || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes[..digits.len() / 2].iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
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
    fn a_text_is_the_address_that_it_was_made_of() {
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
    fn what_is_no_address_is_told_why() {
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
            ("fi_marline://node1:1/xyz", "hexadecimal"),
            ("fi_marline://node1:1/+1", "hexadecimal"),
            ("fi_marline://node1:1/ée", "hexadecimal"),
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

    /// Any change of a character makes another address or an error, never a panic.
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
