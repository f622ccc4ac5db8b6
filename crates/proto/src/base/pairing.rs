//! Which rails reach which. Only the kinds of rails can tell, for nobody else knows what their
//! addresses say.

use alloc::vec::Vec;
use marline_wire::RailAddr;

/// The knowledge that the kinds of rails have of their addresses. It is asked at first contact,
/// when rails change, and when a rail's own news names an address: never for a packet that brings
/// nothing of that.
pub trait Pairing: Sync {
    /// The pairs of a local rail and a remote one between which a path is worth trying, by their
    /// places in the two lists. A remote rail that is in none of them is not reached.
    fn pairs(&self, locals: &[RailAddr], remotes: &[RailAddr]) -> Vec<(usize, usize)>;

    /// Packets can pass between two rails, if there is a way: they are of one kind.
    fn reaches(&self, local: &RailAddr, remote: &RailAddr) -> bool;

    /// Two rails lie in one network, so that what cuts off one is likely to cut off the
    /// other.
    fn same_network(&self, a: &RailAddr, b: &RailAddr) -> bool;

    /// Two addresses are the same host's.
    fn same_host(&self, a: &RailAddr, b: &RailAddr) -> bool;

    /// Two addresses lead to the same process, as far as addresses tell.
    fn same_end(&self, a: &RailAddr, b: &RailAddr) -> bool;
}
