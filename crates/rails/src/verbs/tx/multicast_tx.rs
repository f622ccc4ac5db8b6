//! Sends to multicast groups.

use super::{VerbsTx, BATCH_MAX};
use crate::sys::Errno;
use crate::verbs::addr::rail_kind;
use crate::verbs::send_queue::Read;
use crate::verbs::shared::{HANDSHAKE_SLOTS, RECEIVES};
use crate::verbs::ud_multicast::{ip_of, OwnGroup};
use crate::{
    BufId, GroupBounds, GroupError, GroupLink, Groups, RailFault, SendOutcome, TxBuffers,
    BUFFER_LEN,
};
use marline_wire::RailAddr;

/// Maximum of groups per rail.
const JOINED_MAX: usize = 64;

impl VerbsTx {
    /// Group packets are datagrams on every kind of verbs rail.
    pub(super) fn group_bounds(&self) -> GroupBounds {
        let slots = match self.shared.connections {
            Some(_) if self.links.datagrams_first == 0 => HANDSHAKE_SLOTS,
            _ => RECEIVES,
        };
        let mtu = self.shared.port.attr.mtu();
        GroupBounds {
            datagram_max: mtu,
            receive_buffer_bytes: slots as usize * mtu,
        }
    }

    /// Replaces the address handles of groups. A group whose handle cannot be made loses its
    /// packets.
    #[cold]
    pub(super) fn renew_groups(&mut self) {
        let old = self.groups.iter_mut().flatten();
        let old: Vec<_> = old.filter_map(|own| own.renew().ok()).collect();
        old.into_iter().for_each(|handle| self.links.retire(handle));
    }

    /// Posts packets in a lent buffer.
    fn post_to_group(
        &mut self,
        at: usize,
        buffer: BufId,
        (len, segment): (usize, usize),
    ) -> SendOutcome {
        let Some(own) = self.groups.get(at).and_then(Option::as_ref) else {
            return SendOutcome::Sent;
        };
        let count = len.div_ceil(segment);
        let given = self.links.given;
        let qkey = self.shared.qkey;
        let (pair, queue) = self.links.datagrams();
        if queue.room() < count {
            return SendOutcome::Busy;
        }
        let (handle, number) = own.to();
        for at in 0..count {
            let from = at * segment;
            let mut request = self.buffers.request(buffer, from, segment.min(len - from));
            (request.signalled, request.name) = (at + 1 == count, queue.name(at + 1));
            self.chain.datagram(&request, handle, (number, qkey));
        }
        let (posted, signalled) = match self.chain.post(pair) {
            Ok(()) => (count, true),
            Err((0, libc::ENOMEM | libc::EAGAIN)) => return SendOutcome::Busy,
            Err((0, errno)) => return SendOutcome::Fault(RailFault::Down(errno)),
            // The unposted rest is lost; a later completion frees the buffer.
            Err((posted, _)) => (posted, false),
        };
        queue.posted(posted, signalled, &[Read::Buffer(buffer)], given);
        self.links.given += 1;
        self.buffers.in_flight(buffer);
        SendOutcome::Sent
    }
}

fn why(errno: Errno) -> GroupError {
    match errno {
        libc::ENOBUFS | libc::ENOMEM | libc::ENOSPC => GroupError::Full,
        errno => GroupError::System(errno),
    }
}

impl Groups for VerbsTx {
    fn join(&mut self, group: &RailAddr) -> Result<GroupLink, GroupError> {
        let drawn = group.bytes().try_into().map(u32::from_le_bytes);
        let drawn = drawn.ok().filter(|_| group.kind == rail_kind(self.kind));
        let port = &self.shared.port;
        let ip = drawn.and_then(|drawn| ip_of(&port.node, drawn));
        let on = port.groups_on.as_deref();
        let to = ip.zip(on).ok_or(GroupError::NoGroup)?;
        let free = self.groups.iter().position(Option::is_none);
        let at = free.unwrap_or(self.groups.len());
        if at >= JOINED_MAX {
            return Err(GroupError::Full);
        }
        let own = OwnGroup::join(&self.shared, &self.groups, to).map_err(why)?;
        match free {
            Some(at) => self.groups[at] = Some(own),
            None => self.groups.push(Some(own)),
        }
        Ok(GroupLink(at as u32))
    }

    fn leave(&mut self, group: GroupLink) {
        let left = self.groups.get_mut(group.0 as usize).and_then(Option::take);
        if let Some(left) = left {
            self.links.retire(left.leave());
        }
    }

    fn send_group(&mut self, group: GroupLink, bytes: &[u8], segment: usize) -> SendOutcome {
        let segment = segment.max(1);
        let too_long = segment.min(bytes.len()) > self.shared.port.attr.mtu();
        let count = bytes.len().div_ceil(segment);
        if bytes.is_empty() || too_long || count > BATCH_MAX || bytes.len() > BUFFER_LEN {
            return SendOutcome::Sent; // lost, like a packet that exceeds the PMTU
        }
        if self.links.datagrams().1.room() < count {
            self.reap();
        }
        let Some(buffer) = self.lend() else {
            return SendOutcome::Busy;
        };
        self.buffers.buffer(buffer)[..bytes.len()].copy_from_slice(bytes);
        let sent = self.post_to_group(group.0 as usize, buffer, (bytes.len(), segment));
        if !self.buffers.is_in_flight(buffer) {
            self.buffers.free(buffer);
        }
        if matches!(sent, SendOutcome::Fault(_)) {
            self.renew();
        }
        sent
    }
}
