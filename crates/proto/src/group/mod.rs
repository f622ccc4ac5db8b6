//! Reliable broadcast to a group by multicast: one member's state.
//!
//! All members of a group call broadcasts in one order, so each broadcast has a number that all
//! know without being told. Its root cuts it into chunks and multicasts each once; chunks have
//! numbers of their own, one sequence per root, which is what losses and acknowledgements are told
//! by. Members acknowledge to a *collector*: the root, or one of its *co-roots*, which repairs
//! losses in its part of the group and tells the root how far all of the part are (Liu, Mamidala,
//! Panda: broadcast by InfiniBand multicast, co-root design). Losses are found by the receivers,
//! which ask with a delay that keeps a large group from asking at once (RFC 5740, sections 5.3 and
//! 5.5).
//!
//! Like the rest of the protocol it has no clock, no socket and no payload: packets and time come
//! in, packets, placements and events go out. Nothing that it sends needs to arrive.
//!
//! Packets that come are taken in batches ([`Group::take_batch`]): each is admitted, its words are
//! handled, and its chunk is placed, copied and committed.
//! After a batch, and after any other call, packets and events are polled until there
//! are none, packets first: an operation may end with the packet that reads its memory last.
//! A dead member is not found out here; [`Group::awaited`] tells whose death would matter, and
//! [`Group::on_dead`] takes it.
//!
//! `state` has the fields, `api` the door, `take` what happens to packets, `run` to chunks that
//! follow one another. `recv` is the receiving side: chunks to their places; `ask` is what it
//! says, acknowledgements and requests. `send` is the root's side: chunks, windows, copies;
//! `repair` is what a collector does for its part; `death` takes members out. `pieces` cuts chunks
//! for paths whose MTU shrank, and counts what came of them. `parts` says who
//! collects for whom, `acked` how far they are, `backlog` when timers wait for packets that came,
//! `order` which broadcasts have begun and where the group is left, `carried` whether multicast
//! arrives, `lanes` which rails carry it, `pace` how far apart chunks leave, `delay` draws the
//! delays.

mod acked;
mod api;
mod ask;
mod backlog;
mod carried;
mod config;
mod death;
mod delay;
mod incoming;
mod lanes;
mod mutation;
mod order;
mod outgoing;
mod owner;
mod pace;
mod parts;
mod pieces;
mod recv;
mod repair;
mod run;
mod send;
mod state;
mod take;
mod types;

pub use ask::RIDERS_LEN;
pub use backlog::Backlog;
pub use config::{GroupConfig, Identity, Scheme};
pub use lanes::LANES_MAX;
pub use marline_wire::{AckFlags, Asked, Gaps, ASKED_MAX, PARITY_MAX};
pub use mutation::GroupMutation;
pub use order::AHEAD;
pub use owner::GroupOwner;
pub use state::Group;
pub use take::Tally;
pub use types::{
    Chunk, Content, End, GroupEvent, GroupHeld, GroupStats, Heard, Load, Packet, Place, Rebuild,
    To, Word,
};

#[cfg(test)]
mod tests;
