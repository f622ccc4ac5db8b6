//! Strangers on the network: they send packets in the names of endpoints and of their own, and
//! recorded packets again.
//!
//! Where packets have tags, strangers know everything but the key. Where they have none, strangers
//! do what has no effect even so: first contacts, and numbers that no peer can have reached.

use crate::base::rng::Rng;
use marline_checksum::{crc32c, sum, Algorithm};
use marline_proto::sum_seed;
use marline_rails::UdpAddr;
use marline_wire::{
    Eager, Frame, HeadWriter, Header, Hello, HelloFields, MsgHead, Packet, RailAddr, RailKind,
    RailList, Rts, Versions, FIRST_ALGORITHM, FLAG_RPC, SLOT_UNKNOWN, TAG_LEN, VERSION,
};
use std::collections::VecDeque;

/// Recorded packets that are kept.
const RECORDED_MAX: usize = 64;
/// First contacts in a run: each is a conversation until the peer timeout.
const CONTACTS_MAX: u16 = 3;
/// Index of the first stranger in its id; no endpoint has one so high.
const FIRST_INDEX: u32 = 0xff00;
/// A number that no packet of a run reaches.
pub(crate) const FAR: u64 = 1 << 40;
/// A number of a message beyond all credit.
const FAR_MESSAGE: u32 = 1 << 30;
/// Bytes of a stranger's packets at most.
const LEN_MAX: usize = 1_472;

/// Returns whether an index is that of a stranger.
pub(crate) fn is_stranger(index: u32) -> bool {
    index >= FIRST_INDEX
}

/// A packet on its way from one endpoint to another, which strangers see.
pub(crate) struct Seen<'a> {
    pub bytes: &'a [u8],
    pub to: RailAddr,
    /// Longest time by which the network delays a packet for reordering.
    pub late_ns: u64,
}

/// A stranger's packet.
pub(crate) struct Sent {
    pub bytes: Vec<u8>,
    pub to: RailAddr,
    /// Time from the departure of the packet that was seen until it leaves.
    pub after_ns: u64,
}

/// The strangers of a run.
#[derive(Debug)]
pub(crate) struct Strangers {
    rng: Rng,
    recorded: VecDeque<(Vec<u8>, RailAddr)>,
    contacts: u16,
}

impl Strangers {
    /// The strangers of the run with this seed.
    pub fn new(seed: u64) -> Strangers {
        Strangers {
            rng: Rng::new(seed, 52),
            recorded: VecDeque::new(),
            contacts: 0,
        }
    }

    /// A packet that strangers send because of one that they see, in `ppm` of a million cases;
    /// `keyed`: packets have tags.
    pub fn send(&mut self, seen: &Seen<'_>, keyed: bool, ppm: u32) -> Option<Sent> {
        if !self.rng.ppm(ppm) {
            return None;
        }
        let packet = Packet::parse(seen.bytes, crc32c).ok()?;
        self.record(seen);
        let header = packet.header;
        if self.rng.one_in(3) {
            return self.replay(seen.late_ns);
        }
        let bytes = match keyed {
            true => self.keyless(&header),
            false if self.rng.one_in(2) => self.far(&header, &packet),
            false => self.contact(&header, &seen.to)?,
        };
        Some(Sent {
            bytes,
            to: seen.to,
            after_ns: self.rng.pick(&[0, 0, 1_000, 1_000_000]),
        })
    }

    fn record(&mut self, seen: &Seen<'_>) {
        if self.recorded.len() == RECORDED_MAX {
            self.recorded.pop_front();
        }
        self.recorded.push_back((seen.bytes.to_vec(), seen.to));
    }

    /// A recorded packet.
    fn replay(&mut self, late_ns: u64) -> Option<Sent> {
        let at = self.rng.below(self.recorded.len() as u64) as usize;
        let (bytes, to) = self.recorded.get(at)?;
        Some(Sent {
            bytes: bytes.clone(),
            to: *to,
            after_ns: self.rng.below(late_ns + 1),
        })
    }

    /// A packet without the job's key, in a peer's name or in one of its own.
    fn keyless(&mut self, seen: &Header) -> Vec<u8> {
        let rng = &mut self.rng;
        let tag_flag = if rng.one_in(4) {
            0
        } else {
            Header::FLAG_TAGGED
        };
        let mut header = Header {
            version: VERSION,
            algorithm: FIRST_ALGORITHM,
            flags: Header::FLAG_ACK_NOW | tag_flag,
            number: seen.number + rng.pick(&[1, 50, 5_000, FAR]),
            ..*seen
        };
        if rng.one_in(4) {
            header.src_id = stranger_id(rng.next(), 0);
            header.dst_slot = SLOT_UNKNOWN;
        }
        let (hello, number) = (rng.one_in(2), rng.below(100) as u32);
        let (tag, kind) = (rng.next(), rng.below(6));
        let head = MsgHead {
            number,
            flags: if kind == 3 { FLAG_RPC } else { 0 },
            tag: 0,
            data: 0,
            total: 8,
        };
        let payload = [0x5a; 8];
        let frame = match kind {
            0 => Frame::Ping,
            1 => Frame::Bye { arrived: 0 },
            2 | 3 => eager(&header, head, &payload),
            4 => Frame::Credit { bytes: 1 << 40 },
            _ => Frame::Rts(Rts { head }),
        };
        let rails = [RailAddr::NONE; 0];
        write(&header, hello.then_some(&rails[..]), &frame, &payload, tag)
    }

