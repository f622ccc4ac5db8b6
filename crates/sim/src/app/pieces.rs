//! Segments of remote memory in a read or write: usually one; otherwise several, of which one may
//! be invalid and some empty.

use crate::truth::remote::{Piece, Spot, NONE};
use crate::world::state::World;

/// Segments per operation at most, leaving one for an empty segment.
const PIECES_MAX: u64 = 7;
/// Half of the segments are at most this long, so that some fit an RPC.
const SOME: u64 = 6_000;

impl World {
    /// Segments for `len` bytes. `spot` places each (arguments: offset, length, and whether the
    /// segment must be refused).
    pub(crate) fn draw_pieces(
        &mut self,
        len: u64,
        bad: bool,
        mut spot: impl FnMut(&mut World, (u64, u64), bool) -> Spot,
    ) -> Vec<Piece> {
        let lengths = self.draw_lengths(len);
        let wrong = match lengths.len() as u64 {
            1 => 0,
            n => self.windows_rng.below(n),
        };
        if lengths.len() > 1 {
            *self.troubles.entry("several pieces").or_default() += 1;
        }
        let mut from = 0;
        let mut pieces = Vec::new();
        for (at, &len) in lengths.iter().enumerate() {
            let spot = spot(self, (from, len), bad && at as u64 == wrong);
            pieces.push(Piece { spot, from, len });
            from += len;
        }
        pieces
    }

    fn draw_lengths(&mut self, len: u64) -> Vec<u64> {
        if !self.setup.segments || len < 2 || !self.windows_rng.one_in(3) {
            return vec![len];
        }
        let rng = &mut self.windows_rng;
        let count = rng.range(2, PIECES_MAX.min(len));
        let (mut lengths, mut left) = (Vec::new(), len);
        for more in (1..count).rev() {
            let most = left - more;
            let most = if rng.one_in(2) { most } else { most.min(SOME) };
            lengths.push(rng.range(1, most));
            left -= lengths[lengths.len() - 1];
        }
        lengths.push(left);
        lengths
    }

    /// The segments in the form of a request, sometimes with an empty one among them.
    pub(crate) fn named(&mut self, pieces: &[Piece]) -> Vec<(u64, usize, u64)> {
        let name = |piece: &Piece| (piece.spot.addr, piece.len as usize, piece.spot.key);
        let mut named: Vec<_> = pieces.iter().map(name).collect();
        if pieces.len() > 1 && self.windows_rng.one_in(4) {
            let at = self.windows_rng.below(named.len() as u64 + 1) as usize;
            named.insert(at, (NONE.into(), 0, NONE.into()));
        }
        named
    }
}
