//! Packets between agents: a head of 32 bytes, then zeros.

use super::messages::Purpose;

/// Length of a head in bytes.
pub const HEAD: usize = 32;
/// First bytes of all packets.
const MAGIC: [u8; 8] = *b"marlindr";
/// Purposes in order of their numbers.
const PURPOSES: [Purpose; 6] = [
    Purpose::Contact,
    Purpose::AnyPort,
    Purpose::Group,
    Purpose::RoundTrip,
    Purpose::Size,
    Purpose::Loss,
];

/// The head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the run.
    pub run: u64,
    /// The packet answers another.
    pub answer: bool,
    /// Reason of the request.
    pub purpose: Purpose,
    /// The sender of the request.
    pub from_host: u16,
    /// Its rail.
    pub from_rail: u8,
    /// The host that should get it; [`ANY_HOST`]: each member of the group.
    pub to_host: u16,
    /// Number of the request among those of its sender.
    pub number: u32,
}

/// Stands for the members of a group.
pub const ANY_HOST: u16 = u16::MAX;

impl Head {
    /// The head's bytes.
    pub fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let purpose = PURPOSES.iter().position(|p| *p == self.purpose);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.run.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.from_host.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.to_host.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24] = self.answer.into();
        bytes[25] = purpose.unwrap_or(0) as u8;
        bytes[26] = self.from_rail;
        bytes
    }

    /// Reads a head; `None` if the bytes are no packet of this run.
    pub fn read(bytes: &[u8], run: u64) -> Option<Head> {
        let head: &[u8; HEAD] = bytes.first_chunk()?;
        let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let number = u32::from_le_bytes([head[20], head[21], head[22], head[23]]);
        let ours = head[..8] == MAGIC && head[8..16] == run.to_le_bytes();
        let read = Head {
            run,
            answer: head[24] != 0,
            purpose: *PURPOSES.get(usize::from(head[25]))?,
            from_host: word(16),
            from_rail: head[26],
            to_host: word(18),
            number,
        };
        ours.then_some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_other_runs_are_ignored() {
        let head = Head {
            run: 77,
            answer: true,
            purpose: Purpose::Loss,
            from_host: 300,
            from_rail: 3,
            to_host: 7,
            number: 70_000,
        };
        let bytes = head.bytes();
        assert_eq!(Head::read(&bytes, 77), Some(head));
        assert_eq!(Head::read(&bytes, 78), None);
        assert_eq!(Head::read(&bytes[..HEAD - 1], 77), None);
        let mut other = bytes;
        other[25] = 9;
        assert_eq!(Head::read(&other, 77), None);
        other = bytes;
        other[0] = 0;
        assert_eq!(Head::read(&other, 77), None);
    }
}
