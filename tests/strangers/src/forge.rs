//! Packets that a stranger makes: any frames in any name, with a tag under any key.

use marline_auth::{Direction, HeadKeys, JobKey};
use marline_checksum::{crc32c, sum, Algorithm};
use marline_proto::sum_seed;
use marline_rails::UdpAddr;
use marline_wire::{
    Eager, Frame, HeadWriter, Header, Hello, HelloFields, MsgHead, RailList, TaggedHead, Versions,
    FIRST_ALGORITHM, HELLO_RAIL_BYTES_MAX, PACKET_MAX, SLOT_UNKNOWN, TAG_LEN, VERSION,
};
use std::net::SocketAddr;

/// The tag that packets get.
pub enum Tag {
    /// No tag, as from a process without a key.
    None,
    /// The tag of this job's key.
    Of(Box<HeadKeys>),
}

impl Tag {
    /// The tag with this name: `none`, or the key of a job in hexadecimal digits.
    pub fn named(name: &str) -> Option<Tag> {
        if name == "none" {
            return Some(Tag::None);
        }
        let key = JobKey::from_hex(name)?;
        Some(Tag::Of(Box::new(HeadKeys::new(&key))))
    }
}

/// The names that a stranger gives itself and its victim.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The sender's id and epoch.
    pub source: (u64, u32),
    /// The sender's token, for its HELLO.
    pub token: u32,
    /// The victim's id and token.
    pub victim: (u64, u32),
    /// The victim's slot for the sender.
    pub slot: u32,
    /// The path.
    pub path: u16,
}

impl Names {
    /// A sender of this id with names of its own.
    pub fn stranger(id: u64, victim: (u64, u32)) -> Names {
        Names {
            source: (id, 5),
            token: 6,
            victim,
            slot: SLOT_UNKNOWN,
            path: 0,
        }
    }

    /// The sender of a recorded packet.
    pub fn of(header: &Header) -> Names {
        Names {
            source: (header.src_id, header.src_epoch),
            token: 6,
            victim: (header.dst_id, header.dst_token),
            slot: header.dst_slot,
            path: header.path,
        }
    }

    /// A packet of this number with these frames and payloads.
    pub fn packet(&self, tag: &Tag, number: u64, frames: &[(Frame<Hello<'_>>, &[u8])]) -> Vec<u8> {
        let (tag_len, flag) = match tag {
            Tag::None => (0, 0),
            Tag::Of(_) => (TAG_LEN, Header::FLAG_TAGGED),
        };
        let header = Header {
            version: VERSION,
            algorithm: FIRST_ALGORITHM,
            dst_id: self.victim.0,
            dst_token: self.victim.1,
            dst_slot: self.slot,
            src_id: self.source.0,
            src_epoch: self.source.1,
            path: self.path,
            flags: Header::FLAG_ACK_NOW | flag,
            number,
        };
        let mut bytes = vec![0; PACKET_MAX];
        let mut writer = HeadWriter::with_tag(&mut bytes, PACKET_MAX, tag_len);
        let mut payloads = Vec::new();
        for (frame, payload) in frames {
            // (The frames of one packet always fit: they are fewer than 50.)
            let slot = writer.push(frame).expect("room for the frames");
            payloads.push((slot.payload_at as usize, payload));
        }
        let (head_len, len) = writer.finish(&header);
        for (at, payload) in payloads {
            bytes[head_len + at..][..payload.len()].copy_from_slice(payload);
        }
        bytes.truncate(len);
        self.seal(tag, head_len, &mut bytes);
        bytes
    }

    fn seal(&self, tag: &Tag, head_len: usize, bytes: &mut [u8]) {
        let crc = crc32c(&bytes[4..head_len]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        let Tag::Of(keys) = tag else { return };
        let of = Direction {
            src_id: self.source.0,
            src_epoch: self.source.1,
            dst_id: self.victim.0,
            dst_token: self.victim.1,
        };
        // No index is so large: the key is derived, and not kept.
        let head = TaggedHead::of(&bytes[..head_len]);
        let key = keys.from(u32::MAX, &of);
        let tag = key.packet_tag(head.fixed, head.frames);
        let at = bytes.len() - TAG_LEN;
        bytes[at..].copy_from_slice(&tag.to_le_bytes());
    }

    /// An EAGER frame of a whole message, with the right sum.
    pub fn eager(&self, head: MsgHead, payload: &[u8]) -> Frame<Hello<'static>> {
        let seed = sum_seed(self.source.0, head.number, false, 0, payload.len());
        Frame::Eager(Eager {
            head: MsgHead {
                total: payload.len() as u64,
                ..head
            },
            len: payload.len() as u16,
            sum: sum(Algorithm::Crc64Nvme, seed, payload),
        })
    }
}

/// A random number that other runs do not draw.
pub fn draw() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Addresses in the HELLO of an attack that multiplies traffic: as many as fit.
pub const ADDRESSES: usize = 32;

/// The rails of a HELLO that names these addresses.
pub struct Rails {
    bytes: [u8; HELLO_RAIL_BYTES_MAX],
    len: usize,
}

impl Rails {
    /// Rails at these addresses.
    pub fn at(places: &[SocketAddr]) -> Rails {
        let rails: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(index, place)| {
                let mut rail = UdpAddr {
                    prefix_len: 24,
                    ..UdpAddr::new(place.ip(), place.port())
                }
                .rail();
                (rail.index, rail.datagram_max) = (index as u8, 1_472);
                rail
            })
            .collect();
        let mut bytes = [0; HELLO_RAIL_BYTES_MAX];
        let len = RailList::write(&mut bytes, &rails).bytes().len();
        Rails { bytes, len }
    }

    /// A HELLO of this sender with the rails.
    pub fn hello(&self, of: &Names, revision: u32) -> Frame<Hello<'_>> {
        Frame::Hello(Hello {
            slot: 0,
            id: of.source.0,
            token: of.token,
            epoch: of.source.1,
            algorithm: FIRST_ALGORITHM,
            algorithms: 1 << FIRST_ALGORITHM,
            reliable: true,
            eager_puts: true,
            refused: false,
            credit: 1 << 20,
            revision,
            versions: Versions::OURS,
            of_destination: None,
            further: HelloFields::NONE,
            rails: RailList::of(&self.bytes[..self.len]),
        })
    }
}
