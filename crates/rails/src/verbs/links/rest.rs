//! Connections that rest, because there are too many of them.
//!
//! ```text
//!   Up -- another one wants room --> Parting -- nothing of ours is under way: Rest is said -+
//!    |                                                          Rested is heard             |
//!    +-- Rest is heard --> Parting -- nothing of ours is under way: Rested is said --+      |
//!                                                                                    v      v
//!   Up <-- Answer, Ready -- Asking, Answering <-- something is sent, or Ask is heard -- Resting
//! ```
//!
//! Nothing is lost by that: neither end closes before all that it has posted is over, and all that
//! the other one has posted came before its last word. The user of a link knows nothing of it: what
//! is sent while there is no connection is held. The bound is soft, as a connection that is wanted
//! is made at once; only if there are as many as the rail can have, links wait for one.

use super::{Link, State, VerbsLinks, AGAIN};
use crate::link::LinkId;
use crate::verbs::greeting::{End, Greeting, Say};
use crate::verbs::held::{Held, Waiting};
use crate::RailEvent;
use std::time::{Duration, Instant};

/// A connection that was made so lately stays: what it was made for may not have left yet.
const AGE_MIN: Duration = AGAIN;
/// Rest is said again after 20 ms, and then more and more seldom, up to 32 times that.
const DOUBLINGS_MAX: u32 = 5;

impl VerbsLinks {
    /// Lets connections rest until `more` can be added, if there are some that can. Those that
    /// cannot now are looked at again.
    pub(in crate::verbs) fn make_room(&mut self, more: usize) {
        let open = |links: &VerbsLinks| links.by_number.len().saturating_sub(links.parting.len());
        while open(self) + more > self.connections_max {
            if !self.rest_one() {
                return self.look_again(Instant::now() + AGAIN);
            }
        }
    }

