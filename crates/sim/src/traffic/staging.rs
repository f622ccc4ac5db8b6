//! Writes into staging memory of simulated rails, from which the receiver copies.

use crate::base::rng::Rng;
use crate::machine::halves::SimTx;
use crate::network::hurt::{put, WriteDamage};
use crate::world::state::World;
use marline_rails::{RailTx, RemoteWrites, Staging};

impl Staging for SimTx {
    fn stage(&mut self, len: usize) -> Option<u64> {
        if !matches!(
            self.caps().remote_write,
            RemoteWrites::Ordered | RemoteWrites::Unordered
        ) {
            return None;
        }
        let port = &mut self.machine.wires().ports[self.rail];
        port.next_key += 1;
        let key = port.next_key;
        port.stages.open(key, len).then_some(key)
    }

    fn unstage(&self, key: u64, offset: u64, len: usize, to: &mut dyn FnMut(&[u8])) -> bool {
        let stages = &mut self.machine.wires().ports[self.rail].stages;
        if !stages.open.contains(&key) {
            return false;
        }
        let bytes = stages.bytes(key, offset, len);
        bytes.map(|bytes| to(bytes)).is_some()
    }
}

impl World {
    /// Puts a write into staging memory; `false` if the key is not of staging memory.
    pub(crate) fn land_staged(
        &mut self,
        (e, rail): (u32, usize),
        (key, offset): (u64, u64),
        bytes: &[u8],
        hurt: WriteDamage,
    ) -> bool {
        let rng: &mut Rng = &mut self.rng;
        let stages = &mut self.eps[e as usize].machine.wires().ports[rail].stages;
        let Some(place) = stages.bytes(key, offset, bytes.len()) else {
            return false;
        };
        let to = |at: usize, part: &[u8]| {
            place[at..at + part.len()].copy_from_slice(part);
            Ok(())
        };
        put(bytes, hurt, rng, to).is_ok()
    }
}
