//! Idle eviction of connections, if there are too many.
//!
//! ```text
//!   Up -- another one needs room --> Draining -- nothing of ours is in flight: send Eviction --+
//!    |                                                             Closed arrives              |
//!    +-- Eviction arrives --> Draining -- nothing of ours is in flight: send Closed ---+       |
//!                                                                                      v       v
//!   Up <-- Answer, Ready -- Asking, Answering <-- a send, or Ask arrives ------------ Evicted
//! ```
//!
//! Eviction loses nothing: an end closes only after all of its own requests have completed and all
//! requests of the other end have completed, as the other's last message states. The link's user
//! does not notice: sends without a connection are held. The bound is soft, since a requested
//! connection is made at once; links wait only at the maximum of the rail.

use super::{Link, State, VerbsLinks, AGAIN};
use crate::link::LinkId;
use crate::verbs::handshake::{End, Handshake, Say};
use crate::verbs::held::{Held, Waiting};
use crate::RailEvent;
use std::time::{Duration, Instant};

/// A connection younger than this is not evicted: the packets for which it was made may not have
/// left yet.
const AGE_MIN: Duration = AGAIN;
/// `Eviction` is repeated after 20 ms, with exponential backoff up to 32 times that.
const DOUBLINGS_MAX: u32 = 5;

impl VerbsLinks {
    /// Evicts connections until `more` can be added, if any can be evicted; otherwise schedules
    /// another attempt.
    pub(in crate::verbs) fn make_room(&mut self, more: usize) {
        let open = |links: &VerbsLinks| links.by_number.len().saturating_sub(links.draining.len());
        while open(self) + more > self.connections_max {
            if !self.evict_one() {
                return self.look_again(Instant::now() + AGAIN);
            }
        }
    }