    /// A packet in a peer's name with a number that is too far ahead, or with that of the packet
    /// that was seen and a message that is.
    fn far(&mut self, seen: &Header, packet: &Packet<'_>) -> Vec<u8> {
        let mut header = Header {
            flags: Header::FLAG_ACK_NOW,
            algorithm: FIRST_ALGORITHM,
            ..*seen
        };
        let greets = packet
            .frames()
            .any(|(frame, _)| matches!(frame, Frame::Hello(_)));
        if greets || self.rng.one_in(2) {
            header.number += FAR;
            return write(&header, None, &Frame::Ping, &[], 0);
        }
        let head = MsgHead {
            number: FAR_MESSAGE + self.rng.below(1_000) as u32,
            flags: 0,
            tag: 0,
            data: 0,
            total: 8,
        };
        let payload = [0x5a; 8];
        write(&header, None, &eager(&header, head, &payload), &payload, 0)
    }

    /// The first and only packet of a stranger that asks for nothing.
    fn contact(&mut self, seen: &Header, to: &RailAddr) -> Option<Vec<u8>> {
        let udp = UdpAddr::of(to).filter(|_| to.kind == RailKind::Udp4)?;
        if self.contacts == CONTACTS_MAX {
            return None;
        }
        let id = stranger_id(self.rng.next(), self.contacts);
        self.contacts += 1;
        let header = Header {
            version: VERSION,
            algorithm: FIRST_ALGORITHM,
            dst_slot: SLOT_UNKNOWN,
            src_id: id,
            src_epoch: 1,
            path: 0,
            flags: Header::FLAG_ACK_NOW,
            number: 0,
            ..*seen
        };
        // A port at which no process listens, on a host of the same network.
        let mut rail = UdpAddr { port: 1, ..udp }.rail();
        rail.datagram_max = to.datagram_max;
        Some(write(&header, Some(&[rail]), &Frame::Ping, &[], 0))
    }
}

fn stranger_id(random: u64, nth: u16) -> u64 {
    crate::machine::host::id_of(random, FIRST_INDEX + u32::from(nth))
}

/// An EAGER frame of a whole message.
fn eager(header: &Header, head: MsgHead, payload: &[u8]) -> Frame {
    let seed = sum_seed(header.src_id, head.number, false, 0, payload.len());
    Frame::Eager(Eager {
        head,
        len: payload.len() as u16,
        sum: sum(Algorithm::Crc64Nvme, seed, payload),
    })
}

/// A packet with a HELLO of these rails, if any, and a frame; and a tag if its header says so.
fn write(
    header: &Header,
    rails: Option<&[RailAddr]>,
    frame: &Frame,
    payload: &[u8],
    tag: u64,
) -> Vec<u8> {
    let tagged = header.flags & Header::FLAG_TAGGED != 0;
    let mut bytes = vec![0; LEN_MAX];
    let tag_len = usize::from(tagged) * TAG_LEN;
    let mut writer = HeadWriter::with_tag(&mut bytes, LEN_MAX, tag_len);
    let mut room = [0; 64];
    if let Some(rails) = rails {
        writer.push(&Frame::Hello(Hello {
            slot: 0,
            id: header.src_id,
            token: 5,
            epoch: header.src_epoch,
            algorithm: FIRST_ALGORITHM,
            algorithms: 1 << FIRST_ALGORITHM,
            reliable: true,
            eager_puts: true,
            refused: false,
            credit: 0,
            revision: 1_000,
            versions: Versions::OURS,
            of_destination: None,
            further: HelloFields::NONE,
            rails: RailList::write(&mut room, rails),
        }));
    }
    let slot = writer.push(frame);
    let (head_len, len) = writer.finish(header);
    if let Some(slot) = slot.filter(|_| frame.payload_len() > 0) {
        let at = head_len + slot.payload_at as usize;
        bytes[at..][..payload.len()].copy_from_slice(payload);
    }
    bytes.truncate(len);
    if tagged {
        bytes[len - TAG_LEN..].copy_from_slice(&tag.to_le_bytes());
    }
    let crc = crc32c(&bytes[4..head_len]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}
