//! Answers of the rails about their addresses, as the protocol asks for it.

use marline_proto::Pairing;
use marline_rails::{pairing, show_addr};
use marline_wire::{Address, RailAddr, RailKind};

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

/// The rail of an endpoint's address that most others reach, for people: whether the address came
/// with a blob or with HELLO, which names rails in another order, it is the same.
pub(crate) fn show_address(address: &Address) -> String {
    let reach = |rail: &RailAddr| RailKind::BY_REACH.iter().position(|k| *k == rail.kind);
    let first = address.rails().iter().min_by_key(reach);
    first.map_or_else(|| "no rail".to_owned(), |rail| show_addr(&rail))
}

/// Rails with their kinds, for people.
pub(crate) fn list_rails(rails: &[RailAddr]) -> String {
    let rail = |rail: &RailAddr| match rail.kind.name() {
        "" => show_addr(rail),
        kind => format!("{kind} {}", show_addr(rail)),
    };
    match rails {
        [] => "none".to_owned(),
        _ => rails.iter().map(rail).collect::<Vec<_>>().join(", "),
    }
}
