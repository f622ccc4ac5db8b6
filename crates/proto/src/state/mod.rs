//! State of a node: peers, paths, messages, packets.

pub(crate) mod absences;
pub(crate) mod agenda;
pub(crate) mod conn;
pub(crate) mod credit;
pub(crate) mod damage;
pub(crate) mod directory;
pub(crate) mod given_up;
pub(crate) mod grants;
pub(crate) mod in_turn;
pub(crate) mod latency;
pub(crate) mod link;
pub(crate) mod local;
pub(crate) mod match_index;
pub(crate) mod matching;
pub(crate) mod native;
pub(crate) mod offer;
pub(crate) mod operations;
pub(crate) mod path;
pub(crate) mod pending;
pub(crate) mod recv_window;
pub(crate) mod resends;
pub(crate) mod sent_packets;
pub(crate) mod session;
pub(crate) mod sides;
pub(crate) mod sizes;
pub(crate) mod transfer;
