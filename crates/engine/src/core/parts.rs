//! Operations in parts: atomics that are too long for an RPC; reads and writes of several remote
//! pieces (one part each, like separate operations); and long writes with remote CQ data, which
//! leaves when all bytes have arrived. An operation ends, is counted and is reported when all of
//! its parts have ended.

use crate::api::{EpId, OpError, RemoteReq, SubmitError, INJECT_MAX};
use crate::core::submit::total;
use crate::core::Core;
use crate::memory::op_table::Pieces;
use crate::platform::system::System;
use crate::state::regions::Range;
use crate::state::rpcs::{EndNotice, Keys, Part, Whole, HEAD, MORE, OPEN_MAX, PART, PAYLOAD_MAX};
use marline_proto::{Mutation, PeerId};

/// Direction of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl<S: System> Core<S> {
    /// Posts all parts of a read or write, or none.
    pub(crate) fn remote_parts(
        &mut self,
        now: u64,
        (ep, peer): (EpId, PeerId),
        req: &RemoteReq<'_>,
        access: Access,
    ) -> Result<(), SubmitError> {
        let ranges = req.remote.iter().filter(|(_, len, _)| *len > 0);
        let mut ranges: Vec<Range> = ranges
            .map(|&(addr, len, key)| (key, addr, len as u64))
            .collect();
        self.parts_fit((ep, peer), req, &ranges, access)?;
        // RPCs execute in order, so the peer counts the operation with the last RPC.
        let rpcs = access == Access::Write && ranges.iter().all(|r| self.is_short(r.2 as usize));
        let in_order = rpcs && req.data.is_none();
        let place = (ranges[0].0, ranges[0].1);
        let mut keys = Keys::default();
        ranges.iter().for_each(|(key, _, _)| keys.add(*key, 1));
        let len = u32::try_from(total(req.iov)).unwrap_or(u32::MAX);
        let trailer = (!in_order).then(|| EndNotice {
            peer,
            reads: access == Access::Read,
            keys,
            data: req.data.map(|data| (place, data, len)),
            completion: req.flags.completion,
        });
        let (left, end) = (ranges.len(), Ok(()));
        let whole = Whole {
            ep,
            left,
            end,
            trailer,
        };
        let whole = self.rpcs.wholes.insert(whole);
        if left > 1 && self.cfg.proto.errs(Mutation::ForgetPiece) {
            ranges.pop();
            let _ = self.part_over(whole, Ok(()), (ep, 0, 0));
        }
        let each = self.cfg.proto.errs(Mutation::CountParts);
        let (all, mut at) = (Pieces::new(req.iov), 0);
        for (i, range) in ranges.iter().copied().enumerate() {
            let iov = all.range(at as u64, range.2 as usize);
            let part = RemoteReq {
                iov: iov.as_slice(),
                data: None,
                ..*req
            };
            let flags = match in_order {
                _ if each => 0,
                true if i + 1 < ranges.len() => MORE,
                true => 0,
                false => PART,
            };
            let of = Some(Part { whole, flags });
            let posted = match access {
                Access::Read => self.read_one((ep, peer), &part, range, of),
                Access::Write => self.put_one(now, (ep, peer), &part, range, of),
            };
            if let Err(error) = posted {
                self.rpcs.wholes.remove(whole);
                debug_assert_eq!(at, 0, "what refuses a part refuses the first");
                return Err(error);
            }
            at += range.2 as usize;
        }
        Ok(())
    }

    /// Refuses an operation before any part is posted if there is no room or the peer is dead: the
    /// parts themselves do not check for room.
    fn parts_fit(
        &mut self,
        (ep, peer): (EpId, PeerId),
        req: &RemoteReq<'_>,
        ranges: &[Range],
        access: Access,
    ) -> Result<(), SubmitError> {
        let endpoint = self.dir.ep(ep).ok_or(SubmitError::Unusable)?;
        if endpoint.node.peer_gone(peer) {
            return Err(SubmitError::PeerDead);
        }
        if access == Access::Read {
            return Ok(());
        }
        if req.flags.inject && total(req.iov) > INJECT_MAX {
            return Err(SubmitError::TooLong);
        }
        let full = endpoint.node.loopback_full(peer);
        let lengths = ranges.iter().map(|range| range.2 as usize);
        let short = lengths.clone().filter(|len| self.is_short(*len));
        let logged = lengths.filter(|len| req.flags.inject && !self.is_short(*len));
        let logged = short.clone().map(|len| HEAD + len).chain(logged);
        let open = self.rpcs.open.get(&(ep.0, peer.0)).copied();
        let open = open.map_or(0, |open| open.rpcs);
        let many = short.clone().count() > (OPEN_MAX - open.min(OPEN_MAX)) as usize;
        if full || many || !self.buffers.pool.has_room_for(logged) {
            self.counters.process.again += 1;
            return Err(SubmitError::Again);
        }
        Ok(())
    }

    /// True if a write of `len` bytes travels as an RPC.
    pub(crate) fn is_short(&self, len: usize) -> bool {
        len == 0 || self.cfg.rpcs && len <= PAYLOAD_MAX
    }

    /// Ends a part. Returns the operation's result if all parts have ended; `None`: other parts are
    /// in flight, or the operation's data follows now.
    pub(crate) fn part_over(
        &mut self,
        whole: u32,
        end: Result<(), OpError>,
        (ep, context, flags): (EpId, usize, u64),
    ) -> Option<Result<(), OpError>> {
        let early = self.cfg.proto.errs(Mutation::EndWithPart);
        let parts = self.rpcs.wholes.get_mut(whole)?;
        parts.left -= 1;
        parts.end = parts.end.and(end);
        if parts.left > 0 && !early {
            return None;
        }
        let Whole { end, trailer, .. } = self.rpcs.wholes.remove(whole)?;
        let Some(trailer) = trailer.filter(|_| end.is_ok()) else {
            return Some(end);
        };
        match self.send_trailer((ep, context, flags), &trailer) {
            Ok(()) if trailer.data.is_some() => None,
            Err(_) if trailer.data.is_some() => Some(Err(OpError::PeerDead)),
            _ => Some(end), // the peer's count does not affect the result
        }
    }
}
