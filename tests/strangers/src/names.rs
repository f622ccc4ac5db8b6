//! Names of endpoints, as a stranger learns them: from the answer to a question, or from recorded
//! packets.

use marline_checksum::crc32c;
use marline_rails::UdpAddr;
use marline_wire::{Address, Answer, DirectHead, Header, Packet, Question, PLACE_LEN};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Time after which a question counts as unanswered.
const ANSWER_TIME: Duration = Duration::from_millis(500);

/// A datagram of the job and its destination.
pub struct Recorded {
    /// The destination.
    pub to: SocketAddr,
    /// The datagram's bytes.
    pub bytes: Vec<u8>,
}

/// Reads a recording: lines of a destination and the datagram in hexadecimal digits.
pub fn read_recording(path: &str) -> Result<Vec<Recorded>, String> {
    let text = std::fs::read_to_string(path).map_err(|why| format!("{path}: {why}"))?;
    let records: Option<Vec<Recorded>> = text.lines().map(read_line).collect();
    records.ok_or_else(|| format!("{path}: a line is no recorded datagram"))
}

fn read_line(line: &str) -> Option<Recorded> {
    let (to, digits) = line.split_once(' ')?;
    let pairs = (0..digits.len() / 2).map(|at| digits.get(2 * at..2 * at + 2));
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| u8::from_str_radix(pair?, 16).ok())
        .collect();
    let to = to.parse().ok()?;
    Some(Recorded { to, bytes: bytes? })
}

/// The last whole packet in a recording: its destination and header.
pub fn last_packet(recording: &[Recorded]) -> Option<(SocketAddr, Header)> {
    let mut packets = recording.iter().rev();
    packets.find_map(|record| {
        let packet = Packet::parse(&record.bytes, crc32c).ok()?;
        Some((record.to, packet.header))
    })
}

/// A question for the endpoint at a port, whose answer goes to `from`.
pub fn question(from: SocketAddr) -> Vec<u8> {
    let mut rail = UdpAddr::new(from.ip(), from.port()).rail();
    rail.datagram_max = 1_472;
    let question = Question {
        number: 7,
        from: rail,
    };
    question.encode(crc32c).to_vec()
}

/// Sends a question to a port and waits for the answer. Returns the endpoint's address.
pub fn ask(
    socket: &UdpSocket,
    to: SocketAddr,
    from: SocketAddr,
) -> std::io::Result<Option<Address>> {
    socket.send_to(&question(from), to)?;
    socket.set_read_timeout(Some(ANSWER_TIME))?;
    let mut bytes = [0; 2_048];
    while let Ok((len, _)) = socket.recv_from(&mut bytes) {
        assert!(len <= PLACE_LEN, "the answer is longer than the question");
        if let Some(answer) = Answer::parse(&bytes[..len], crc32c) {
            return Ok(Address::decode(&answer.blob).ok());
        }
    }
    Ok(None)
}

/// The epoch in the next packet of an endpoint, within the time of an answer.
pub fn epoch_told(socket: &UdpSocket, id: u64) -> Option<u32> {
    let mut bytes = [0; 2_048];
    while let Ok((len, _)) = socket.recv_from(&mut bytes) {
        match Packet::parse(&bytes[..len], crc32c) {
            Ok(packet) if packet.header.src_id == id => return Some(packet.header.src_epoch),
            _ => {}
        }
    }
    None
}

/// The last key of a direct write in a recording.
pub fn last_key(recording: &[Recorded]) -> Option<u64> {
    let mut writes = recording.iter().rev();
    writes.find_map(|record| Some(DirectHead::parse(&record.bytes)?.key))
}
