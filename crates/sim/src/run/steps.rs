//! The event loop, and the effects of faults on rails and hosts.

use crate::machine::out::News;
use crate::network::net::toggle;
use crate::setup::choices::Trouble;
use crate::world::state::{Due, Next, World};
use marline_rails::{RailEvent, RailFault};
use std::cmp::Reverse;

impl World {
    /// Processes one event; `false` if no event is left.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(Due { at, order, what })) = self.heap.pop() else {
            return false;
        };
        self.now = at;
        self.events += 1;
        match what {
            Next::Arrive(slot) if self.take_answer(slot) => {}
            Next::Arrive(slot) => self.arrive(slot),
            Next::Run(e) => {
                if self.eps[e as usize].run_at == at {
                    self.eps[e as usize].run_at = u64::MAX;
                    self.run(e);
                }
            }
            Next::Release => self.release(),
            Next::Dialled => self.dialled(order),
            Next::Ask(e) => self.ask_again(e, order),
            Next::WriteOver => {
                if let Some((e, rail, token, _)) = self.overs.remove(&order) {
                    self.write_over(e, rail, token);
                }
            }
            Next::Fault(i, starts) => self.fault(i as usize, starts),
            Next::FaultsEnd => {
                self.net.packet_faults = Default::default();
                self.calm = true;
                self.progress_ns = self.now;
                for e in 0..self.eps.len() as u32 {
                    self.wake(e, self.now);
                }
            }
        }
        true
    }

    fn fault(&mut self, i: usize, starts: bool) {
        let fault = self.setup.faults[i];
        self.mix(&[self.now, i as u64, starts as u64]);
        self.trouble(&fault.what, starts);
        if starts {
            *self.troubles.entry(fault.what.name()).or_default() += 1;
        }
        let host = match fault.what {
            Trouble::RailDown { host, .. }
            | Trouble::SmallMtu { host, .. }
            | Trouble::Slow { host, .. } => host,
            Trouble::Hung { host, rail } => return self.hang(host, rail, starts),
            Trouble::Compute { host } | Trouble::Stopped { host } => host,
            Trouble::ClockJump { host, .. } | Trouble::Death { host, .. } => host,
            _ => return,
        };
        let Some(e) = self.on_host[host] else { return };
        self.touch(e);
        if matches!(fault.what, Trouble::Stopped { .. }) && starts && self.rng.one_in(2) {
            self.hold(e, fault.to_ns);
        }
        let now = self.now;
        let send_errors = self.setup.send_errors;
        let ep = &mut self.eps[e as usize];
        match fault.what {
            Trouble::RailDown { rail, notified, .. } if notified || self.setup.streams[rail] => {
                let news = match starts {
                    true => RailFault::Down(0),
                    false => RailFault::Up,
                };
                let mut wires = ep.machine.wires();
                wires.ports[rail].broken = starts && send_errors;
                ep.machine
                    .queue_event(&mut wires, rail, News::Rail(RailEvent::Fault(news)));
            }
            Trouble::SmallMtu {
                rail,
                mtu,
                notified: true,
                ..
            } if send_errors => {
                let limits = &mut ep.machine.wires().ports[rail].limits;
                toggle(limits, mtu, starts);
            }
            Trouble::Slow { rail, divisor, .. } => {
                let slow = &mut ep.machine.wires().ports[rail].slow;
                toggle(slow, divisor, starts);
            }
            Trouble::Compute { .. } => {
                ep.computing = (ep.computing + starts as u32).saturating_sub(!starts as u32);
            }
            Trouble::Stopped { .. } => {
                ep.stopped = (ep.stopped + starts as u32).saturating_sub(!starts as u32);
                ep.run_at = u64::MAX;
            }
            Trouble::ClockJump { by_ns, .. } if starts => ep.clock_ns += by_ns,
            Trouble::Death { reborn, .. } if starts => {
                // The last two hosts survive, so that there is something to check.
                let alive = self.eps.iter().filter(|ep| ep.alive).count();
                if alive > 2 || reborn {
                    self.die(e);
                }
            }
            Trouble::Death { reborn: true, .. } if !self.eps[e as usize].alive => {
                self.start(host, true);
            }
            _ => {}
        }
        self.wake(e, now);
    }

    /// A rail's queue hangs or recovers.
    fn hang(&mut self, host: usize, rail: usize, starts: bool) {
        let Some(e) = self.on_host[host] else { return };
        self.touch(e);
        let mut wires = self.eps[e as usize].machine.wires();
        let hung = &mut wires.ports[rail].hung;
        *hung = (*hung + starts as u32).saturating_sub(!starts as u32);
        drop(wires);
        self.wake(e, self.now);
    }

    /// Deschedules the process in the middle of a call, with the engine's lock held and the time
    /// just read; its packets leave when it runs again.
    fn hold(&mut self, e: u32, until: u64) {
        let ep = &mut self.eps[e as usize];
        if ep.runs() && ep.held_until <= self.now && until > self.now {
            ep.held_until = until;
            *self.troubles.entry("held with the lock").or_default() += 1;
            ep.app.next_at = ep.app.next_at.min(self.now);
            self.turn(e);
            self.eps[e as usize].run_at = u64::MAX;
            self.wake(e, until + 1);
        }
    }
}
