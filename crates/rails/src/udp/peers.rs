//! Connected sockets for the destinations that get most packets.
//!
//! A send on a connected socket finds its route already looked up and no address to copy, which
//! was measured to save 0.11 µs of 0.98. The sockets are only sent on: their ports are ephemeral,
//! and peers answer to the rail's own port. Each is a cache of what the unconnected socket does,
//! so that dropping one is always right.

use crate::addr::UdpAddr;
use crate::sys::{Socket, SocketOptions};
use crate::udp::FLOW_RCVBUF;
use marline_wire::RailAddr;

/// Sends to a destination after which it gets a socket. Opening one costs some 10 µs, and each
/// send on it saves 0.1 µs; contacts that are over after a handshake should cost nothing.
const SENDS_MIN: i32 = 8;
/// Sends to a destination before another attempt when its socket could not be opened, for want of
/// descriptors for example.
const SENDS_AFTER_FAILURE: i32 = 4096;
/// Flows of destinations that share a set, among which one is found by comparing.
const WAYS: usize = 4;
/// Sets; 64 flows of destinations in all, so that a process with four rails stays well below the
/// usual limit of 1024 descriptors.
const SETS: usize = 16;
/// A destination loses its place when, without any send of its own, it was so often in the way of
/// one that has no place in the set. Destinations in steady use thus never push each other out,
/// which would cost more than it saves.
const CREDIT: u8 = 64;

/// A destination and perhaps its socket.
struct Slot {
    to: RailAddr,
    /// Flow: each leaves by a port of its own.
    flow: u8,
    /// Sends seen while it has no socket; negative while none is wanted.
    sends: i32,
    credit: u8,
    socket: Option<Socket>,
}

/// Destinations by how often they are sent to.
pub(super) struct Peers {
    slots: [Option<Slot>; SETS * WAYS],
    /// Which destination of each set loses credit or its place next.
    hands: [u8; SETS],
    /// Where the errors of sockets were looked for last.
    looked_at: usize,
    open: usize,
}

impl Slot {
    /// Whether it is that of a flow to the same port of the same host.
    #[inline]
    fn is(&self, to: &RailAddr, flow: u8) -> bool {
        let mine = (self.to.kind, self.to.padded(), self.flow);
        mine == (to.kind, to.padded(), flow)
    }
}

/// First slot of a destination's set.
#[inline]
fn set_of(to: &RailAddr) -> usize {
    let (words, _) = to.padded().as_chunks();
    let [a, b, c] = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
    // The IP address lies behind port and subnet.
    let all = a.rotate_right(24) ^ b.rotate_left(16) ^ c.rotate_left(32);
    // Multiplying by an odd constant without pattern (2^64 / golden ratio) mixes all bits upward.
    let mixed = all.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - SETS.ilog2())) as usize * WAYS
}

impl Peers {
    pub(super) fn new() -> Peers {
        Peers {
            slots: [const { None }; SETS * WAYS],
            hands: [0; SETS],
            looked_at: 0,
            open: 0,
        }
    }

    /// The slot of a destination whose socket is open.
    #[inline]
    pub(super) fn find(&mut self, to: &RailAddr, flow: u8) -> Option<usize> {
        let first = set_of(to);
        let set = &mut self.slots[first..first + WAYS];
        let at = set
            .iter()
            .position(|slot| matches!(slot, Some(slot) if slot.is(to, flow)))?;
        let slot = set[at].as_mut()?;
        slot.socket.as_ref()?;
        slot.credit = CREDIT;
        Some(first + at)
    }

    /// The socket in a slot.
    #[inline]
    pub(super) fn socket(&self, at: usize) -> Option<&Socket> {
        self.slots[at].as_ref()?.socket.as_ref()
    }

    #[cfg(test)]
    pub(super) fn open_count(&self) -> usize {
        self.open
    }

    /// Counts a send that the unconnected socket served; whether the destination has earned a
    /// socket of its own.
    pub(super) fn count(&mut self, to: &RailAddr, flow: u8) -> bool {
        // Other flows than the first are tried for their ports: these must not change.
        let enough = if flow == 0 { SENDS_MIN } else { 1 };
        let first = set_of(to);
        let set = first..first + WAYS;
        let is_it = |slot: &Option<Slot>| matches!(slot, Some(slot) if slot.is(to, flow));
        if let Some(Some(slot)) = self.slots[set.clone()].iter_mut().find(|s| is_it(s)) {
            slot.sends = slot.sends.saturating_add(1);
            slot.credit = CREDIT;
            return slot.socket.is_none() && slot.sends >= enough;
        }
        let free = self.slots[set].iter().position(Option::is_none);
        let at = first
            + free.unwrap_or_else(|| {
                let hand = &mut self.hands[first / WAYS];
                *hand = (*hand + 1) % WAYS as u8;
                *hand as usize
            });
        if let Some(slot) = &mut self.slots[at] {
            if slot.credit > 0 {
                slot.credit -= 1;
                return false;
            }
        }
        self.drop_slot(at);
        self.slots[at] = Some(Slot {
            to: *to,
            flow,
            sends: 1,
            credit: CREDIT,
            socket: None,
        });
        enough == 1
    }

