//! The handshake of a link's ends.

use super::{Link, State, VerbsLinks, CONNECTIONS_MAX, TRIES_MAX};
use crate::link::{DownReason, LinkId};
use crate::verbs::addr::VerbsAddr;
use crate::verbs::handshake::{End, Handshake, Say};
use std::time::Instant;

impl VerbsLinks {
    /// Answers a peer's `Ask` with our end.
    pub(super) fn accept(&mut self, link: LinkId, end: End) {
        if self.join(link, end) {
            self.set(link, State::Answering, Say::Answer);
        }
    }

    /// Handles a handshake message.
    #[cold]
    pub(in crate::verbs) fn heard(&mut self, handshake: &Handshake) {
        if handshake.kind != self.kind || self.shared.connections.is_none() {
            return;
        }
        match handshake.say {
            Say::Ask => self.asked(handshake),
            Say::Eviction => self.asked_to_evict(handshake),
            Say::Answer | Say::Ready | Say::Over | Say::Rested => self.told(handshake),
        }
    }

    fn asked(&mut self, handshake: &Handshake) {
        let end = handshake.end;
        let known = self.table.find(&handshake.from);
        let strangers = self.table.iter().filter(|(_, _, row)| !row.wanted).count();
        let link = match known {
            Some(link) => link,
            None if strangers >= CONNECTIONS_MAX && !self.forget_stranger() => return,
            None => self.begin(handshake.from),
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        match (row.peer, row.state) {
            _ if end.name <= row.past => {} // an old message
            (Some(peer), _) if end.name < peer.name => {}
            (_, State::Resolving) => row.peer = Some(end),
            (Some(peer), State::Answering | State::Up | State::Parting) if peer == end => {
                self.say_on(link, &handshake.from, Say::Answer);
            }
            (_, State::Evicted | State::Wanting) => self.dial(link, Some(end)),
            // The peer closed the connection as we requested, and wants another one.
            (Some(_), State::Parting) if row.tries > 0 => self.close_and_accept(link, end),
            (Some(_), _) => {
                // The peer starts over.
                self.down(link, DownReason::Closed);
                let link = self.begin(handshake.from);
                if let Some(row) = self.table.get_mut(link) {
                    row.peer = Some(end);
                }
            }
            (None, _) => self.accept(link, end),
        }
    }

    fn told(&mut self, handshake: &Handshake) {
        let end = handshake.end;
        let Some(link) = self.table.find(&handshake.from) else {
            return;
        };
        let Some(row) = self
            .table
            .get_mut(link)
            .filter(|row| row.name == handshake.to)
        else {
            return;
        };
        let same = row.peer == Some(end);
        let was = row.state;
        match (handshake.say, was) {
            (Say::Answer, State::Asking | State::Answering) => {
                let joined = same || was == State::Asking && self.join(link, end);
                if joined {
                    self.up(link);
                    self.say_on(link, &handshake.from, Say::Ready);
                }
            }
            (Say::Answer, State::Up | State::Parting) if same => {
                self.say_on(link, &handshake.from, Say::Ready)
            }
            (Say::Ready, State::Answering) if same => self.up(link),
            (Say::Over, State::Answering | State::Up | State::Parting | State::Evicted) if same => {
                self.down(link, DownReason::Closed);
            }
            (Say::Rested, State::Parting) if same => self.part(link),
            _ => {}
        }
    }

    /// Repeats unanswered handshake messages.
    #[inline]
    pub(in crate::verbs) fn tick(&mut self) {
        if !self.parting.is_empty() {
            self.step_parting();
        }
        if self.again.is_some_and(|at| at <= Instant::now()) {
            self.say_again();
        }
    }

    #[cold]
    fn say_again(&mut self) {
        let (now, mut next) = (Instant::now(), None::<Instant>);
        let waits =
            |row: &Link| matches!(row.state, State::Wanting | State::Asking | State::Answering);
        let due: Vec<(LinkId, State, u32, Instant)> = (self.table.iter())
            .filter(|(_, _, row)| waits(row))
            .map(|(link, _, row)| (link, row.state, row.tries, row.again))
            .collect();
        self.again = None;
        for (link, state, tries, at) in due {
            match (at <= now, tries >= TRIES_MAX, state) {
                (false, ..) => next = Some(next.map_or(at, |next| next.min(at))),
                (true, true, _) => self.down(link, DownReason::Unanswered),
                (true, false, State::Wanting) => self.dial(link, None),
                (true, false, State::Asking) => self.set(link, State::Asking, Say::Ask),
                (true, false, _) => self.set(link, state, Say::Answer),
            }
        }
        if let Some(next) = next {
            self.look_again(next);
        }
        self.make_room(0);
    }

    /// Sends a handshake message on a link.
    pub(super) fn say_on(&mut self, link: LinkId, to: &VerbsAddr, say: Say) {
        if let Some(row) = self.table.get(link) {
            self.handshakes.say(say, &row.saying(to));
        }
    }
}
