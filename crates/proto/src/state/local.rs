//! The local endpoint: its identity and its rails.

use crate::base::config::{Config, RailSpec};
use crate::base::mutation::Mutation;
use crate::base::pairing::Pairing;
use crate::base::stats::NodeStats;
use crate::base::types::Event;
use crate::state::conn::Conn;
use crate::state::path::{LocalRail, Path, Policy};
use crate::state::uptime::Uptime;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::Hasher;
use marline_wire::{Address, Header, Hello, RailAddr, RailList, RailWrites, Versions, RAILS_MAX};

/// The local endpoint.
pub struct Local {
    pub id: u64,
    pub token: u32,
    pub epoch: u32,
    /// Key of the hash that makes the epochs of single peers.
    pub secret: (u64, u64),
    pub rails: Vec<RailSpec>,
    /// How often the addresses of rails changed.
    pub revision: u32,
    pub pairing: &'static dyn Pairing,
    /// Unknown kinds of rails that were already reported.
    pub unknown_kinds: Vec<u8>,
    /// Which rails are up, and since when.
    pub uptimes: [Uptime; RAILS_MAX],
    /// Some rail supports remote writes.
    pub writes: bool,
    /// Rails without room, bit n for rail n.
    pub full: u32,
    /// The endpoint is closing and sends BYE.
    pub closing: bool,
}

impl Local {
    /// An endpoint with its identity and at most [`RAILS_MAX`] rails.
    pub fn new(
        (id, token, epoch): (u64, u32, u32),
        mut rails: Vec<RailSpec>,
        pairing: &'static dyn Pairing,
    ) -> Local {
        rails.truncate(RAILS_MAX);
        Local {
            id,
            token,
            epoch,
            secret: (id.rotate_left(32) ^ u64::from(epoch), token.into()),
            writes: rails.iter().any(|r| r.addr.writes() && !r.standby),
            rails,
            revision: 0,
            pairing,
            unknown_kinds: Vec::new(),
            uptimes: [Uptime::default(); RAILS_MAX],
            full: 0,
            closing: false,
        }
    }

    /// Epoch of this endpoint for the peer with this id. Each peer gets a different one, so that a
    /// process which exchanged HELLOs under its own id cannot send packets in the name of another
    /// peer.
    #[allow(deprecated)] // The keyed hash of `core` is SipHash 2-4, which serves; std has no other.
    pub fn epoch_for(&self, peer: u64) -> u32 {
        let mut hash = core::hash::SipHasher::new_with_keys(self.secret.0, self.secret.1);
        hash.write_u64(peer);
        hash.write_u32(self.epoch);
        hash.finish() as u32
    }

    /// True if a rail waits for its interface.
    pub fn awaits(&self) -> bool {
        self.rails.iter().any(|r| !r.addr.is_some())
    }

    /// Bytes that may be granted at once: the size of the largest receive buffer.
    pub fn receive_budget(&self) -> u64 {
        let rails = self.rails.iter().filter(|r| !r.standby);
        rails.map(|r| r.receive_budget).max().unwrap_or(64_000)
    }

    /// Addresses of the rails, by index.
    pub fn addrs(&self) -> Vec<RailAddr> {
        self.rails.iter().map(|r| r.addr).collect()
    }

    /// Addresses that peers are told: without standby rails, and without rails that wait for their
    /// interface.
    pub fn named_addrs(&self) -> Vec<RailAddr> {
        let named = self.rails.iter();
        let named = named.filter(|r| !r.standby && r.addr.is_some());
        named.map(|r| r.addr).collect()
    }

    /// Returns whether messages are read on a path, which both rails must support.
    pub(crate) fn reads_on(&self, cfg: &Config, path: &Path) -> bool {
        let rail = &self.rails[path.local as usize];
        let both = path.to.writes() && rail.addr.writes() && rail.ordered_writes;
        cfg.read_rails >> path.local & 1 == 1 && both && path.usable() && path.link.up
    }

    /// Returns whether a sum of this algorithm (0: none) suffices to trust a write on this rail.
    pub(crate) fn trusts_writes(&self, cfg: &Config, rail: u8, algorithm: u8) -> bool {
        let rail = &self.rails[rail as usize];
        let placed = rail.addr.writes == RailWrites::Keyed;
        let seen = match placed || cfg.errs(Mutation::BlindSums) {
            true => algorithm != 0,
            false => cfg.seeing_order.contains(&algorithm),
        };
        seen || rail.ordered_writes
    }

    /// HELLO for a peer, with as many rails as fit into `rails`.
    /// `of_destination`: the peer's versions as its address has them.
    pub(crate) fn hello<'a>(
        &self,
        cfg: &Config,
        conn: &Conn,
        of_destination: Option<Versions>,
        (rails, fields): (&'a mut [u8], &'a mut [u8; 8]),
    ) -> Hello<'a> {
        Hello {
            slot: conn.peer.0,
            id: self.id,
            token: self.token,
            epoch: conn.session.own_epoch,
            algorithm: cfg.algorithm,
            algorithms: cfg.algorithms_mask(),
            reliable: cfg.reliable,
            eager_puts: true,
            refused: conn.session.refused,
            credit: conn.credit.granted(),
            revision: self.revision,
            versions: cfg.versions,
            of_destination,
            rails: RailList::write(rails, &self.named_addrs()),
            further: cfg.further_fields(fields),
        }
    }

    /// Counts rails of unknown kinds; each kind is reported once.
    pub(crate) fn note_unknown_rails(
        &mut self,
        stats: &mut NodeStats,
        events: &mut VecDeque<Event>,
        rails: &RailList<'_>,
    ) {
        for kind in rails.unknown() {
            stats.unknown_rails += 1;
            if !self.unknown_kinds.contains(&kind) {
                self.unknown_kinds.push(kind);
                events.push_back(Event::UnknownRailKind { kind });
            }
        }
    }

    /// The header of the next packet on path `at`.
    #[inline]
    pub(crate) fn header(
        &self,
        cfg: &Config,
        address: &Address,
        (conn, at): (&Conn, usize),
        flags: u8,
    ) -> Header {
        let path = &conn.paths[at];
        Header {
            version: conn.session.version,
            algorithm: conn.algorithm_on(cfg, at),
            dst_id: address.id,
            dst_token: address.token,
            dst_slot: conn.session.remote_slot,
            src_id: self.id,
            src_epoch: conn.session.own_epoch,
            path: path.send_code(),
            flags: flags | cfg.tag_flag(),
            number: match cfg.errs(Mutation::ReuseNumber) {
                true => path.ring.next_number().saturating_sub(1),
                false => path.ring.next_number(),
            },
        }
    }

    /// A rail as a parameter of new paths.
    pub fn rail(&self, at: usize, cfg: &Config) -> LocalRail {
        let spec = &self.rails[at];
        let native = cfg.reliable && cfg.native_rails >> at & 1 == 1;
        let short = |rail: &RailSpec| rail.bulk_rail == Some(at as u8);
        LocalRail {
            datagram_max: spec.datagram_max,
            policy: Policy {
                bulk_of: self.rails.iter().position(short).map(|rail| rail as u8),
                ..Policy::new(cfg.policy.tier(spec), spec.delivery, native)
            },
        }
    }
}