    /// Opens the socket of a destination that `count` knows. Nobody reads it, so that it takes no
    /// data. Where that fails the unconnected socket goes on serving.
    #[cold]
    pub(super) fn connect(&mut self, to: &RailAddr, flow: u8, options: &SocketOptions<'_>) {
        let first = set_of(to);
        let set = self.slots[first..first + WAYS].iter_mut().flatten();
        let Some(slot) = set.into_iter().find(|slot| slot.is(to, flow)) else {
            return;
        };
        let options = SocketOptions {
            port: 0,
            receive_bytes: FLOW_RCVBUF,
            ..*options
        };
        let socket = Socket::open(&options).map_err(|(_, errno)| errno);
        let socket = socket.and_then(|socket| {
            socket.refuse_data()?;
            let to = UdpAddr::of(to).ok_or(libc::EAFNOSUPPORT)?;
            socket.connect(&to, options.scope_id)?;
            socket.forget_route()?;
            Ok(socket)
        });
        match socket {
            Ok(socket) => {
                slot.socket = Some(socket);
                slot.credit = CREDIT;
                self.open += 1;
            }
            Err(_) => slot.sends = SENDS_MIN - SENDS_AFTER_FAILURE,
        }
    }

    /// Takes a socket out to read its errors; [`Self::put_back`] returns it.
    pub(super) fn take(&mut self, at: usize) -> Option<Socket> {
        self.slots[at].as_mut()?.socket.take()
    }

    /// Returns what [`Self::take`] took.
    pub(super) fn put_back(&mut self, at: usize, socket: Socket) {
        if let Some(slot) = &mut self.slots[at] {
            slot.socket = Some(socket);
        }
    }

    /// The next slot with a socket in turn: whose errors are to be read now.
    pub(super) fn next_open(&mut self) -> Option<usize> {
        if self.open == 0 {
            return None;
        }
        let mut turns = 0..self.slots.len();
        turns.find_map(|_| {
            self.looked_at = (self.looked_at + 1) % self.slots.len();
            self.socket(self.looked_at).map(|_| self.looked_at)
        })
    }

    /// Forgets a destination and closes its socket.
    pub(super) fn drop_slot(&mut self, at: usize) {
        if let Some(Slot {
            socket: Some(_), ..
        }) = self.slots[at].take()
        {
            self.open -= 1;
        }
    }

    /// Forgets all destinations: routes or addresses changed.
    pub(super) fn clear(&mut self) {
        *self = Peers::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Socket;

    fn options() -> SocketOptions<'static> {
        SocketOptions {
            ip: [127, 0, 0, 1].into(),
            port: 0,
            scope_id: 0,
            interface: "lo",
            receive_bytes: 0,
            send_bytes: 0,
        }
    }

    fn peer(n: u16) -> RailAddr {
        UdpAddr::new([127, 0, 0, 1].into(), 40_000 + n).rail()
    }

    /// One send, as a rail counts it; whether a connected socket served it.
    fn send(peers: &mut Peers, to: &RailAddr) -> bool {
        if peers.find(to, 0).is_some() {
            return true;
        }
        if peers.count(to, 0) {
            peers.connect(to, 0, &options());
        }
        false
    }

    #[test]
    fn a_destination_earns_its_socket_and_keeps_it() {
        let mut peers = Peers::new();
        let to = peer(0);
        for _ in 0..SENDS_MIN {
            assert!(!send(&mut peers, &to));
        }
        assert!(send(&mut peers, &to));
        let at = peers.find(&to, 0).unwrap();
        let socket: Socket = peers.take(at).unwrap();
        assert_eq!(peers.find(&to, 0), None);
        peers.put_back(at, socket);
        assert_eq!(
            (peers.find(&to, 0), peers.next_open()),
            (Some(at), Some(at))
        );
        peers.clear();
        assert_eq!((peers.find(&to, 0), peers.open_count()), (None, 0));
    }

    #[test]
    fn many_destinations_share_a_bounded_number_of_sockets() {
        let mut peers = Peers::new();
        for _ in 0..1000 {
            (0..200).for_each(|n| _ = send(&mut peers, &peer(n)));
        }
        assert_eq!(peers.open_count(), SETS * WAYS);
        let who = |peers: &mut Peers| {
            (0..200)
                .filter(|n| peers.find(&peer(*n), 0).is_some())
                .collect::<Vec<_>>()
        };
        let before = who(&mut peers);
        for _ in 0..1000 {
            (0..200).for_each(|n| _ = send(&mut peers, &peer(n)));
        }
        assert_eq!(who(&mut peers), before, "those in steady use stay");
        for _ in 0..10_000 {
            (200..210).for_each(|n| _ = send(&mut peers, &peer(n)));
        }
        assert!((200..210).all(|n| peers.find(&peer(n), 0).is_some()));
        assert!(peers.open_count() <= SETS * WAYS);
    }

    #[test]
    fn neighbouring_addresses_spread_over_the_sets() {
        let mut used = [0; SETS];
        for host in 0..SETS as u8 * 4 {
            let to = UdpAddr::new([127, 0, 0, host].into(), 40_000).rail();
            used[set_of(&to) / WAYS] += 1;
        }
        assert!(used.iter().all(|n| (1..=8).contains(n)), "{used:?}");
    }
}
