//! The card of an endpoint: everything that others need to know to make a group with it. Whoever
//! opens a group gathers the cards of all its members beforehand, by other means, and all members
//! conclude the same from them.

use marline_proto::group::{Identity, LANES_MAX};
use marline_rails::group_addr;
use marline_rails::pairing::{same_host, same_network};
use marline_wire::{Address, RailAddr, RailList, ADDRESS_LEN_MAX};
use std::sync::Arc;

/// Bytes of a card: 2 for its version and how long its address is, 4 of the epoch, 4 of its receive
/// buffer, 20 of its scheme's name, then the address, then as many rails as there is room for: 8
/// with IPv6 addresses, at least.
pub const GROUP_CARD_LEN: usize = 312;
/// Members conclude the same from cards of one version, as to the bytes of a chunk.
const VERSION: u8 = 4;
const BUFFER_AT: usize = 6;
const SCHEME_AT: usize = 10;
/// Bytes of the longest name of a scheme that a card holds; no name in the documents is longer.
const SCHEME_LEN: usize = 20;
const ADDRESS_AT: usize = SCHEME_AT + SCHEME_LEN;
const RAILS_AT: usize = ADDRESS_AT + ADDRESS_LEN_MAX;

/// The contents of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupCard {
    pub(crate) address: Address,
    pub(crate) epoch: u32,
    /// Bytes that wait at the smallest of its rails before more is lost.
    pub(crate) receive_buffer: u32,
    /// The name of its scheme, as far as a card has room for it.
    pub(crate) scheme: String,
    /// Rails that have groups.
    pub(crate) rails: Vec<RailAddr>,
}

impl GroupCard {
    /// The card in bytes; rails for which there is no room are left out.
    pub(crate) fn encode(&self) -> [u8; GROUP_CARD_LEN] {
        let mut out = [0; GROUP_CARD_LEN];
        let (address, len) = self.address.encode();
        (out[0], out[1]) = (VERSION, len as u8);
        out[2..BUFFER_AT].copy_from_slice(&self.epoch.to_le_bytes());
        out[BUFFER_AT..SCHEME_AT].copy_from_slice(&self.receive_buffer.to_le_bytes());
        let name = self.scheme.bytes().take(SCHEME_LEN);
        (out[SCHEME_AT..].iter_mut().zip(name)).for_each(|(to, byte)| *to = byte);
        out[ADDRESS_AT..RAILS_AT].copy_from_slice(&address);
        RailList::write(&mut out[RAILS_AT..], &self.rails);
        out
    }

    /// Reads a card; `None`: it is damaged, or of another version.
    pub(crate) fn decode(card: &[u8]) -> Option<GroupCard> {
        let card: &[u8; GROUP_CARD_LEN] = card.try_into().ok()?;
        let address = card[ADDRESS_AT..RAILS_AT].get(..card[1] as usize)?;
        let [_, _, epoch @ .., _, _, _, _] = *card.first_chunk::<SCHEME_AT>()?;
        let buffer = card[BUFFER_AT..].first_chunk()?;
        let scheme = core::str::from_utf8(&card[SCHEME_AT..ADDRESS_AT]).ok()?;
        (card[0] == VERSION).then_some(GroupCard {
            address: Address::decode(address).ok()?,
            epoch: u32::from_le_bytes(epoch),
            receive_buffer: u32::from_le_bytes(*buffer),
            scheme: scheme.trim_end_matches('\0').to_owned(),
            rails: RailList::of(&card[RAILS_AT..]).iter().collect(),
        })
    }

    /// The processes of two cards are on one host, as far as their rails tell.
    pub(crate) fn is_beside(&self, other: &GroupCard) -> bool {
        let mut pairs = self.rails.iter().zip(&other.rails);
        self.rails.len() == other.rails.len() && pairs.all(|(a, b)| same_host(a, b))
    }
}

/// Two members whose schemes differ, if there are such: the first, and the first that is unlike it.
pub(crate) fn unlike(cards: &[GroupCard]) -> Option<[usize; 2]> {
    let first = cards.first()?;
    let other = cards.iter().position(|card| card.scheme != first.scheme);
    other.map(|other| [0, other])
}

