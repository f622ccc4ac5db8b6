//! Payload into memory: copy and sum in one pass, wherever a received fragment belongs.

use crate::pool::{Buffer, Pool};
use crate::slots::{RecvOp, Slots};
use marline_checksum::{Algorithm, Summer};
use marline_proto::{Landing, Memory, Payload};
use std::collections::BTreeMap;

/// Bounce buffers of unexpected messages, by (endpoint index, inbound name).
pub type Bounces = BTreeMap<(u32, u64), Buffer>;

/// The engine's memory, lent to a node for one packet.
pub struct EngineMemory<'a> {
    /// Posted receives and reads.
    pub recvs: &'a Slots<RecvOp>,
    /// Bounce buffers.
    pub bounces: &'a mut Bounces,
    /// Where they come from.
    pub pool: &'a mut Pool,
    /// Endpoint index.
    pub ep: u32,
}

impl Memory for EngineMemory<'_> {
    fn land(&mut self, landing: &Landing, payload: &Payload<'_>) -> bool {
        let Some(algorithm) = Algorithm::from_u8(payload.algorithm) else {
            return false;
        };
        if payload.verify_first || matches!(landing, Landing::Discard) {
            let mut summer = Summer::new(algorithm, payload.seed);
            summer.update(payload.bytes);
            if summer.finish() != payload.sum || matches!(landing, Landing::Discard) {
                return summer.finish() == payload.sum;
            }
        }
        let mut summer = Summer::new(algorithm, payload.seed);
        match *landing {
            Landing::Posted {
                handle,
                offset,
                copy,
            } => {
                let Some(op) = self.recvs.get(handle) else {
                    return false;
                };
                let bytes = payload.bytes;
                let mut at = 0;
                op.pieces
                    .for_range(offset, copy.min(bytes.len()), |base, len| {
                        // SAFETY: the piece is user memory posted for this receive, which the node
                        // keeps until the message is complete; `at + len <= bytes.len()`.
                        unsafe { summer.copy(base, bytes.as_ptr().add(at), len) };
                        at += len;
                    });
                summer.update(&bytes[at..]);
            }
            Landing::Bounce {
                inbound,
                total,
                offset,
            } => {
                let Some(at) = self.bounce_at(inbound, total, offset, payload.bytes.len()) else {
                    return false;
                };
                // SAFETY: `bounce_at` checked the range; the buffer is ours alone.
                unsafe { summer.copy(at, payload.bytes.as_ptr(), payload.bytes.len()) };
            }
            Landing::Discard => {}
        }
        summer.finish() == payload.sum
    }
}

impl EngineMemory<'_> {
    /// Address of bytes `offset .. offset + len` of a bounce buffer, made on first use.
    fn bounce_at(&mut self, inbound: u64, total: u64, offset: u64, len: usize) -> Option<*mut u8> {
        let key = (self.ep, inbound);
        if !self.bounces.contains_key(&key) {
            // Unexpected memory is bounded by the node's credits, not by the pool.
            let buffer = self.pool.take(total as usize, true)?;
            self.bounces.insert(key, buffer);
        }
        let buffer = self.bounces.get_mut(&key)?;
        let range = offset as usize..offset as usize + len;
        Some(buffer.bytes().get_mut(range)?.as_mut_ptr())
    }
}