    /// Schedules the next tick for this time at the latest.
    pub(super) fn look_again(&mut self, at: Instant) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }

    /// Begins to evict the least recently used connection; `false` if there is none to evict.
    #[cold]
    fn evict_one(&mut self) -> bool {
        let up = |row: &Link| {
            let free = !row.leaving && row.held.is_empty() && row.since.elapsed() >= AGE_MIN;
            row.state == State::Up && row.connection.is_some() && free
        };
        let links = self.table.iter().filter(|(_, _, row)| up(row));
        let Some((link, ..)) = links.min_by_key(|(_, _, row)| row.used) else {
            return false;
        };
        self.begin_draining(link, false);
        true
    }

    /// Stops sending on a link's connection. If the peer requested the eviction, held sends leave
    /// first: otherwise a peer that evicts each connection at once would starve the link.
    fn begin_draining(&mut self, link: LinkId, leaving: bool) {
        if let Some(row) = self.table.get_mut(link) {
            if row.held.is_empty() {
                row.state = State::Draining;
            }
            (row.leaving, row.tries, row.again) = (leaving, 0, Instant::now());
            if !self.draining.contains(&link) {
                self.draining.push(link);
            }
        }
    }

    /// Handles the peer's request to evict a connection.
    #[cold]
    pub(super) fn asked_to_evict(&mut self, handshake: &Handshake) {
        let Some(link) = self.table.find(&handshake.from) else {
            return;
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        if row.name != handshake.to || row.peer != Some(handshake.end) {
            return; // of another connection
        }
        match row.state {
            State::Draining => row.leaving = true,
            State::Evicted => self.say_on(link, &handshake.from, Say::Closed),
            State::Up => self.begin_draining(link, true),
            State::Answering => {
                self.up(link); // the peer's Ready was lost
                self.begin_draining(link, true);
            }
            State::Resolving | State::Wanting | State::Asking | State::Down => {}
        }
    }

    /// Advances the eviction of all links in `Draining`.
    #[cold]
    pub(super) fn step_draining(&mut self) {
        let now = Instant::now();
        for link in self.draining.clone() {
            let Some(row) = self.table.get_mut(link) else {
                continue;
            };
            if row.state == State::Up && row.leaving && row.held.is_empty() {
                row.state = State::Draining;
            }
            let Some(connection) = &mut row.connection else {
                continue;
            };
            if row.state != State::Draining {
                continue;
            }
            if !connection.queue.is_empty() {
                self.handshakes.finish(connection);
                continue;
            }
            let Some(to) = self.table.key(link) else {
                continue;
            };
            match self.table.get_mut(link) {
                Some(row) if row.leaving => {
                    self.say_on(link, &to, Say::Closed);
                    self.close_drained(link);
                }
                Some(row) if row.again <= now => {
                    row.again = now + AGAIN * (1 << row.tries.min(DOUBLINGS_MAX));
                    row.tries += 1;
                    self.say_on(link, &to, Say::Eviction);
                }
                _ => {}
            }
        }
        let table = &self.table;
        let parts =
            |row: &Link| row.state == State::Draining || row.state == State::Up && row.leaving;
        self.draining
            .retain(|link| table.get(*link).is_some_and(parts));
    }

    /// Closes the connection of a link that has nothing in flight.
    pub(super) fn close_drained(&mut self, link: LinkId) {
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        (row.state, row.datagrams) = (State::Evicted, 0);
        row.past = row.peer.map_or(row.past, |peer| peer.name);
        let connection = row.connection.take();
        let wanted = !row.held.is_empty();
        self.draining.retain(|one| *one != link);
        self.end_connection(connection);
        self.events.push_back(RailEvent::Evicted);
        if wanted {
            self.dial(link, None);
        }
    }

    /// Closes an evicted connection that the peer has already closed, and accepts the peer's next
    /// one.
    pub(super) fn close_and_accept(&mut self, link: LinkId, end: End) {
        self.close_drained(link);
        match self.table.get(link).map(|row| row.state) {
            Some(State::Evicted | State::Wanting) => self.dial(link, Some(end)),
            Some(State::Asking) => self.accept(link, end),
            _ => {}
        }
    }

    /// Makes the link wait for room for its connection.
    pub(super) fn want(&mut self, link: LinkId) {
        if let Some(row) = self.table.get_mut(link) {
            row.state = State::Wanting;
            row.tries += 1;
            row.again = Instant::now() + AGAIN;
            let again = row.again;
            self.look_again(again);
        }
    }

    /// Deletes an evicted link that only the peer wanted; `false` if there is none.
    #[cold]
    pub(super) fn forget_stranger(&mut self) -> bool {
        let evictions = |row: &Link| !row.wanted && row.state == State::Evicted;
        let found = self.table.iter().find(|(_, _, row)| evictions(row));
        let Some((link, to)) = found.map(|(link, to, _)| (link, *to)) else {
            return false;
        };
        if let Some(row) = self.table.close(link) {
            self.end(to, row);
        }
        true
    }

    /// Leaves a link without a connection.
    pub(super) fn rest(&mut self, link: LinkId) {
        if let Some(row) = self.table.get_mut(link) {
            (row.state, row.datagrams) = (State::Evicted, 0);
        }
    }

    /// Lets a link without a connection send datagrams.
    pub(super) fn carry_datagrams(&mut self, link: LinkId) {
        if let Some(row) = self.table.get_mut(link) {
            (row.state, row.datagrams) = (State::Evicted, 0);
            if !std::mem::replace(&mut row.begun, true) && row.wanted {
                self.events.push_back(RailEvent::LinkUp(link));
            }
        }
    }

    /// Counts packets sent on a link, which gets a connection after enough datagrams.
    #[inline]
    pub(in crate::verbs) fn sent(&mut self, link: LinkId, count: usize) {
        if self.datagrams_first > 0 {
            self.count_datagrams(link, count as u32);
        }
    }

    fn count_datagrams(&mut self, link: LinkId, count: u32) {
        let first = self.datagrams_first;
        let evictions = |row: &&mut Link| row.state == State::Evicted;
        if let Some(row) = self.table.get_mut(link).filter(evictions) {
            row.datagrams += count;
            if row.datagrams > first {
                self.dial(link, None);
            }
        }
    }

    /// Returns whether a link can write now, by its own connection.
    pub(in crate::verbs) fn writes(&self, link: LinkId) -> bool {
        let able =
            |row: &Link| row.state == State::Up && row.connection.is_some() && row.held.is_empty();
        self.table.get(link).is_some_and(able)
    }

    /// Returns whether a link holds its sends: it was up before, and has no connection or already
    /// holds sends.
    pub(in crate::verbs) fn holds(&self, link: LinkId) -> bool {
        self.table.get(link).is_some_and(|row| row.begun)
    }

    /// Holds a send until the link has a connection, which is made on demand; `false` if there is
    /// no room.
    #[cold]
    pub(in crate::verbs) fn hold(
        &mut self,
        link: LinkId,
        waiting: impl FnOnce() -> Waiting,
    ) -> bool {
        let all = self.held_bytes;
        let Some(row) = self
            .table
            .get_mut(link)
            .filter(|row| !row.held.is_full(all))
        else {
            return false;
        };
        let before = row.held.bytes();
        if row.held.is_empty() {
            self.holding.push(link);
        }
        row.held.push(waiting());
        self.held_bytes += row.held.bytes() - before;
        if row.state == State::Evicted {
            self.dial(link, None);
        }
        true
    }

    /// Takes the held sends of a link that can send; [`Self::hold_again`] returns the rest.
    pub(in crate::verbs) fn take_held(&mut self, link: LinkId) -> Option<Held> {
        let row = self
            .table
            .get_mut(link)
            .filter(|row| row.state == State::Up)?;
        let held = std::mem::take(&mut row.held);
        self.held_bytes -= held.bytes();
        Some(held)
    }

    /// Returns held sends that could not leave.
    pub(in crate::verbs) fn hold_again(&mut self, link: LinkId, held: Held) {
        if let Some(row) = self.table.get_mut(link).filter(|row| row.begun) {
            self.held_bytes += held.bytes();
            row.held = held;
        }
    }

    /// Returns whether the link holds sends.
    pub(in crate::verbs) fn has_held(&self, link: LinkId) -> bool {
        let row = self.table.get(link);
        row.is_some_and(|row| !row.held.is_empty())
    }
}