/// The identity of a group of these members.
pub(crate) fn identity(id: u64, token: u32, cards: &[GroupCard]) -> Identity {
    let members: Arc<[(u64, u32)]> = cards.iter().map(|c| (c.address.id, c.epoch)).collect();
    Identity { id, token, members }
}

/// The networks in which all members have a rail that has groups: for each, by member, the place of
/// the rail on its card. They are found from the first member's rails on, so all find the same.
pub(crate) fn lanes(cards: &[GroupCard]) -> Vec<Vec<usize>> {
    let mut lanes: Vec<Vec<usize>> = Vec::new();
    let Some(first) = cards.first() else {
        return lanes;
    };
    for rail in first.rails.iter().take(LANES_MAX) {
        let rail_of = |(member, card): (usize, &GroupCard)| {
            let near = |at: &usize| {
                let other = &card.rails[*at];
                other.kind == rail.kind && same_network(rail, other)
            };
            let taken = |at: &usize| lanes.iter().any(|lane| lane[member] == *at);
            (0..card.rails.len()).find(|at| near(at) && !taken(at))
        };
        let lane: Option<Vec<usize>> = cards.iter().enumerate().map(rail_of).collect();
        let lane = lane.filter(|_| group_addr(rail.kind, 0).is_some());
        lanes.extend(lane);
    }
    lanes
}

/// The members whose multicast all on other hosts must hear, for a network to carry it: the first
/// on each host, of up to so many hosts that their questions do no harm.
pub(crate) fn leaders(cards: &[GroupCard]) -> Vec<usize> {
    let mut leaders: Vec<usize> = Vec::new();
    for (at, card) in cards.iter().enumerate() {
        if leaders.len() == LEADERS_MAX {
            break;
        }
        if !leaders.iter().any(|&leader| cards[leader].is_beside(card)) {
            leaders.push(at);
        }
    }
    leaders
}

/// See [`leaders`].
const LEADERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use marline_rails::UdpAddr;
    use std::net::Ipv4Addr;

    fn rail(net: u8, host: u8, port: u16) -> RailAddr {
        let addr = UdpAddr {
            prefix_len: 24,
            ..UdpAddr::new(Ipv4Addr::new(10, net, 0, host).into(), port)
        };
        let mut rail = addr.rail();
        (rail.datagram_max, rail.index) = (1_472, net);
        rail
    }

    fn card(id: u64, rails: &[RailAddr]) -> GroupCard {
        GroupCard {
            address: Address::new(id, 7, rails),
            epoch: id as u32 + 100,
            receive_buffer: 1 << 20,
            scheme: "nack+parity8".to_owned(),
            rails: rails.to_vec(),
        }
    }

    #[test]
    fn a_card_is_read_as_it_was_written_and_nothing_else_is() {
        let card = card(5, &[rail(0, 1, 9), rail(1, 1, 10)]);
        let bytes = card.encode();
        assert_eq!(GroupCard::decode(&bytes), Some(card.clone()));
        assert_eq!(GroupCard::decode(&bytes[1..]), None);
        assert_eq!(GroupCard::decode(&[0; GROUP_CARD_LEN]), None);
        let mut other = card.clone();
        other.scheme = "basic".to_owned();
        assert_eq!(unlike(&[card.clone(), card.clone(), other]), Some([0, 2]));
        assert_eq!(unlike(&[card.clone(), card]), None);
        let mut damaged = bytes;
        damaged[1] = 255;
        assert_eq!(GroupCard::decode(&damaged), None);
    }

    #[test]
    fn lanes_are_the_networks_that_all_share() {
        let cards = [
            card(1, &[rail(0, 1, 9), rail(1, 1, 9), rail(2, 1, 9)]),
            card(2, &[rail(2, 2, 9), rail(0, 2, 9)]),
            card(3, &[rail(0, 1, 8), rail(1, 1, 8), rail(2, 1, 8)]),
        ];
        assert_eq!(lanes(&cards), [vec![0, 1, 0], vec![2, 0, 2]]);
        assert_eq!(leaders(&cards), [0, 1]);
        assert!(lanes(&[]).is_empty());
    }
}
