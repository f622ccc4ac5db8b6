//! Strangers: peers whose addresses are to be validated, until a challenge comes back.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::state::address_validation::{AddressValidation, VALIDATION_NS};
use crate::state::conn::Conn;
use crate::state::local::Local;
use crate::state::path::Path;
use core::hash::Hasher;
use marline_wire::{RailAddr, HELLO_RAIL_BYTES_MAX};

impl Conn {
    /// True for a stranger: addresses of its rails are to be validated.
    pub(crate) fn is_of_stranger(&self) -> bool {
        self.session.new_address.is_pending()
    }

    /// True for a stranger that has proved no address.
    pub(crate) fn is_unvalidated(&self) -> bool {
        let mut paths = self.paths.iter();
        self.is_of_stranger() && paths.all(|path| path.validation.is_pending())
    }

    /// True for a stranger that has proved no address, and of which no message arrived: it can be
    /// forgotten with its id, and begin anew.
    pub(crate) fn is_traceless(&self) -> bool {
        self.is_unvalidated() && self.rx.next_match == 0 && self.rx.inbound.is_empty()
    }

    /// When to forget a stranger that has not proved any address; `u64::MAX`: never.
    pub(crate) fn forgotten_at(&self, cfg: &Config) -> u64 {
        match self.is_traceless() && !cfg.errs(Mutation::KeepUnvalidated) {
            true => self.life.opened_ns + VALIDATION_NS,
            false => u64::MAX,
        }
    }

    /// Begins the validation of all addresses.
    pub(crate) fn require_validation(&mut self, cfg: &Config, local: &Local) {
        if cfg.errs(Mutation::TrustAddresses) {
            return;
        }
        let mut rails = [0; HELLO_RAIL_BYTES_MAX];
        let room = (&mut rails[..], &mut [0; 8]);
        let hello = local.hello(cfg, self, None, room).frame_len();
        let pending = AddressValidation::pending(hello + cfg.pretended_len());
        self.session.new_address = pending;
        (self.paths.iter_mut()).for_each(|path| path.validation = pending);
    }

    /// Counts bytes that came on path `at` for an address that is to be validated, and returns
    /// whether there is one. Every second packet counts for another address to which nothing may
    /// be sent: paths that carry packets in one direction only would never validate any.
    /// `number`: of the packet.
    pub(crate) fn allow_bytes(&mut self, at: usize, number: u64, bytes: usize) -> bool {
        let own = self.paths[at].validation.is_pending();
        let blocked =
            |path: &&mut Path| path.validation.is_pending() && path.validation.is_blocked();
        let count = self.paths.iter_mut().filter(blocked).count();
        let turn = number as usize / 2 % count.max(1);
        let other = self.paths.iter_mut().filter(blocked).nth(turn);
        match other.filter(|_| !own || !number.is_multiple_of(2)) {
            Some(path) => path.validation.on_received(bytes),
            None => self.paths[at].validation.on_received(bytes),
        }
        own || count > 0
    }

    /// Notes that a stranger has acknowledged HELLO.
    pub(crate) fn on_stranger_hello_acked(&mut self) {
        self.session.new_address.on_hello_acked();
        (self.paths.iter_mut()).for_each(|path| path.validation.on_hello_acked());
    }

    /// Ends the validation of all addresses, as the owner has named the peer.
    pub(crate) fn waive_validation(&mut self) {
        self.session.new_address = AddressValidation::default();
        (self.paths.iter_mut()).for_each(|path| path.validation = AddressValidation::default());
    }

    /// Validates the addresses to which a challenge with this data was sent. Returns whether there
    /// are any.
    pub(crate) fn validate(&mut self, local: &Local, id: u64, data: u64) -> bool {
        let mut any = false;
        for path in &mut self.paths {
            if path.validation.is_pending() && local.challenge(id, &path.to) == data {
                path.validation = AddressValidation::default();
                any = true;
            }
        }
        any
    }
}

impl Local {
    /// Data of the challenge to this address of a peer: a keyed hash, so that a response is known
    /// without state.
    #[allow(deprecated)] // As `Local::epoch_for`.
    pub(crate) fn challenge(&self, peer: u64, to: &RailAddr) -> u64 {
        let mut hash = core::hash::SipHasher::new_with_keys(self.secret.1, self.secret.0);
        hash.write_u64(peer);
        hash.write_u32(self.epoch);
        hash.write_u8(to.index);
        hash.write(to.bytes());
        hash.finish()
    }
}
