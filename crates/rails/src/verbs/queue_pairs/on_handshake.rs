//! The handshake of a link's ends.

use super::{Link, State, VerbsLinks, CONNECTIONS_MAX, TRIES_MAX};
use crate::link::{DownReason, LinkId};
use crate::verbs::addr::VerbsAddr;
use crate::verbs::handshake::{End, Foreign, Handshake, Say, VERSION};
use crate::verbs::handshakes::Reply;
use crate::verbs::proof::{self, Proof};
use crate::{RailEvent, RailVersions};
use marline_auth::Challenge;
use std::time::Instant;

impl VerbsLinks {
    /// Answers a peer's `Ask` with our end.
    pub(super) fn accept(&mut self, link: LinkId, end: End) {
        if self.join(link, end) {
            self.set(link, State::Answering, Say::Answer);
        }
    }

    /// Handles a handshake message: of an end without proof of the key none acts.
    #[cold]
    pub(in crate::verbs) fn heard(&mut self, handshake: &Handshake, tag: u64) {
        if handshake.kind != self.kind || self.shared.connections.is_none() {
            return;
        }
        let (from, theirs) = (handshake.from, handshake.challenge);
        let keys = self.shared.keys.as_deref();
        let ours = self.table.find(&from).and_then(|link| self.table.get(link));
        let ours = ours.map(|row| &row.ours);
        let here = (&self.shared.address(), ours);
        match proof::check(keys, here, (handshake, tag)) {
            Ok(Proof::Fresh) => {}
            Ok(Proof::Unfresh) => return self.reply_to(from, Reply::Challenge(theirs)),
            Ok(Proof::OfAnother) => return,
            Err(why) => return self.events.push_back(RailEvent::Forged(from.ip(), why)),
        }
        self.learn(&from, theirs);
        match handshake.say {
            Say::Ask => self.asked(handshake),
            Say::Eviction => self.asked_to_evict(handshake),
            Say::Answer | Say::Ready | Say::Over | Say::Closed => self.answered(handshake),
            Say::Challenge => self.challenged(&from),
        }
    }

    /// Records the challenge of a peer that has proven the key with it.
    fn learn(&mut self, from: &VerbsAddr, theirs: Challenge) {
        let link = self.table.find(from);
        let row = link.and_then(|link| self.table.get_mut(link));
        if let Some(row) = row.filter(|_| self.shared.keys.is_some()) {
            row.theirs = Some(theirs);
        }
    }

    /// Asks again, with the challenge that the peer has told.
    fn challenged(&mut self, from: &VerbsAddr) {
        let Some(link) = self.table.find(from) else {
            return;
        };
        if let Some(row) = self.table.get(link) {
            if row.state == State::Asking {
                self.handshakes.say(Say::Ask, &row.saying(from));
            }
        }
    }

    /// The link to a rail that sent a message, made if there is room for strangers.
    fn of_sender(&mut self, from: VerbsAddr) -> Option<LinkId> {
        let strangers = self.table.iter().filter(|(_, _, row)| !row.wanted).count();
        match self.table.find(&from) {
            Some(link) => Some(link),
            None if strangers >= CONNECTIONS_MAX && !self.forget_stranger() => None,
            None => Some(self.begin(from)),
        }
    }

    /// Sends a reply, as soon as there is a handle.
    fn reply_to(&mut self, from: VerbsAddr, reply: Reply) {
        let Some(link) = self.of_sender(from) else {
            return;
        };
        match self.table.get_mut(link) {
            Some(row) if row.handle.is_none() => row.reply = Some(reply),
            _ => self.reply(link, &reply),
        }
    }

    pub(super) fn reply(&mut self, link: LinkId, reply: &Reply) {
        let (Some(to), Some(row)) = (self.table.key(link), self.table.get(link)) else {
            return;
        };
        let saying = row.saying(&to);
        match reply {
            Reply::Challenge(theirs) => self.handshakes.challenge(&saying, theirs),
            Reply::Refusal(theirs) => self.handshakes.refuse(&saying, theirs),
        }
    }

    /// Handles a message of another version: tells the sender this end's version, unless it was a
    /// refusal, and ends the link. Nothing acts that does not prove the key in the way of all
    /// versions.
    #[cold]
    pub(in crate::verbs) fn heard_foreign(&mut self, foreign: &Foreign) {
        if foreign.kind != self.kind || self.shared.connections.is_none() {
            return;
        }
        let from = foreign.from;
        let found = self.table.find(&from);
        let row = found.and_then(|link| self.table.get(link));
        let here = (&self.shared.address(), row.map(|row| &row.ours));
        let joined = row.is_some_and(|row| row.handle.is_some());
        let proof = match proof::check_foreign(self.shared.keys.as_deref(), here, foreign) {
            Ok(proof) => proof,
            Err(why) => return self.events.push_back(RailEvent::Forged(from.ip(), why)),
        };
        let (theirs, ours) = (foreign.version, VERSION);
        let event = RailEvent::OtherVersion(from.ip(), RailVersions { theirs, ours });
        self.events.push_back(event);
        if proof != Proof::OfAnother && !foreign.is_refusal {
            self.reply_to(from, Reply::Refusal(foreign.challenge));
        }
        if let Some(link) = found.filter(|_| joined && proof == Proof::Fresh) {
            self.down(link, DownReason::Broken(libc::EPROTONOSUPPORT));
        }
    }

    fn asked(&mut self, handshake: &Handshake) {
        let end = handshake.end;
        let Some(link) = self.of_sender(handshake.from) else {
            return;
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        match (row.peer, row.state) {
            _ if end.name <= row.past => {} // an old message
            (Some(peer), _) if end.name < peer.name => {}
            (_, State::Resolving) => row.peer = Some(end),
            (Some(peer), State::Answering | State::Up | State::Draining) if peer == end => {
                self.say_on(link, &handshake.from, Say::Answer);
            }
            (_, State::Evicted | State::Wanting) => self.dial(link, Some(end)),
            // The peer closed the connection as we requested, and wants another one.
            (Some(_), State::Draining) if row.tries > 0 => self.close_and_accept(link, end),
            (Some(_), _) => {
                // The peer starts over.
                self.down(link, DownReason::Closed);
                let link = self.begin(handshake.from);
                if let Some(row) = self.table.get_mut(link) {
                    row.peer = Some(end);
                }
                self.learn(&handshake.from, handshake.challenge);
            }
            (None, _) => self.accept(link, end),
        }
    }

    fn answered(&mut self, handshake: &Handshake) {
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
            (Say::Answer, State::Up | State::Draining) if same => {
                self.say_on(link, &handshake.from, Say::Ready)
            }
            (Say::Ready, State::Answering) if same => self.up(link),
            (Say::Over, State::Answering | State::Up | State::Draining | State::Evicted)
                if same =>
            {
                self.down(link, DownReason::Closed);
            }
            (Say::Closed, State::Draining) if same => self.close_drained(link),
            _ => {}
        }
    }

    /// Repeats unanswered handshake messages.
    #[inline]
    pub(in crate::verbs) fn tick(&mut self) {
        if !self.draining.is_empty() {
            self.step_draining();
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
        let Some(row) = self.table.get(link) else {
            return;
        };
        let mut saying = row.saying(to);
        // The peer may have made another end, with another challenge.
        if say == Say::Ask && row.tries.is_multiple_of(2) {
            saying.theirs = None;
        }
        self.handshakes.say(say, &saying);
    }
}
