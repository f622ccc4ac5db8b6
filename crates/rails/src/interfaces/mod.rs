//! The network interfaces of this host: the choice of those that carry rails (`choose`, with
//! `pattern` for names), their changes (`watch`), announcements to neighbours (`told`), and their
//! NICs (`device`).

mod announce;
mod choose;
mod device;
mod pattern;
mod watch;

pub use announce::Silence;
pub(crate) use announce::SilentPeers;
pub(crate) use choose::{choose_by, is_later, IpVersion};
pub use choose::{choose_interfaces, unused_interfaces, InterfaceChoice};
pub use device::{nic_of, NicInfo};
pub use watch::{InterfaceChange, InterfaceWatch};
