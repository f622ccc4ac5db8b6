//! The network interfaces of this machine: which of them carry rails (`choose`, and `pattern` for
//! their names), when they go and come back (`watch`), how neighbours learn of that (`told`), and
//! the cards that they are of (`card`).

mod card;
mod choose;
mod pattern;
mod told;
mod watch;

pub use card::{card_of, Card};
pub(crate) use choose::{choose_by, is_later, IpVersion};
pub use choose::{choose_interfaces, unused_interfaces, InterfaceChoice};
pub use told::Silence;
pub(crate) use told::SilentPeers;
pub use watch::{InterfaceChange, InterfaceWatch};
