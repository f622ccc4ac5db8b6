//! Versions of the protocol without a common one: addresses that name such, and packets of others.

use crate::api::{AvId, SubmitError};
use crate::core::Core;
use crate::platform::system::System;
use crate::state::pairing::list_rails;
use crate::stats::events::differing_versions;
use marline_codes::Code;
use marline_rails::RailVersions;
use marline_wire::{Address, Header, RailAddr};
use std::net::IpAddr;

impl<S: System> Core<S> {
    /// Refuses the address of an endpoint without a common version, and tells the endpoint.
    pub(crate) fn check_versions(
        &mut self,
        av: AvId,
        address: &Address,
    ) -> Result<(), SubmitError> {
        let (ours, theirs) = (self.cfg.proto.versions, address.versions());
        if ours.agreed(theirs).is_some() {
            return Ok(());
        }
        for endpoint in self.dir.eps.iter_mut().flatten() {
            if endpoint.av == Some(av) && endpoint.enabled {
                let peer = endpoint.node.peer(address);
                endpoint.node.meet(peer);
            }
        }
        let rails: Vec<RailAddr> = address.rails().iter().collect();
        let text = format!(
            "endpoint {:016x} at {} is refused: {}",
            address.id,
            list_rails(&rails),
            differing_versions((ours, "here"), theirs)
        );
        self.warn(Code::VersionsDiffer, &text);
        Err(SubmitError::BadAddress)
    }

    /// Counts an undamaged packet of another version, and reports packets to an endpoint of this
    /// process, at most once a second.
    #[cold]
    pub(crate) fn note_version(&mut self, now: u64, rail: usize, datagram: &[u8]) {
        let row = &mut self.rails[rail];
        row.counters.wrong_version += 1;
        let Some(header) = Header::claimed(datagram) else {
            return;
        };
        let is_to_us = self.dir.by_id.iter().any(|(id, _)| *id == header.dst_id);
        if is_to_us && self.admission.may_say(now) {
            let row = &self.rails[rail];
            let text = format!(
                "packets of version {} of the protocol arrive on {}: they are dropped, as this \
                 process speaks version {} (counter wrong_version: {})",
                header.version, row.name, self.cfg.proto.versions, row.counters.wrong_version
            );
            self.warn(Code::VersionsDiffer, &text);
        }
    }

    /// Counts a connection that ended for its version and reports it, at most once a second.
    #[cold]
    pub(crate) fn note_rail_version(
        &mut self,
        now: u64,
        rail: usize,
        from: Option<IpAddr>,
        RailVersions { theirs, ours }: RailVersions,
    ) {
        let row = &mut self.rails[rail];
        row.counters.wrong_version += 1;
        if !self.admission.may_say(now) {
            return;
        }
        let (name, all) = (&row.name, row.counters.wrong_version);
        let from = from.map_or("another process".to_owned(), |ip| ip.to_string());
        let text = format!(
            "a connection with {from} on {name} is refused: version {theirs} of this rail's \
             connections is spoken there, version {ours} here: both need the same library \
             (marline --version; counter wrong_version: {all})"
        );
        self.warn(Code::VersionsDiffer, &text);
    }
}
