//! Endpoints that know peers only by host and port ask for the peers' addresses
//! (docs/design/addresses.md) over all datagram rails, and start their work when they have all
//! answers. Peers may die, restart or move meanwhile, and late answers may reach another question's
//! socket. Checks: an answer contains its sender's own address; the process accepted for a place
//! was there; without faults every question is answered.

use crate::machine::host::index_of;
use crate::machine::out::Out;
use crate::machine::place::{port_of, target_of};
use crate::network::asking::{Asking, PORTS};
use crate::network::forge::hurt;
use crate::setup::choices::Setup;
use crate::setup::key::job_key;
use crate::world::state::{Flying, Next, World};
use marline_checksum::crc32c;
use marline_proto::Mutation;
use marline_rails::{answer_to, pauses};
use marline_wire::{Address, Answer, Question, RailAddr, PLACE_LEN};

/// Poll interval of an application that waits for an answer and has other work.
const LOOK_NS: u64 = 20_000_000;

impl Setup {
    /// Returns whether questions use this rail, which is so for rails without streams or
    /// connections.
    fn asks_by(&self, rail: usize) -> bool {
        !self.connects(rail) && !self.streams[rail]
    }
}

/// Questions.
impl World {
    /// Makes an endpoint ask for one unknown peer; `false` if it knows all.
    pub(crate) fn asks(&mut self, e: u32) -> bool {
        if !self.setup.by_place {
            return false;
        }
        while !self.asks.open.contains_key(&e) {
            let known = &self.eps[e as usize].addrs;
            let mut others = self.on_host.iter().flatten().copied();
            let unknown = others.find(|&o| {
                let other = &self.eps[o as usize];
                o != e && other.alive && !other.closed && !known.contains_key(&o)
            });
            let Some(whom) = unknown else {
                return false;
            };
            self.begin_asking(e, whom);
        }
        self.eps[e as usize].app.next_at = self.now + LOOK_NS;
        true
    }

    fn begin_asking(&mut self, e: u32, whom: u32) {
        let there = &self.eps[whom as usize];
        let port = |rail| (there.sites.port(rail)).filter(|_| self.setup.asks_by(rail));
        let asking = Asking {
            host: there.host,
            whom,
            ports: (0..self.setup.rails).map(port).collect(),
            number: self.asks.rng.next(),
            port: self
                .asks
                .rng
                .range(PORTS.start.into(), PORTS.end as u64 - 1) as u16,
            sent: 0,
            since: self.now,
            calm: self.calm,
            timer: 0,
        };
        if !self.has_way(e, &asking) {
            self.addr(e, whom); // known from another source meanwhile
            return;
        }
        *self.troubles.entry("asked who is there").or_default() += 1;
        self.asks.open.insert(e, asking);
        self.send_question(e);
    }

    /// Returns whether endpoint and peer share a rail on which the question goes.
    fn has_way(&self, e: u32, asking: &Asking) -> bool {
        let sites = &self.eps[e as usize].sites;
        let mut rails = asking.ports.iter().enumerate();
        rails.any(|(rail, port)| port.is_some() && !sites.is_gone(rail))
    }

    fn send_question(&mut self, e: u32) {
        let Some(asking) = self.asks.open.get_mut(&e) else {
            return;
        };
        let pause = pauses().nth(asking.sent).unwrap_or_default();
        asking.sent += 1;
        let asking = asking.clone();
        let ep = &self.eps[e as usize];
        let here = ep.host;
        let ways: Vec<(usize, u16)> = (asking.ports.iter().enumerate())
            .filter(|(rail, _)| ep.stopped == 0 && !ep.sites.is_gone(*rail))
            .filter_map(|(rail, port)| Some((rail, (*port)?)))
            .collect();
        for (rail, port) in ways {
            let number = asking.number;
            let from = self.setup.place(here, rail, asking.port).addr();
            let mut question = Question { number, from }.encode(crc32c);
            if let Some(key) = job_key(&self.setup) {
                let key = key.questions();
                Question::add_tag(&mut question, |bytes| key.tag(bytes), crc32c);
            }
            let to = self.setup.place(asking.host, rail, port).addr();
            self.mix(&[self.now, 8, e as u64, number]);
            self.send_off(self.now, (e, rail), &to, &question);
        }
        let timer = self.push(self.now + pause.as_nanos() as u64, Next::Ask(e));
        if let Some(asking) = self.asks.open.get_mut(&e) {
            asking.timer = timer;
        }
    }

