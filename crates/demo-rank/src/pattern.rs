//! Contents of messages, which differ between any two messages and places.

/// A message's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    /// The round of the exchange.
    pub(crate) round: u64,
    /// Sender.
    pub(crate) from: usize,
    /// Receiver.
    pub(crate) to: usize,
    /// Number within the round.
    pub(crate) number: usize,
}

/// An odd constant, so that all words of a message differ.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = size_of::<u64>();

impl Id {
    /// The first word of the message.
    fn seed(self) -> u64 {
        let place = (self.from as u64) << 40 | (self.to as u64) << 20 | self.number as u64;
        let mixed = (self.round ^ place.rotate_left(23)).wrapping_mul(STEP);
        (mixed ^ mixed >> 29).wrapping_mul(STEP)
    }

    fn words(self) -> impl Iterator<Item = [u8; WORD]> {
        let seed = self.seed();
        (0..).map(move |at: u64| seed.wrapping_add(at.wrapping_mul(STEP)).to_le_bytes())
    }

    /// Writes the message's bytes.
    pub(crate) fn fill(self, buffer: &mut [u8]) {
        for (chunk, word) in buffer.chunks_mut(WORD).zip(self.words()) {
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Returns whether these are all of the message's bytes.
    pub(crate) fn is_in(self, buffer: &[u8]) -> bool {
        let mut pairs = buffer.chunks(WORD).zip(self.words());
        pairs.all(|(chunk, word)| chunk == &word[..chunk.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = Id {
        round: 3,
        from: 0,
        to: 1,
        number: 2,
    };

    #[test]
    fn each_changed_byte_is_noticed() {
        let mut buffer = [0; 29];
        ID.fill(&mut buffer);
        assert!(ID.is_in(&buffer));
        for at in 0..buffer.len() {
            buffer[at] ^= 0x55;
            assert!(!ID.is_in(&buffer), "{at}");
            buffer[at] ^= 0x55;
        }
    }

    #[test]
    fn other_messages_have_other_bytes() {
        let mut buffer = [0; 8];
        ID.fill(&mut buffer);
        for other in [
            Id { round: 4, ..ID },
            Id {
                from: 1,
                to: 0,
                ..ID
            },
            Id { number: 3, ..ID },
        ] {
            assert!(!other.is_in(&buffer), "{other:?}");
        }
    }
}
