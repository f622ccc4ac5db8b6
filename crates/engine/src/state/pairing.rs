//! Answers of the rails about their addresses, as the protocol asks for it.

use marline_proto::Pairing;
use marline_rails::{pairing, show_addr};
use marline_wire::{Address, RailAddr};

/// Pairs of rails as their kinds in `marline-rails` find them.
pub struct ByKind;

impl Pairing for ByKind {
    fn pairs(&self, locals: &[RailAddr], remotes: &[RailAddr]) -> Vec<(usize, usize)> {
        pairing::pairs(locals, remotes)
    }

    fn reaches(&self, local: &RailAddr, remote: &RailAddr) -> bool {
        pairing::reaches(local, remote)
    }

    fn same_network(&self, a: &RailAddr, b: &RailAddr) -> bool {
        pairing::same_network(a, b)
    }

    fn same_host(&self, a: &RailAddr, b: &RailAddr) -> bool {
        pairing::same_host(a, b)
    }

    fn same_end(&self, a: &RailAddr, b: &RailAddr) -> bool {
        pairing::same_end(a, b)
    }
}

/// The first rail of an endpoint's address, for people.
pub(crate) fn show_address(address: &Address) -> String {
    let first = address.rails().iter().next();
    first.map_or_else(|| "no rail".to_owned(), |rail| show_addr(&rail))
}