    /// Something is said again, or looked at, then at the latest.
    pub(super) fn look_again(&mut self, at: Instant) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }

    /// Begins to close the connection that was sent on least lately; `false`: there is none.
    #[cold]
    fn rest_one(&mut self) -> bool {
        let up = |row: &Link| {
            let free = !row.leaving && row.held.is_empty() && row.since.elapsed() >= AGE_MIN;
            row.state == State::Up && row.connection.is_some() && free
        };
        let links = self.table.iter().filter(|(_, _, row)| up(row));
        let Some((link, ..)) = links.min_by_key(|(_, _, row)| row.used) else {
            return false;
        };
        self.begin_parting(link, false);
        true
    }

    /// Sends nothing more on a link's connection. If it is the peer who wants it closed, then what
    /// is held leaves before: a peer that closes each connection as soon as it is there would
    /// otherwise let nothing through.
    fn begin_parting(&mut self, link: LinkId, leaving: bool) {
        if let Some(row) = self.table.get_mut(link) {
            if row.held.is_empty() {
                row.state = State::Parting;
            }
            (row.leaving, row.tries, row.again) = (leaving, 0, Instant::now());
            if !self.parting.contains(&link) {
                self.parting.push(link);
            }
        }
    }

    /// The peer wants a link's connection closed.
    #[cold]
    pub(super) fn asked_to_rest(&mut self, greeting: &Greeting) {
        let Some(link) = self.table.find(&greeting.from) else {
            return;
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        if row.name != greeting.to || row.peer != Some(greeting.end) {
            return; // of another connection
        }
        match row.state {
            State::Parting => row.leaving = true,
            State::Resting => self.say_on(link, &greeting.from, Say::Rested),
            State::Up => self.begin_parting(link, true),
            State::Answering => {
                self.up(link); // the peer's word for that was lost
                self.begin_parting(link, true);
            }
            State::Resolving | State::Wanting | State::Asking | State::Down => {}
        }
    }

    /// Takes the next step on links whose connections are about to be closed.
    #[cold]
    pub(super) fn step_parting(&mut self) {
        let now = Instant::now();
        for link in self.parting.clone() {
            let Some(row) = self.table.get_mut(link) else {
                continue;
            };
            if row.state == State::Up && row.leaving && row.held.is_empty() {
                row.state = State::Parting;
            }
            let Some(connection) = &mut row.connection else {
                continue;
            };
            if row.state != State::Parting {
                continue;
            }
            if !connection.queue.is_empty() {
                self.voice.finish(connection);
                continue;
            }
            let Some(to) = self.table.key(link) else {
                continue;
            };
            match self.table.get_mut(link) {
                Some(row) if row.leaving => {
                    self.say_on(link, &to, Say::Rested);
                    self.part(link);
                }
                Some(row) if row.again <= now => {
                    row.again = now + AGAIN * (1 << row.tries.min(DOUBLINGS_MAX));
                    row.tries += 1;
                    self.say_on(link, &to, Say::Rest);
                }
                _ => {}
            }
        }
        let table = &self.table;
        let parts =
            |row: &Link| row.state == State::Parting || row.state == State::Up && row.leaving;
        self.parting
            .retain(|link| table.get(*link).is_some_and(parts));
    }

    /// Closes the connection of a link of which nothing is under way.
    pub(super) fn part(&mut self, link: LinkId) {
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        (row.state, row.datagrams) = (State::Resting, 0);
        row.past = row.peer.map_or(row.past, |peer| peer.name);
        let connection = row.connection.take();
        let wanted = !row.held.is_empty();
        self.parting.retain(|one| *one != link);
        self.end_connection(connection);
        self.events.push_back(RailEvent::Rested);
        if wanted {
            self.dial(link, None);
        }
    }

    /// The peer has closed the connection of a link that was to rest, and wants another one.
    pub(super) fn close_and_accept(&mut self, link: LinkId, end: End) {
        self.part(link);
        match self.table.get(link).map(|row| row.state) {
            Some(State::Resting | State::Wanting) => self.dial(link, Some(end)),
            Some(State::Asking) => self.accept(link, end),
            _ => {}
        }
    }

    /// The link waits until there is room for its connection.
    pub(super) fn want(&mut self, link: LinkId) {
        if let Some(row) = self.table.get_mut(link) {
            row.state = State::Wanting;
            row.tries += 1;
            row.again = Instant::now() + AGAIN;
            let again = row.again;
            self.look_again(again);
        }
    }

    /// Forgets a link that only the peer wanted, and that rests; `false`: there is none.
    #[cold]
    pub(super) fn forget_stranger(&mut self) -> bool {
        let rests = |row: &Link| !row.wanted && row.state == State::Resting;
        let found = self.table.iter().find(|(_, _, row)| rests(row));
        let Some((link, to)) = found.map(|(link, to, _)| (link, *to)) else {
            return false;
        };
        if let Some(row) = self.table.close(link) {
            self.end(to, row);
        }
        true
    }

    /// A link without a connection carries packets as datagrams.
    pub(super) fn carry_datagrams(&mut self, link: LinkId) {
        if let Some(row) = self.table.get_mut(link) {
            (row.state, row.datagrams) = (State::Resting, 0);
            if !std::mem::replace(&mut row.begun, true) && row.wanted {
                self.events.push_back(RailEvent::LinkUp(link));
            }
        }
    }

    /// Packets left on a link, which gets a connection if these were many datagrams.
    #[inline]
    pub(in crate::verbs) fn sent(&mut self, link: LinkId, count: usize) {
        if self.datagrams_first > 0 {
            self.count_datagrams(link, count as u32);
        }
    }

    fn count_datagrams(&mut self, link: LinkId, count: u32) {
        let first = self.datagrams_first;
        let rests = |row: &&mut Link| row.state == State::Resting;
        if let Some(row) = self.table.get_mut(link).filter(rests) {
            row.datagrams += count;
            if row.datagrams > first {
                self.dial(link, None);
            }
        }
    }

    /// True for a link that can write now: by a connection of its own.
    pub(in crate::verbs) fn writes(&self, link: LinkId) -> bool {
        let able =
            |row: &Link| row.state == State::Up && row.connection.is_some() && row.held.is_empty();
        self.table.get(link).is_some_and(able)
    }

    /// True for a link that was up, and has no connection now or something that waits for it.
    pub(in crate::verbs) fn holds(&self, link: LinkId) -> bool {
        self.table.get(link).is_some_and(|row| row.begun)
    }

    /// Keeps something until a link that holds has a connection, which is made if it rests;
    /// `false`: there is no room.
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
        if row.state == State::Resting {
            self.dial(link, None);
        }
        true
    }

    /// Takes what is held on a link, if it can leave now. It comes back by [`Self::hold_again`].
    pub(in crate::verbs) fn take_held(&mut self, link: LinkId) -> Option<Held> {
        let row = self
            .table
            .get_mut(link)
            .filter(|row| row.state == State::Up)?;
        let held = std::mem::take(&mut row.held);
        self.held_bytes -= held.bytes();
        Some(held)
    }

    /// Holds again what could not leave.
    pub(in crate::verbs) fn hold_again(&mut self, link: LinkId, held: Held) {
        if let Some(row) = self.table.get_mut(link).filter(|row| row.begun) {
            self.held_bytes += held.bytes();
            row.held = held;
        }
    }

    /// True for a link on which something is held.
    pub(in crate::verbs) fn has_held(&self, link: LinkId) -> bool {
        let row = self.table.get(link);
        row.is_some_and(|row| !row.held.is_empty())
    }
}
