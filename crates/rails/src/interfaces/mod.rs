//! The network interfaces of this host: the choice of those that carry rails (`choose`, with
//! `pattern` for names), their changes (`watch`), announcements to neighbours (`told`), and their
//! network cards (`card`).

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
