//! Reliable broadcast to a group by multicast: one member's state.
//!
//! All members of a group call broadcasts in one order, so every member knows each broadcast's
//! number. The root cuts a broadcast into chunks and multicasts each once. Chunks have their own
//! numbers, one sequence per root; losses and acknowledgements refer to these. Members acknowledge
//! to a *collector*: the root, or one of its *co-roots*, which retransmits losses in its part of
//! the group and tells the root the progress of the part (Liu, Mamidala, Panda: broadcast by
//! InfiniBand multicast, co-root design). Receivers detect losses and send NACKs after a random
//! delay, which keeps a large group from sending them all at once (RFC 5740, sections 5.3 and 5.5).
//!
//! Like the rest of the protocol, a group has no clock, socket or payload: packets and time come
//! in; packets, placements and events go out. It tolerates the loss of any packet that it sends.
//!
//! Received packets are processed in batches ([`Group::take_batch`]): each is admitted, its frames
//! are handled, and its chunk is placed, copied and committed. After a batch, and after any other
//! call, poll packets and events until there are none, packets first: an operation may end with the
//! packet that is the last to read its memory. A group does not detect dead members:
//! [`Group::awaited`] lists the members whose death matters, and [`Group::on_dead`] handles it.
//!
//! A *frame* is a control message of a group's packet (ACK, NACK, TAIL, PROBE).
//!
//! `state` has the fields, `api` the public calls, `take` the handling of packets, `run` that of
//! consecutive chunks. `recv` is the receiving side (places of chunks), `receiver` its
//! acknowledgements and requests. `send` is the root's side (chunks, windows, copies), `collector`
//! a collector's retransmissions to its part; `death` removes members. `pieces` cuts chunks for
//! paths whose MTU shrank, and counts received pieces. `parts` assigns members to collectors,
//! `acked` has their progress, `backlog` the delay of timers for received packets, `order` the
//! begun broadcasts and the end of the group, `reachability` the evidence that multicast arrives,
//! `replay` the numbers of packets with a tag, `networks` the rails that carry it, `pace` the
//! spacing of chunks, `delay` the random delays, `round_robin` the turns of a process's groups.

mod acked;
mod api;
mod backlog;
mod chunk_receive;
mod collector;
mod collectors;
mod config;
mod death;
mod delay;
mod incoming;
mod mutation;
mod networks;
mod order;
mod outgoing;
mod owner;
mod pace;
mod packet_receive;
mod pieces;
mod reachability;
mod receiver_acks;
mod replay;
mod retransmissions;
mod round_robin;
mod run;
mod send;
mod state;
mod types;

pub use backlog::Backlog;
pub use config::{GroupConfig, Identity, Scheme};
pub use marline_wire::{AckFlags, Asked, Gaps, ASKED_MAX, PARITY_MAX};
pub use mutation::GroupMutation;
pub use networks::NETWORKS_MAX;
pub use order::AHEAD;
pub use owner::GroupOwner;
pub use packet_receive::Tally;
pub use receiver_acks::PIGGYBACK_LEN;
pub use round_robin::RoundRobin;
pub use state::Group;
pub use types::{
    Chunk, Content, End, Frame, GroupEvent, GroupHeld, GroupStats, Heard, Load, Packet, Place,
    Rebuild, To,
};

#[cfg(test)]
mod tests;
