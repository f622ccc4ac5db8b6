//! Passes time, polls and rail events on to the nodes.

use crate::api::LogLevel;
use crate::core::Core;
use crate::platform::system::System;
use crate::stats::raise;
use marline_codes::Code;
use marline_rails::{InterfaceChoice, LinkId, RailEvent, RailFault, RailTx, SendOutcome};

impl<S: System> Core<S> {
    /// Does all work that time or rail events require; call it after an empty poll, and at least
    /// every few polls.
    pub fn tick(&mut self, now: u64) {
        for index in 0..self.dir.eps.len() {
            if let Some(endpoint) = self.dir.eps[index].as_mut() {
                if endpoint.node.next_deadline().is_some_and(|at| at <= now) {
                    endpoint.node.handle_timeouts(now);
                }
            }
        }
        self.tick_groups(now);
        self.end_sums(now);
        for rail in 0..self.rails.len() {
            while let Some(event) = self.rails[rail].tx.poll_event() {
                self.on_rail_event(now, rail, event);
            }
            self.watch_direct(rail);
            self.watch_room(now, rail);
            if self.watch_writes(now, rail) {
                let outcome = SendOutcome::Fault(RailFault::Down(0));
                self.after_send(now, rail, LinkId::NONE, outcome);
            }
            if self.rails[rail].retry_at.is_some_and(|at| at <= now) {
                self.rails[rail].retry_at = None;
                self.set_rail(now, rail, true);
            }
        }
        self.settle();
    }

    /// Does the work of a poll of the application: time, rail events, and packets that wait.
    /// `empty`: no packets were received; `all`: all sockets were polled.
    pub(crate) fn after_poll(&mut self, now: u64, empty: bool, all: bool) {
        self.counters.process.polls += 1;
        self.buffers.copied = 0;
        if self.poisoned {
            return; // a panic left the state inconsistent
        }
        if empty && all {
            self.caught_up();
        }
        if empty || all {
            self.tick(now);
            self.log_borrowed(now);
        } else {
            self.settle();
        }
        if self.has_output() {
            self.flush(now);
        }
    }

    /// Notifies the nodes of a poll (see `Node::on_poll`).
    #[inline]
    pub fn on_poll(&mut self, now: u64, by_thread: bool) {
        for node in self.dir.nodes() {
            node.on_poll(now, by_thread);
        }
        if by_thread {
            return;
        }
        if self.polled_ns != 0 {
            raise(
                &mut self.counters.process.poll_gap_max_ns,
                now.saturating_sub(self.polled_ns),
            );
        }
        self.polled_ns = now;
        self.coalescer.polled(now);
    }

    /// Notifies the nodes that all received packets were read.
    #[inline]
    pub fn caught_up(&mut self) {
        self.groups.backlog.caught_up();
        for node in self.dir.nodes() {
            node.caught_up();
        }
    }

    fn on_rail_event(&mut self, now: u64, rail: usize, event: RailEvent) {
        match event {
            RailEvent::Fault(fault) => self.on_rail_fault(now, rail, fault),
            RailEvent::LinkUp(link) => self.on_link_up(now, rail, link),
            RailEvent::LinkDown(link, why) => self.on_link_down(now, rail, link, why),
            RailEvent::Refused(link) => {
                self.rails[rail].counters.icmp_errors += 1;
                for node in self.dir.nodes() {
                    node.on_refused(now, rail, link.0);
                }
            }
            RailEvent::Forged(from, why) => self.note_forged(now, rail, from, why),
            RailEvent::OtherVersion(from, versions) => {
                self.note_rail_version(now, rail, from, versions);
            }
            RailEvent::Barred(by) => self.note_barred(rail, by),
            RailEvent::TooBig(link, max) => {
                for node in self.dir.nodes() {
                    node.on_too_big(now, rail, link.0, max);
                }
            }
            RailEvent::Segments(link, segments) => {
                for node in self.dir.nodes() {
                    node.on_segments(now, rail, link.0, segments);
                }
            }
            RailEvent::Done(token) => self.on_written(rail, token),
            RailEvent::Pulled(token, came) => self.on_pulled(now, rail, (token, came)),
            RailEvent::Async(what) => {
                self.rails[rail].counters.async_events += 1;
                let text = format!("rail {}: the adapter says {what}", self.rails[rail].name);
                self.say(LogLevel::Info, &text);
            }
            RailEvent::QKeyViolations(more) => self.note_qkey_violations(now, rail, more),
            RailEvent::FailedCompletion => self.rails[rail].counters.failed_completions += 1,
            RailEvent::Registered => self.rails[rail].counters.registered += 1,
            RailEvent::Unregistered(errno) => self.unregistered(rail, errno),
            RailEvent::Evicted => self.rails[rail].counters.evicted += 1,
            RailEvent::Reconnected => self.rails[rail].counters.reconnected += 1,
            RailEvent::HostReads { read, taken } => {
                self.rails[rail].counters.host_reads += read;
                self.rails[rail].counters.host_takes += taken;
            }
            RailEvent::ReceiverDrops(n) => self.rails[rail].counters.receiver_drops += n,
        }
    }

    /// Handles a rail's failure or recovery, as reported by the system or the rail itself.
    pub(crate) fn on_rail_fault(&mut self, now: u64, rail: usize, fault: RailFault) {
        self.note_rail(rail, fault);
        self.set_rail(now, rail, fault == RailFault::Up);
    }

    /// Moves a rail to another address of its interface after its own address is gone, and notifies
    /// peers. Returns whether the rail could move.
    pub(crate) fn move_rail(&mut self, now: u64, rail: usize, to: &InterfaceChoice) -> bool {
        let Some(state) = self.rails.get_mut(rail) else {
            return false;
        };
        let from = state.tx.local_addr();
        let Some(addr) = state.tx.move_to(to) else {
            let text = format!(
                "rail {} has lost its address and cannot go on at {}: it stays down until there \
                 is another address, or its own again",
                state.name, to.ip
            );
            self.warn(Code::RailMoved, &text);
            return false;
        };
        // A rail that waited for one of several interfaces takes the name of the one that appeared.
        state.rename(&to.name);
        self.note_moved(rail, &from, &addr);
        let specs = self.rail_specs();
        for node in self.dir.nodes() {
            node.on_rail_address(now, rail, specs[rail].addr);
        }
        true
    }

    /// Renames a rail with its interface.
    pub(crate) fn rename_rail(&mut self, rail: usize, name: &str) {
        let Some(state) = self.rails.get_mut(rail) else {
            return;
        };
        let was = state.name.clone();
        state.rename(name);
        state.tx.renamed(name);
        self.note_renamed(rail, &was);
    }

    /// Changes the state of a rail.
    pub fn set_rail(&mut self, now: u64, rail: usize, up: bool) {
        let Some(state) = self.rails.get_mut(rail) else {
            return;
        };
        if state.up != up {
            state.up = up;
            if !up {
                state.down_ns = now;
            }
            let waits = !state.tx.local_addr().is_some();
            state.counters.downs += u64::from(!up && !waits);
            let word = if up { "is back" } else { "is down" };
            let text = format!("rail {} {word}", state.name);
            if !waits {
                self.say(LogLevel::Info, &text);
            }
        }
        self.drop_pending(rail);
        self.rails[rail].notification = None;
        for node in self.dir.nodes() {
            node.on_rail(now, rail, !up);
        }
    }
}
