//! Where the frames of a destination go: questions to the kernel's tables of routes and neighbours
//! (rtnetlink), and their answers.

use super::frames::Mac;
use std::net::Ipv4Addr;

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
    pub(crate) ip: Ipv4Addr,
}

/// Asks for the route to an address by an interface.
pub(crate) fn ask_route(to: Ipv4Addr, interface: u32) -> Vec<u8> {
    let mut body = [0; BODY_LEN];
    body[0] = libc::AF_INET as u8;
    body[ROUTE_TO_BITS] = 32;
    let attributes = [
        (libc::RTA_DST, to.octets()),
        (libc::RTA_OIF, interface.to_ne_bytes()),
    ];
    message(libc::RTM_GETROUTE, &body, &attributes)
}

/// Reads the answer to [`ask_route`]; `None` if the kernel would not send datagrams there.
pub(crate) fn read_route(answer: &[u8], to: Ipv4Addr) -> Option<NextHop> {
    let (body, attributes) = parts::<BODY_LEN>(answer, libc::RTM_NEWROUTE)?;
    if body[ROUTE_TYPE] != libc::RTN_UNICAST {
        return None;
    }
    let interface = attribute(attributes, libc::RTA_OIF)?;
    let router = attribute(attributes, libc::RTA_GATEWAY);
    Some(NextHop {
        interface: u32::from_ne_bytes(interface.try_into().ok()?),
        ip: match router {
            Some(ip) => <[u8; 4]>::try_from(ip).ok()?.into(),
            None => to,
        },
    })
}

/// Asks for the entry of a neighbour.
pub(crate) fn ask_neighbour(hop: &NextHop) -> Vec<u8> {
    let mut body = [0; BODY_LEN];
    body[0] = libc::AF_INET as u8;
    body[NEIGHBOUR_INTERFACE..NEIGHBOUR_STATE].copy_from_slice(&hop.interface.to_ne_bytes());
    message(
        libc::RTM_GETNEIGH,
        &body,
        &[(libc::NDA_DST, hop.ip.octets())],
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

/// A question of a kind to the kernel.
pub(super) fn message(kind: u16, body: &[u8], attributes: &[(u16, [u8; 4])]) -> Vec<u8> {
    let len = HEADER_LEN + body.len() + attributes.len() * (ATTRIBUTE_LEN + 4);
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]); // sequence number and port: one answer at a time is awaited
    message.extend(body);
    for (kind, value) in attributes {
        message.extend(((ATTRIBUTE_LEN + value.len()) as u16).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value);
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

    const TO: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 254);

    fn route(kind: u8, attributes: &[(u16, [u8; 4])]) -> Vec<u8> {
        let mut body = [0; BODY_LEN];
        body[ROUTE_TYPE] = kind;
        message(libc::RTM_NEWROUTE, &body, attributes)
    }

    #[test]
    fn a_route_names_the_next_hop() {
        let by = (libc::RTA_OIF, 7u32.to_ne_bytes());
        let router = (libc::RTA_GATEWAY, ROUTER.octets());
        let hop = |ip| Some(NextHop { interface: 7, ip });
        assert_eq!(read_route(&route(libc::RTN_UNICAST, &[by]), TO), hop(TO));
        let routed = route(libc::RTN_UNICAST, &[router, by]);
        assert_eq!(read_route(&routed, TO), hop(ROUTER));
        assert_eq!(read_route(&route(libc::RTN_LOCAL, &[by]), TO), None);
        assert_eq!(read_route(&route(libc::RTN_UNICAST, &[]), TO), None);
        for len in 0..routed.len() {
            assert_eq!(read_route(&routed[..len], TO), None);
        }
    }

    #[test]
    fn a_neighbour_counts_while_the_kernel_would_use_it() {
        let answer = |state: u16| {
            let mut body = [0; BODY_LEN];
            body[NEIGHBOUR_STATE..NEIGHBOUR_STATE + 2].copy_from_slice(&state.to_ne_bytes());
            let to = (libc::NDA_DST, TO.octets());
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
            ip: TO,
        };
        assert_eq!(read_neighbour(&ask_neighbour(&hop)), None, "no answer");
    }

    #[test]
    fn random_answers_are_no_answers() {
        let mut answer = route(libc::RTN_UNICAST, &[(libc::RTA_OIF, [7, 0, 0, 0])]);
        for at in 0..answer.len() {
            for value in [0, 1, 3, 255] {
                let was = std::mem::replace(&mut answer[at], value);
                let _ = (read_route(&answer, TO), read_neighbour(&answer));
                answer[at] = was;
            }
        }
    }
}
