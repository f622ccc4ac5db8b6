//! Where the frames of a destination go: questions to the kernel's tables of routes and neighbours
//! (rtnetlink), and their answers.

use super::frames::Mac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Lengths of `nlmsghdr`, and of `rtmsg` and `ndmsg`.
const HEADER_LEN: usize = 16;
const BODY_LEN: usize = 12;
/// Length of an attribute's header.
const ATTRIBUTE_LEN: usize = 4;

/// Offsets in `rtmsg` and `ndmsg`.
const ROUTE_TO_BITS: usize = 1;
const ROUTE_TYPE: usize = 7;
const NEIGHBOUR_INTERFACE: usize = 4;
const NEIGHBOUR_STATE: usize = 8;

/// States in which the kernel sends to a neighbour's address without asking first: reachable,
/// stale, delay, probe, no ARP, permanent.
const USABLE_STATES: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// Where the kernel sends datagrams to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    /// Index of the interface.
    pub(crate) interface: u32,
    /// The router, or the destination itself.
    pub(crate) ip: IpAddr,
}

/// The kernel's number of an address's family, the address, and its length in bytes.
fn octets(ip: &IpAddr) -> (u8, [u8; 16], usize) {
    let mut bytes = [0; 16];
    match ip {
        IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes = ip.octets(),
    }
    match ip {
        IpAddr::V4(_) => (libc::AF_INET as u8, bytes, 4),
        IpAddr::V6(_) => (libc::AF_INET6 as u8, bytes, 16),
    }
}

