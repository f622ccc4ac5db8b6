//! A program that speaks the protocol over UDP and is part of no job: it builds its packets with
//! `marline-wire` and knows only what a host of the same network can learn. Not every test uses
//! every function here, hence `dead_code`.
#![allow(dead_code)]

use marline_checksum::crc32c;
use marline_rails::UdpAddr;
use marline_wire::{
    Address, Answer, Eager, Frame, HeadWriter, Header, Hello, HelloFields, MsgHead, Packet,
    Question, RailAddr, RailList, Rts, Versions, FIRST_ALGORITHM, FLAG_RPC, FLAG_TAGGED,
    FLAG_UNSUMMED, HELLO_RAIL_BYTES_MAX, PACKET_MAX, PLACE_LEN, SLOT_UNKNOWN, VERSION,
};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Credit that its HELLO grants.
const CREDIT: u64 = 1 << 20;
/// The largest datagram that its HELLO names.
const DATAGRAM_MAX: u16 = 1_472;

/// The stranger, with the identity that its packets name.
pub struct Stranger {
    pub socket: UdpSocket,
    pub id: u64,
    pub token: u32,
    pub epoch: u32,
    /// The next packet number on its only path.
    pub number: u64,
    /// The rails that its HELLO names.
    pub rails: Vec<RailAddr>,
    /// Revision of these rails.
    pub revision: u32,
}

/// The UDP socket that the first rail of an address names.
pub fn socket_of(address: &Address) -> SocketAddr {
    let found = address.rails().iter().find_map(|rail| UdpAddr::of(&rail));
    let udp = found.expect("an address has a UDP rail");
    SocketAddr::new(udp.ip, udp.port)
}

impl Stranger {
    /// A stranger with a socket at this address of its host.
    pub fn new(ip: IpAddr, id: u64) -> Stranger {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut rail = UdpAddr::new(ip, port).rail();
        rail.datagram_max = DATAGRAM_MAX;
        Stranger {
            socket,
            id,
            token: 77,
            epoch: 99,
            number: 0,
            rails: vec![rail],
            revision: 0,
        }
    }

    /// The address by which others reach it.
    pub fn address(&self) -> Address {
        Address::new(self.id, self.token, &self.rails)
    }

    /// Asks the endpoint at a socket for its address; `None`: no answer in `tries` times 20 ms.
    pub fn ask(&self, to: SocketAddr, tries: u32) -> Option<Address> {
        let question = Question {
            number: 5,
            from: self.rails[0],
        };
        for _ in 0..tries {
            self.socket.send_to(&question.encode(crc32c), to).unwrap();
            let mut bytes = [0; PLACE_LEN];
            let Ok((len, _)) = self.socket.recv_from(&mut bytes) else {
                continue;
            };
            if let Some(answer) = Answer::parse(&bytes[..len], crc32c) {
                return Address::decode(&answer.blob).ok();
            }
        }
        None
    }

    /// A packet with HELLO, if wanted, and these frames with their payloads.
    pub fn packet(&mut self, to: &Address, hello: bool, frames: &[(Frame, &[u8])]) -> Vec<u8> {
        let mut rails = [0; HELLO_RAIL_BYTES_MAX];
        let hello = hello.then(|| Frame::Hello(self.hello(&mut rails)));
        let header = Header {
            version: VERSION,
            algorithm: FIRST_ALGORITHM,
            dst_id: to.id,
            dst_token: to.token,
            dst_slot: SLOT_UNKNOWN,
            src_id: self.id,
            src_epoch: self.epoch,
            path: 0,
            flags: Header::FLAG_ACK_NOW,
            number: self.number,
        };
        self.number += 1;
        let mut out = vec![0; PACKET_MAX];
        let mut writer = HeadWriter::new(&mut out, PACKET_MAX);
        let mut payloads = Vec::new();
        hello.iter().for_each(|hello| {
            writer.push(hello).expect("room");
        });
        for (frame, payload) in frames {
            let slot = writer.push(frame).expect("room");
            payloads.push((slot.payload_at as usize, *payload));
        }
        let (head_len, len) = writer.finish(&header);
        for (at, payload) in payloads {
            out[head_len + at..][..payload.len()].copy_from_slice(payload);
        }
        out.truncate(len);
        let crc = crc32c(&out[4..head_len]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Its HELLO, with its rails written into `rails`.
    pub fn hello<'a>(&self, rails: &'a mut [u8]) -> Hello<'a> {
        Hello {
            slot: 0,
            id: self.id,
            token: self.token,
            epoch: self.epoch,
            algorithm: FIRST_ALGORITHM,
            algorithms: 1 << FIRST_ALGORITHM,
            reliable: true,
            eager_puts: true,
            refused: false,
            credit: CREDIT,
            revision: self.revision,
            versions: Versions::OURS,
            of_destination: None,
            further: HelloFields::NONE,
            rails: RailList::write(rails, &self.rails),
        }
    }

    /// Sends a packet with HELLO and these frames.
    pub fn send(&mut self, to: &Address, frames: &[(Frame, &[u8])]) {
        let packet = self.packet(to, true, frames);
        self.socket.send_to(&packet, socket_of(to)).unwrap();
    }

    /// The next datagrams that came within 20 ms.
    pub fn received(&self) -> Vec<Vec<u8>> {
        let (mut all, mut bytes) = (Vec::new(), vec![0; PACKET_MAX]);
        while let Ok((len, _)) = self.socket.recv_from(&mut bytes) {
            all.push(bytes[..len].to_vec());
        }
        all
    }
}

/// A message, with its payload behind.
pub fn eager(number: u32, flags: u8, (tag, data): (u64, u64), payload: &[u8]) -> (Frame, &[u8]) {
    let head = MsgHead {
        number,
        flags: flags | FLAG_UNSUMMED,
        tag,
        data,
        total: payload.len() as u64,
    };
    let frame = Eager {
        head,
        len: payload.len() as u16,
        sum: 0,
    };
    (Frame::Eager(frame), payload)
}

/// A call: its second word, and its contents. The first word is the number of the message.
pub fn call(number: u32, word: [u8; 8], contents: &[u8]) -> (Frame, &[u8]) {
    let words = (number.into(), u64::from_le_bytes(word));
    eager(number, FLAG_RPC, words, contents)
}

/// A request to send a long message.
pub fn rts(number: u32, total: u64) -> (Frame, &'static [u8]) {
    let head = MsgHead {
        number,
        flags: FLAG_TAGGED,
        tag: 1,
        data: 0,
        total,
    };
    (Frame::Rts(Rts { head }), &[])
}

/// Both words of the answers to calls in a datagram.
pub fn answers(datagram: &[u8]) -> Vec<(u64, [u8; 8])> {
    let Ok(packet) = Packet::parse(datagram, crc32c) else {
        return Vec::new();
    };
    let frames = packet.frames().filter_map(|(frame, _)| match frame {
        Frame::Eager(e) if e.head.flags & FLAG_RPC != 0 => {
            Some((e.head.tag, e.head.data.to_le_bytes()))
        }
        _ => None,
    });
    frames.collect()
}
