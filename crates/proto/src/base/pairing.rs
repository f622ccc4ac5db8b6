//! Reachability between rails by their addresses, which only the kinds of rails can read.

use alloc::vec::Vec;
use marline_wire::RailAddr;

/// Knowledge of the rail kinds about their addresses. Queried at the handshake, when rails change,
/// and when a rail's report names an address; never per packet.
pub trait Pairing: Sync {
    /// The pairs of a local and a remote rail for which a path is worth trying, as indices into the
    /// two lists. A remote rail in no pair is unreachable.
    fn pairs(&self, locals: &[RailAddr], remotes: &[RailAddr]) -> Vec<(usize, usize)>;

    /// Returns whether packets can pass between two rails if a route exists, that is if both are of
    /// one kind.
    fn reaches(&self, local: &RailAddr, remote: &RailAddr) -> bool;

    /// Returns whether two rails are in one network, so that one failure probably cuts off both.
    fn same_network(&self, a: &RailAddr, b: &RailAddr) -> bool;

    /// Returns whether two addresses belong to the same host.
    fn same_host(&self, a: &RailAddr, b: &RailAddr) -> bool;

    /// Returns a number that is equal for all addresses of one host.
    fn host_hash(&self, addr: &RailAddr) -> u64;

    /// Returns whether two addresses lead to the same process, as far as addresses show that.
    fn same_end(&self, a: &RailAddr, b: &RailAddr) -> bool;
}