/// An address in an attribute.
fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(Ipv4Addr::from(*octets.first_chunk::<4>()?).into()),
        16 => Some(Ipv6Addr::from(*octets.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// Asks for the route to an address by an interface.
pub(crate) fn ask_route(to: IpAddr, interface: u32) -> Vec<u8> {
    let mut body = [0; BODY_LEN];
    let (family, octets, len) = octets(&to);
    body[0] = family;
    body[ROUTE_TO_BITS] = 8 * len as u8;
    let attributes = [
        (libc::RTA_DST, &octets[..len]),
        (libc::RTA_OIF, &interface.to_ne_bytes()),
    ];
    message(libc::RTM_GETROUTE, &body, &attributes)
}

/// Reads the answer to [`ask_route`]; `None` if the kernel would not send datagrams there.
pub(crate) fn read_route(answer: &[u8], to: IpAddr) -> Option<NextHop> {
    let (body, attributes) = parts::<BODY_LEN>(answer, libc::RTM_NEWROUTE)?;
    if body[ROUTE_TYPE] != libc::RTN_UNICAST {
        return None;
    }
    let interface = attribute(attributes, libc::RTA_OIF)?;
    let router = attribute(attributes, libc::RTA_GATEWAY);
    Some(NextHop {
        interface: u32::from_ne_bytes(interface.try_into().ok()?),
        ip: match router {
            Some(ip) => address(ip)?,
            None => to,
        },
    })
}

/// Asks for the entry of a neighbour.
pub(crate) fn ask_neighbour(hop: &NextHop) -> Vec<u8> {
    let mut body = [0; BODY_LEN];
    let (family, octets, len) = octets(&hop.ip);
    body[0] = family;
    body[NEIGHBOUR_INTERFACE..NEIGHBOUR_STATE].copy_from_slice(&hop.interface.to_ne_bytes());
    message(
        libc::RTM_GETNEIGH,
        &body,
        &[(libc::NDA_DST, &octets[..len])],
    )
}

/// Reads the answer to [`ask_neighbour`]: the neighbour's Ethernet address, if the kernel would use
/// it at present.
pub(crate) fn read_neighbour(answer: &[u8]) -> Option<Mac> {
    let (body, attributes) = parts::<BODY_LEN>(answer, libc::RTM_NEWNEIGH)?;
    let state = u16::from_ne_bytes([body[NEIGHBOUR_STATE], body[NEIGHBOUR_STATE + 1]]);
    let known = state & USABLE_STATES != 0;
    let address = attribute(attributes, libc::NDA_LLADDR).filter(|_| known)?;
    address.try_into().ok()
}

/// A question of a kind to the kernel. Values of attributes are whole words.
pub(super) fn message(kind: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let values = attributes
        .iter()
        .map(|(_, value)| ATTRIBUTE_LEN + value.len());
    let len = HEADER_LEN + body.len() + values.sum::<usize>();
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]); // sequence number and port: one answer at a time is awaited
    message.extend(body);
    for (kind, value) in attributes {
        message.extend(((ATTRIBUTE_LEN + value.len()) as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(*value);
    }
    message
}

/// The body and the attributes of an answer of a kind; `None` for another one, such as an error.
pub(super) fn parts<const N: usize>(answer: &[u8], kind: u16) -> Option<(&[u8; N], &[u8])> {
    let (header, _) = answer.split_first_chunk::<HEADER_LEN>()?;
    let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
    if u16::from_ne_bytes([header[4], header[5]]) != kind {
        return None;
    }
    answer.get(HEADER_LEN..len)?.split_first_chunk()
}

/// The value of the first attribute with a number.
pub(super) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((&[a, b, c, d], _)) = attributes.split_first_chunk::<ATTRIBUTE_LEN>() {
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = attributes.get(ATTRIBUTE_LEN..len)?;
        if u16::from_ne_bytes([c, d]) == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(ATTRIBUTE_LEN)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
    ];
    const ROUTER: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(10, 1, 0, 254)),
        IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
    ];

    fn route(kind: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = [0; BODY_LEN];
        body[ROUTE_TYPE] = kind;
        message(libc::RTM_NEWROUTE, &body, attributes)
    }

    #[test]
    fn a_route_names_the_next_hop() {
        let interface = 7u32.to_ne_bytes();
        let by = (libc::RTA_OIF, &interface[..]);
        let hop = |ip| Some(NextHop { interface: 7, ip });
        for (to, router) in TO.into_iter().zip(ROUTER) {
            let (_, octets, len) = octets(&router);
            let gateway = (libc::RTA_GATEWAY, &octets[..len]);
            assert_eq!(read_route(&route(libc::RTN_UNICAST, &[by]), to), hop(to));
            let routed = route(libc::RTN_UNICAST, &[gateway, by]);
            assert_eq!(read_route(&routed, to), hop(router));
            assert_eq!(read_route(&route(libc::RTN_LOCAL, &[by]), to), None);
            assert_eq!(read_route(&route(libc::RTN_UNICAST, &[]), to), None);
            for len in 0..routed.len() {
                assert_eq!(read_route(&routed[..len], to), None);
            }
        }
    }

    #[test]
    fn questions_have_the_addresses_family() {
        for (to, (family, bits)) in TO
            .into_iter()
            .zip([(libc::AF_INET, 32), (libc::AF_INET6, 128)])
        {
            let body = |question: Vec<u8>| [question[HEADER_LEN], question[HEADER_LEN + 1]];
            assert_eq!(body(ask_route(to, 7)), [family as u8, bits]);
            let hop = NextHop {
                interface: 7,
                ip: to,
            };
            assert_eq!(body(ask_neighbour(&hop))[0], family as u8);
        }
    }

    #[test]
    fn a_neighbour_counts_while_the_kernel_would_use_it() {
        let answer = |state: u16| {
            let mut body = [0; BODY_LEN];
            body[NEIGHBOUR_STATE..NEIGHBOUR_STATE + 2].copy_from_slice(&state.to_ne_bytes());
            let to = (libc::NDA_DST, &[10u8, 1, 0, 2][..]);
            let mut answer = message(libc::RTM_NEWNEIGH, &body, &[to]);
            answer.extend(
                [10u16, libc::NDA_LLADDR]
                    .map(u16::to_ne_bytes)
                    .as_flattened(),
            );
            answer.extend([1, 2, 3, 4, 5, 6, 0, 0]); // padded to four bytes
            let len = answer.len() as u32;
            answer[..4].copy_from_slice(&len.to_ne_bytes());
            answer
        };
        for (state, known) in [(0x01, false), (0x02, true), (0x04, true), (0x20, false)] {
            let expected = known.then_some([1, 2, 3, 4, 5, 6]);
            assert_eq!(read_neighbour(&answer(state)), expected, "{state:#x}");
        }
        let hop = NextHop {
            interface: 7,
            ip: TO[0],
        };
        assert_eq!(read_neighbour(&ask_neighbour(&hop)), None, "no answer");
    }

    #[test]
    fn random_answers_are_no_answers() {
        let mut answer = route(libc::RTN_UNICAST, &[(libc::RTA_OIF, &[7, 0, 0, 0])]);
        for at in 0..answer.len() {
            for value in [0, 1, 3, 255] {
                let was = std::mem::replace(&mut answer[at], value);
                let _ = (read_route(&answer, TO[0]), read_neighbour(&answer));
                answer[at] = was;
            }
        }
    }
}