    /// Sends a question or an answer like any packet.
    fn send_off(&mut self, at: u64, (e, rail): (u32, usize), to: &RailAddr, bytes: &[u8]) {
        let (start, target) = ((self.eps[e as usize].host, rail), target_of(to));
        let sizes = (bytes.len(), bytes.len());
        let fate = self.net.send(at, start, target, sizes, (false, false));
        for (at, damage) in fate.copies.into_iter().flatten() {
            let slot = self.new_flight();
            let mut bytes = bytes.to_vec();
            hurt(&mut bytes, (PLACE_LEN, false), damage, &mut self.asks.rng);
            self.flying[slot as usize] = Flying {
                bytes,
                to: target,
                port: port_of(to),
                from: e,
                rail,
                ..Flying::default()
            };
            self.push(at, Next::Arrive(slot));
        }
    }

    /// Repeats an unanswered question, or gives it up.
    pub(crate) fn ask_again(&mut self, e: u32, timer: u64) {
        let Some(asking) = self.asks.open.get(&e).filter(|a| a.timer == timer) else {
            return;
        };
        let ep = &self.eps[e as usize];
        if !ep.alive || ep.closed {
            self.asks.open.remove(&e);
        } else if self.now - asking.since < self.setup.node.peer_timeout_ns {
            self.send_question(e);
        } else if let Some(asking) = self.asks.open.remove(&e) {
            self.give_up(e, &asking);
        }
    }

    fn give_up(&mut self, e: u32, asking: &Asking) {
        *self.troubles.entry("asked in vain").or_default() += 1;
        let there = &self.eps[asking.whom as usize];
        if asking.calm && there.runs() && self.has_way(e, asking) {
            let text = format!("{} is asked who it is, and says nothing", asking.whom);
            self.broken(e, text);
        }
        self.addr(e, asking.whom); // the address comes from another source
        self.go_on(e);
    }

    fn go_on(&mut self, e: u32) {
        self.eps[e as usize].app.next_at = self.now;
        self.wake(e, self.now);
    }
}

/// Answers.
impl World {
    /// True if a leaving packet is an answer, which contains its sender's address.
    pub(crate) fn is_answer(&mut self, e: u32, out: &Out, at: u64) -> bool {
        if !self.setup.by_place {
            return false;
        }
        let Some(answer) = Answer::parse(&out.bytes, crc32c) else {
            return false;
        };
        let ep = &self.eps[e as usize];
        let own = ep.engine.ep_name(ep.ep);
        if own.is_none_or(|(blob, len)| blob[..len] != answer.blob[..len]) {
            self.broken(e, "it tells the address of another".into());
        }
        self.mix(&[self.now, 9, e as u64, answer.number]);
        self.send_off(at, (e, out.rail), &out.to, &out.bytes);
        true
    }

    /// True if an arriving packet is for the socket of a question.
    pub(crate) fn take_answer(&mut self, slot: u32) -> bool {
        let flying = &mut self.flying[slot as usize];
        let (host, port) = (flying.to.0, flying.port);
        if !PORTS.contains(&port) || flying.write.is_some() {
            return false;
        }
        let bytes = std::mem::take(&mut flying.bytes);
        self.end_flight(slot);
        let eps = &self.eps;
        let there = |(e, asking): &(&u32, &Asking)| {
            asking.port == port && eps[**e as usize].host == host && eps[**e as usize].alive
        };
        let Some((&e, asking)) = self.asks.open.iter().find(there) else {
            return true;
        };
        let number = match self.setup.node.errs(Mutation::AnyAnswer) {
            true => Answer::parse(&bytes, crc32c).map_or(0, |answer| answer.number),
            false => asking.number,
        };
        let Some(blob) = answer_to(number, &bytes, crc32c) else {
            *self
                .troubles
                .entry("answer to another question")
                .or_default() += 1;
            return true;
        };
        if let Some(asking) = self.asks.open.remove(&e) {
            self.learn(e, &asking, &blob);
        }
        true
    }

    fn learn(&mut self, e: u32, asking: &Asking, blob: &[u8]) {
        *self.troubles.entry("told who is there").or_default() += 1;
        let answered = Address::decode(blob).map(|address| index_of(address.id));
        let answered = answered.ok().filter(|&answered| {
            let there = self.eps.get(answered as usize);
            there.is_some_and(|there| there.host == asking.host)
        });
        let Some(answered) = answered else {
            return self.broken(e, format!("{} was asked, and another is told", asking.whom));
        };
        if answered != asking.whom {
            *self.troubles.entry("told of another life").or_default() += 1;
        }
        if !self.eps[e as usize].addrs.contains_key(&answered) {
            let found = self.eps[e as usize].insert_addr(answered, blob);
            if let Err(error) = found {
                self.broken(e, format!("address refused: {error:?}"));
            }
        }
        self.go_on(e);
    }
}
