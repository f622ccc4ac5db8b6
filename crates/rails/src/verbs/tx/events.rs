//! Handling of asynchronous device events.

use super::{Notification, VerbsTx};
use crate::sys::verbs::VerbsEvent;
use crate::verbs::port::Itself;
use crate::{RailEvent, RailFault};
use std::sync::atomic::Ordering::Relaxed;

impl VerbsTx {
    #[cold]
    pub(super) fn on_event(&mut self, event: VerbsEvent, name: &'static str) {
        self.links.events.push_back(RailEvent::Async(name));
        let ours = self.shared.port.number;
        match event {
            VerbsEvent::Fatal => {
                self.dead = true;
                self.down(libc::EIO);
            }
            VerbsEvent::PortDown(port) if port == ours => self.down(libc::ENETDOWN),
            VerbsEvent::PortUp(port) | VerbsEvent::PortChanged(port) if port == ours => {
                self.look_at_port();
            }
            VerbsEvent::PairBroken(number) if self.links.is_of_datagrams(number) => {
                self.on_notification(Notification::Failed(self.shared.life.load(Relaxed)));
            }
            VerbsEvent::PairBroken(number) => {
                self.links.pair_broken(number);
                self.free();
            }
            VerbsEvent::PortDown(_)
            | VerbsEvent::PortUp(_)
            | VerbsEvent::PortChanged(_)
            | VerbsEvent::Other => {}
        }
    }

    /// Re-reads the port's state and identity.
    fn look_at_port(&mut self) {
        let port = &self.shared.port;
        let now = port.device.port(port.number);
        let active = now.is_ok_and(|attr| attr.active());
        match port.look() {
            Itself::Gone => {
                self.down(libc::EADDRNOTAVAIL);
                return self.end_links();
            }
            Itself::Moved => {
                self.end_links();
                self.renew_groups();
            }
            Itself::AsBefore => {}
        }
        if active && !self.dead && !self.up {
            self.up = true;
            self.links.events.push_back(RailEvent::Fault(RailFault::Up));
        }
    }

    /// Ends all links: their address handles refer to the GID's old table entry, do not work any
    /// more, and keep the kernel from freeing the entry.
    fn end_links(&mut self) {
        self.links.end_all(libc::EADDRNOTAVAIL);
        self.free();
    }
}
