//! Answers the protocol's questions about rail addresses.

use marline_proto::Pairing;
use marline_rails::{pairing, show_addr};
use marline_wire::{Address, RailAddr, RailKind};

/// Pairs rails by the rules of their kinds in `marline-rails`.
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

    fn host_hash(&self, addr: &RailAddr) -> u64 {
        pairing::host_hash(addr)
    }

    fn same_end(&self, a: &RailAddr, b: &RailAddr) -> bool {
        pairing::same_end(a, b)
    }
}

/// Text for the most widely reachable rail of an address. The result is the same for addresses from
/// a blob and from HELLO, which list rails in different orders.
pub(crate) fn show_address(address: &Address) -> String {
    let reach = |rail: &RailAddr| RailKind::BY_REACH.iter().position(|k| *k == rail.kind);
    let first = address.rails().iter().min_by_key(reach);
    first.map_or_else(|| "no rail".to_owned(), |rail| show_addr(&rail))
}

/// Text for rails with their kinds.
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
