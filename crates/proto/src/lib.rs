//! The protocol of Marline: pure state machines, sans-IO.
//!
//! [`Node`] is one endpoint. It takes facts (`handle_*`, `on_*`, always with `now_ns`), gives
//! packets to send (`poll_transmit`), events (`poll_event`) and its next deadline. It reads no
//! clock, opens no socket and never looks into payload: it speaks of spans (transfer, offset,
//! length) and passes received payload slices on to a [`Memory`], which copies and sums them.
//!
//! Called by `marline-engine` and, through it, by the simulator. Imports only `marline-wire`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod acks;
mod agree;
mod ahead;
mod alive;
mod bulk;
mod bulk_in;
mod bye;
mod config;
mod conn;
mod contact;
mod depart;
mod flow;
mod foresee;
mod fragment;
mod granules;
mod greet;
pub mod group;
mod hedge;
mod kept;
mod landed;
mod late;
mod mark;
mod match_index;
mod matching;
mod mutation;
mod news;
mod node;
mod ops;
mod own;
mod path;
mod patience;
mod pipeline;
mod puts;
mod reads;
mod receive;
mod recv_window;
mod resend;
mod send_ring;
mod sent;
mod sizes;
mod slab;
mod stats;
mod taint;
mod tidy;
mod timers;
mod transmit;
mod types;
mod written;

pub use ahead::AheadSpan;
pub use bulk::Run;
pub use config::{Config, RailPolicy, RailSpec, FRAGMENT_MAX};
pub use conn::{FIRST_CREDIT, MESSAGE_OVERHEAD};
pub use granules::{Covered, GranuleSet};
pub use kept::Kept;
pub use mark::{Fate, Mark};
pub use mutation::Mutation;
pub use node::{Held, Node};
pub use ops::Peeked;
pub use path::PathState;
pub use pipeline::{Chunk, Chunks, Pipeline};
pub use recv_window::RecvWindow;
pub use sent::UNKEPT_MAX;
pub use stats::{NodeStats, PathStats, PeerStats, SIZE_CLASSES};
pub use types::{
    sum_seed, Batch, Claim, DropReason, Event, Landing, Lies, Memory, Payload, PeerId, RecvSpec,
    SendSpec, Source, Span, Spans, Transmit, WrittenSum,
};
pub use written::{WriteOut, DIRECT_PACKET_MAX};
