//! Cells, the memory for peers' atomic operations, and their expected contents. The truth applies
//! each operation in its plainest form when its RPC is next; afterwards the cells and the truth
//! must agree.
use crate::truth::elements::op;
use crate::truth::memory::{Buffer, OpKind, SCRAP};
use crate::truth::remote::Open;
use crate::world::state::World;
use marline_engine::Region;

/// First key of cells.
const CELLS: u64 = 3 << 32;
/// Bytes of cells.
const CELLS_BYTES: usize = 12_288;
/// Cells are closed once in this number of operations on them, and reopened under a new key or the
/// same one.
const STAY: u64 = 100;

/// Users of cells.
impl World {
    /// Key and length of the cells of `dst`, opened if necessary; key 0 if there are none.
    pub(crate) fn find_cells(&mut self, dst: u32) -> (u64, u64) {
        let there = &self.eps[dst as usize];
        if !there.alive || there.closed {
            return (0, CELLS_BYTES as u64);
        }
        if there.windows.cells.open.is_none() {
            self.open_cells(dst);
        }
        let open = self.eps[dst as usize].windows.cells.open.as_ref();
        (open.map_or(0, |open| open.key), CELLS_BYTES as u64)
    }
}

/// The owner of cells.
impl World {
    fn open_cells(&mut self, e: u32) {
        let mut buffer = Buffer::new(CELLS_BYTES);
        buffer.fill_all();
        let bytes = buffer.get(0, CELLS_BYTES).unwrap_or_default().to_vec();
        let base = buffer.pieces(&[])[0].base;
        let rng = &mut self.windows_rng;
        let (again, readable, writable) = (rng.one_in(2), !rng.one_in(8), !rng.one_in(8));
        let (now, ep) = (self.now, &mut self.eps[e as usize]);
        if !again || ep.windows.cells.keys_made == 0 {
            ep.windows.cells.keys_made += 1;
        }
        let key = CELLS + ep.windows.cells.keys_made;
        let handle = ep.add_op(OpKind::Window, buffer, now, false);
        ep.windows.cells.open = Some(Open {
            handle,
            key,
            readable,
            writable,
            bytes,
        });
        let opened = ep.engine.mr_open(&Region {
            key,
            base,
            len: CELLS_BYTES,
            virt_addr: false,
            readable,
            writable,
        });
        self.accepted(e, "cells", opened);
    }

    /// Closes the cells now and then, even while in use.
    pub(crate) fn close_cells(&mut self, e: u32) {
        let ep = &mut self.eps[e as usize];
        if ep.windows.cells.open.is_none() || !self.windows_rng.one_in(STAY) {
            return;
        }
        let key = ep.windows.cells.open.as_ref().map_or(0, |open| open.key);
        ep.engine.mr_close(key);
        // Reports that were not read yet still concern these cells.
        self.absorb(e);
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        let Some(open) = ep.windows.cells.open.take() else {
            return;
        };
        let mut buffer = std::mem::take(&mut ep.ops[open.handle as usize].buffer);
        ep.end_op(open.handle, now);
        if let Err(text) = buffer.check(buffer.len()) {
            self.broken(e, format!("cells {}: {text}", open.handle));
        }
        buffer.poison(0, SCRAP);
        self.tear_down_buffer(e, open.handle, buffer);
        *self.troubles.entry("cells closed").or_default() += 1;
    }

    /// Applies a part of atomic operation `handle` of `src` to the cells of `e`, or refuses it;
    /// returns the answer's contents.
    pub(crate) fn operate(
        &mut self,
        e: u32,
        src: u32,
        (handle, part): (u32, usize),
    ) -> Result<Vec<u8>, String> {
        let kind = &mut self.eps[src as usize].ops[handle as usize].kind;
        let OpKind::Atomic(op) = kind else {
            return Err("not an atomic operation".into());
        };
        let what = op.parts[part].what.clone();
        let cells = &mut self.eps[e as usize].windows.cells;
        let open = cells.open.as_mut().filter(|open| open.key == what.key);
        let open = open.filter(|open| {
            (open.readable || !what.fetches) && (open.writable || what.op == op::READ)
        });
        let place = what.addr as usize..(what.addr as usize).saturating_add(what.len());
        let place = open.and_then(|open| open.bytes.get_mut(place));
        let old = place.map(|place| what.apply(place));
        cells.touched = true;
        let kind = &mut self.eps[src as usize].ops[handle as usize].kind;
        if let OpKind::Atomic(op) = kind {
            if op.parts[part].old.replace(old.clone()).is_some() {
                return Err(format!("atomic {handle} of {src} is done twice"));
            }
        }
        Ok(old.filter(|_| what.fetches).unwrap_or_default())
    }

    /// After operations on cells: checks their contents.
    pub(crate) fn check_cells(&mut self, e: u32) {
        let ep = &mut self.eps[e as usize];
        if !std::mem::take(&mut ep.windows.cells.touched) {
            return;
        }
        let Some(open) = &ep.windows.cells.open else {
            return;
        };
        let buffer = &ep.ops[open.handle as usize].buffer;
        let there = buffer.get(0, CELLS_BYTES).unwrap_or_default();
        if there != open.bytes {
            let at = there.iter().zip(&open.bytes).position(|(a, b)| a != b);
            self.broken(e, format!("cells are not what they must be, at {at:?}"));
        }
    }
}
