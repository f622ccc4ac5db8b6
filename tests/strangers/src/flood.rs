//! A flood of all kinds of packets in turn, some without a tag and some with one of a wrong key.

use crate::attacks::Attack;
use crate::forge::{draw, Names, Rails, Tag, ADDRESSES};
use crate::groups;
use crate::names::{self, Recorded};
use std::net::SocketAddr;

/// Bytes of a datagram of noise, which is no packet.
const NOISE_BYTES: usize = 200;

/// A kind of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One of an attack.
    Attack(Attack),
    /// A HELLO with as many addresses as fit.
    Amplify,
    /// A question for the endpoint's address.
    Ask,
    /// A packet of a group that there is not.
    Group,
    /// Random bytes.
    Noise,
    /// A recorded packet, unchanged.
    Replay,
}

impl Kind {
    const OTHERS: [(&'static str, Kind); 5] = [
        ("amplify", Kind::Amplify),
        ("ask", Kind::Ask),
        ("group", Kind::Group),
        ("noise", Kind::Noise),
        ("replay", Kind::Replay),
    ];

    fn all() -> impl Iterator<Item = (&'static str, Kind)> {
        let attacks = Attack::NAMES.iter();
        let attacks = attacks.map(|&(name, attack)| (name, Kind::Attack(attack)));
        attacks.chain(Kind::OTHERS)
    }
}

/// Packets of all kinds, in turn.
pub struct Flood<'a> {
    kinds: Vec<Kind>,
    victim: (u64, u32),
    /// The stranger's own names, and a peer's with the number of its next packet.
    own: Names,
    peer: (Names, u64),
    recording: &'a [Recorded],
    tags: [Tag; 2],
    place: SocketAddr,
    here: Rails,
    many: Rails,
}

impl<'a> Flood<'a> {
    /// A flood against the endpoint in a recording, from `place`, with all kinds of packets but
    /// those named in `without`. Every second packet of a kind has the tag, the others have none.
    pub fn new(
        recording: &'a [Recorded],
        place: SocketAddr,
        tag: Tag,
        without: &[String],
    ) -> Option<Flood<'a>> {
        let (_, header) = names::last_packet(recording)?;
        let victim = (header.dst_id, header.dst_token);
        let unwanted = |name: &str| without.iter().any(|other| other == name);
        let kinds = Kind::all().filter(|(name, _)| !unwanted(name));
        let many = vec![place; ADDRESSES];
        Some(Flood {
            kinds: kinds.map(|(_, kind)| kind).collect(),
            victim,
            own: Names::stranger(draw(), victim),
            peer: (Names::of(&header), header.number + 1),
            recording,
            tags: [Tag::None, tag],
            place,
            here: Rails::at(&[place]),
            many: Rails::at(&many),
        })
    }

    /// Packet `n`.
    pub fn packet(&self, n: u32) -> Vec<u8> {
        let kinds = self.kinds.len() as u32;
        let (kind, round) = (self.kinds[(n % kinds) as usize], n / kinds);
        let tag = &self.tags[round as usize % 2];
        match kind {
            Kind::Attack(attack) => self.of_attack(attack, round, tag),
            Kind::Amplify => {
                let names = Names::stranger(draw(), self.victim);
                Attack::Hello.packet(0, 0, (&names, tag), &self.many)
            }
            Kind::Ask => names::question(self.place),
            Kind::Group => groups::unknown(draw()),
            Kind::Noise => std::iter::repeat_with(draw)
                .flat_map(u64::to_le_bytes)
                .take(NOISE_BYTES)
                .collect(),
            Kind::Replay => {
                let at = round as usize % self.recording.len();
                self.recording[at].bytes.clone()
            }
        }
    }

    fn of_attack(&self, attack: Attack, round: u32, tag: &Tag) -> Vec<u8> {
        let (names, first) = match attack {
            Attack::Direct => (&self.own, names::last_key(self.recording).unwrap_or(0) + 1),
            _ if attack.is_in_a_peers_name() => (&self.peer.0, self.peer.1),
            _ => (&self.own, 0),
        };
        attack.packet(round, first, (names, tag), &self.here)
    }
}
