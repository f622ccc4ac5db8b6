//! Group packets that are built but not sent: per destination one batch of packets of equal length,
//! the last of which may be shorter, as rails segment them.

use marline_proto::Dest;

/// Packets to one destination.
pub(crate) struct Batch {
    pub(crate) rail: usize,
    pub(crate) dest: Dest,
    /// Length of each packet but the last; 0: the batch is empty.
    pub(crate) segment: usize,
    bytes: Vec<u8>,
    len: usize,
}

impl Batch {
    /// The packets, concatenated.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// True if a packet of this length can follow, within the limits of packets and bytes per
    /// batch.
    pub(crate) fn takes(&self, len: usize, (packets, bytes): (usize, usize)) -> bool {
        let whole = self.segment > 0 && self.len % self.segment == 0;
        let fits = self.len + len <= bytes && self.len < packets * self.segment;
        self.len == 0 || whole && len <= self.segment && fits
    }

    /// Room for another packet.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.len == 0 {
            self.segment = len;
        }
        let from = self.len;
        self.len += len;
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len, 0);
        }
        &mut self.bytes[from..self.len]
    }

    /// Removes the last packet, of this length.
    pub(crate) fn undo(&mut self, len: usize) {
        self.len -= len;
    }

    /// Empties the batch after sending.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

/// The batches of all groups. Empty batches are kept for their memory.
#[derive(Default)]
pub(crate) struct Batches(Vec<Batch>);

impl Batches {
    /// Number of batches including empty ones.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&mut self, at: usize) -> &mut Batch {
        &mut self.0[at]
    }

    /// The batch of a destination, if it has packets.
    pub(crate) fn find(&self, rail: usize, dest: Dest) -> Option<usize> {
        let of = |batch: &Batch| batch.len > 0 && batch.rail == rail && batch.dest == dest;
        self.0.iter().position(of)
    }

    /// Starts an empty batch for a destination.
    pub(crate) fn begin(&mut self, rail: usize, dest: Dest) -> usize {
        if let Some(at) = self.0.iter().position(|batch| batch.len == 0) {
            (self.0[at].rail, self.0[at].dest) = (rail, dest);
            return at;
        }
        self.0.push(Batch {
            rail,
            dest,
            segment: 0,
            bytes: Vec::new(),
            len: 0,
        });
        self.0.len() - 1
    }

    /// Drops packets whose rail or destination accepts no more.
    pub(crate) fn forget(&mut self, of: impl Fn(usize, Dest) -> bool) {
        let all = self.0.iter_mut();
        all.filter(|b| of(b.rail, b.dest)).for_each(Batch::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_packets_of_one_length_and_a_shorter_last_one() {
        let mut batches = Batches::default();
        let (one, other) = (Dest::Group(1), Dest::Group(2));
        let at = batches.begin(0, one);
        let most = (4, 1000);
        assert!(batches.get(at).takes(100, most));
        batches.get(at).room(100).fill(1);
        batches.get(at).room(100).fill(2);
        assert_eq!(batches.find(0, one), Some(at));
        assert_eq!((batches.find(1, one), batches.find(0, other)), (None, None));
        assert!(
            !batches.get(at).takes(101, most),
            "longer than those before"
        );
        assert!(!batches.get(at).takes(100, (2, 1000)), "too many");
        assert!(!batches.get(at).takes(100, (4, 299)), "too many bytes");
        batches.get(at).room(99).fill(3);
        assert!(!batches.get(at).takes(99, most), "a short one is the last");
        batches.get(at).undo(99);
        assert_eq!(batches.get(at).bytes(), [[1; 100], [2; 100]].concat());
        batches.forget(|rail, dest| (rail, dest) == (0, one));
        assert_eq!(batches.begin(1, other), at, "an empty one is used again");
        assert!(batches.get(at).takes(900, most));
    }
}
