//! Memory on which peers do atomic operations, and what must be in it. Here an operation is done
//! in its plainest form, when the call for it is next; afterwards both must be alike.

use crate::check::SCRAP;
use crate::memory::{Buffer, OpKind};
use crate::world::World;
use marline_engine::Region;

/// Keys of cells, from here on.
const CELLS: u64 = 3 << 32;
/// Bytes of them.
const CELLS_BYTES: usize = 4_096;
/// They are closed once in so many operations on them, and opened again with another key or the
/// same.
const STAY: u64 = 100;

/// The cells of a process.
#[derive(Debug, Default)]
pub struct Cells {
    /// Those that are open.
    open: Option<Open>,
    /// Keys that there ever were.
    keys_made: u64,
    /// Something was done to them since they were looked at.
    touched: bool,
    /// Operations of others that wait for old values.
    pub fetching: u32,
}

#[derive(Debug)]
struct Open {
    /// The operation that their memory is of.
    handle: u32,
    key: u64,
    readable: bool,
    writable: bool,
    /// What must be in them.
    bytes: Vec<u8>,
}

/// An atomic operation.
#[derive(Clone, Debug, Default)]
pub struct Atomic {
    /// Key and address that it names.
    pub key: u64,
    /// See `key`.
    pub addr: u64,
    /// Bytes of an element: 1, 4 or 8.
    pub size: usize,
    /// What it does (libfabric's number).
    pub op: u8,
    /// Elements.
    pub count: usize,
    /// It brings the old values back.
    pub fetches: bool,
    /// One value for each element.
    pub operands: Vec<u8>,
    /// Another for each, of an operation that compares.
    pub compare: Vec<u8>,
}

/// libfabric's numbers of operations.
pub(crate) mod op {
    pub const MAX: u8 = 1;
    pub const SUM: u8 = 2;
    pub const BXOR: u8 = 9;
    pub const READ: u8 = 10;
    pub const WRITE: u8 = 11;
    pub const CSWAP: u8 = 12;
    pub const MSWAP: u8 = 18;
}

impl Atomic {
    fn len(&self) -> usize {
        self.count * self.size
    }

    /// Does it to cells; what was there.
    fn apply(&self, cells: &mut [u8]) -> Vec<u8> {
        let (old, size) = (cells.to_vec(), self.size);
        for (i, cell) in cells.chunks_exact_mut(size).enumerate() {
            let at = i * size..(i + 1) * size;
            let here = number(cell);
            let operand = self.operands.get(at.clone()).map_or(0, number);
            let compare = self.compare.get(at).map_or(0, number);
            let new = match self.op {
                op::MAX => here.max(operand),
                op::SUM => here.wrapping_add(operand),
                op::BXOR => here ^ operand,
                op::WRITE => operand,
                op::CSWAP if here == compare => operand,
                op::MSWAP => here & !compare | operand & compare,
                _ => here,
            };
            cell.copy_from_slice(&new.to_le_bytes()[..size]);
        }
        old
    }
}

/// An element, as an unsigned number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | *byte as u64)
}

/// The user.
impl World {
    /// Key of the cells of `dst` (0: there are none), which are opened if need be, and their bytes.
    pub(crate) fn find_cells(&mut self, dst: u32) -> (u64, u64) {
        let there = &self.eps[dst as usize];
        if !there.alive || there.closed {
            return (0, CELLS_BYTES as u64);
        }
        if there.cells.open.is_none() {
            self.open_cells(dst);
        }
        let open = self.eps[dst as usize].cells.open.as_ref();
        (open.map_or(0, |open| open.key), CELLS_BYTES as u64)
    }
}

/// The owner.
impl World {
    fn open_cells(&mut self, e: u32) {
        let mut buffer = Buffer::new(CELLS_BYTES);
        buffer.fill_all();
        let bytes = buffer.get(0, CELLS_BYTES).unwrap_or_default().to_vec();
        let base = buffer.pieces(&[])[0].base;
        let rng = &mut self.windows_rng;
        let (again, readable, writable) = (rng.one_in(2), !rng.one_in(8), !rng.one_in(8));
        let (now, ep) = (self.now, &mut self.eps[e as usize]);
        if !again || ep.cells.keys_made == 0 {
            ep.cells.keys_made += 1;
        }
        let key = CELLS + ep.cells.keys_made;
        let handle = ep.add_op(OpKind::Window, buffer, now, false);
        ep.cells.open = Some(Open {
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

    /// Closes the cells now and then, whoever uses them.
    pub(crate) fn close_cells(&mut self, e: u32) {
        let ep = &mut self.eps[e as usize];
        if ep.cells.open.is_none() || !self.windows_rng.one_in(STAY) {
            return;
        }
        let key = ep.cells.open.as_ref().map_or(0, |open| open.key);
        ep.engine.mr_close(key);
        // What it had not looked at yet is for these cells still.
        self.absorb(e);
        let now = self.now;
        let ep = &mut self.eps[e as usize];
        let Some(open) = ep.cells.open.take() else {
            return;
        };
        let mut buffer = std::mem::take(&mut ep.ops[open.handle as usize].buffer);
        ep.end_op(open.handle, now);
        if let Err(text) = buffer.check(buffer.len()) {
            self.broken(e, format!("cells {}: {text}", open.handle));
        }
        buffer.poison(0, SCRAP);
        self.bury_buffer(e, open.handle, buffer);
        *self.troubles.entry("cells closed").or_default() += 1;
    }

    /// The atomic operation `handle` of `src` is done to the cells of `e`, or refused; what its
    /// answer brings.
    pub(crate) fn operate(&mut self, e: u32, src: u32, handle: u32) -> Result<Vec<u8>, String> {
        let kind = &mut self.eps[src as usize].ops[handle as usize].kind;
        let OpKind::Atomic(op) = kind else {
            return Err("not an atomic operation".into());
        };
        let what = op.what.clone();
        let cells = &mut self.eps[e as usize].cells;
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
            if op.old.replace(old.clone()).is_some() {
                return Err(format!("atomic {handle} of {src} is done twice"));
            }
        }
        Ok(old.filter(|_| what.fetches).unwrap_or_default())
    }

    /// After operations on them: the cells hold what they must.
    pub(crate) fn check_cells(&mut self, e: u32) {
        let ep = &mut self.eps[e as usize];
        if !std::mem::take(&mut ep.cells.touched) {
            return;
        }
        let Some(open) = &ep.cells.open else { return };
        let buffer = &ep.ops[open.handle as usize].buffer;
        let there = buffer.get(0, CELLS_BYTES).unwrap_or_default();
        if there != open.bytes {
            let at = there.iter().zip(&open.bytes).position(|(a, b)| a != b);
            self.broken(e, format!("cells are not what they must be, at {at:?}"));
        }
    }
}
