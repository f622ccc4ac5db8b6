//! The setting for checksums that differ between rails.

use marline_checksum::Algorithm;
use marline_wire::RAILS_MAX;

/// Checksum algorithms per rail: pairs of interface (or address, as in `rails`) and algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RailChecksums(pub Vec<(String, Algorithm)>);

impl RailChecksums {
    /// Algorithm numbers by rail index; `None`: the algorithm agreed with the peer.
    pub fn by_rail(&self, rails: &[String]) -> [Option<u8>; RAILS_MAX] {
        let mut out = [None; RAILS_MAX];
        for (slot, rail) in out.iter_mut().zip(rails) {
            let row = self.0.iter().find(|(name, _)| name == rail);
            *slot = row.map(|&(_, algorithm)| algorithm as u8);
        }
        out
    }

    /// Names that match no rail.
    pub fn unknown<'a>(&'a self, rails: &'a [String]) -> impl Iterator<Item = &'a str> {
        let names = self.0.iter().map(|(name, _)| name);
        names.filter(|n| !rails.contains(n)).map(String::as_str)
    }
}
