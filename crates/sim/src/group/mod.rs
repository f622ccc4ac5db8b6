//! Groups: clusters of real [`marline_proto::group::Group`]s on a virtual clock and network, with
//! multicast that is lost for single receivers, rails that carry none, and members that come late
//! or die.
//!
//! [`GroupSetup::draw`] turns a seed into processes, groups, broadcasts and faults; [`run_group`]
//! runs it and checks every byte and every ending against the truth. [`group_scale`] measures how
//! the cost of a broadcast grows with the members.

mod hunt;
mod inbox;
mod keyed;
mod member;
mod memory;
mod net;
mod run;
mod scale;
mod setup;
mod truth;
mod world;

pub use hunt::shrink_group;
pub use run::{run_group, time_group};
pub use scale::{group_scale, GroupScaled, BROADCASTS, SCHEMES};
pub use setup::{GroupFault, GroupPacketFaults, GroupSetup, GroupTrouble, Spec, PIECE_PACKET_MAX};
pub use truth::{Silence, Times};
