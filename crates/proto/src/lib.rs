//! The protocol of Marline: pure state machines, sans-IO.
//!
//! [`Node`] is one endpoint. It takes facts (`handle_*`, `on_*`, always with `now_ns`), and gives
//! packets to send (`poll_transmit`), events (`poll_event`) and its next deadline. It reads no
//! clock, opens no socket and never reads payload: it names spans (transfer, offset, length) and
//! passes received payload slices on to a [`Memory`], which copies and sums them.
//!
//! Called by `marline-engine` and, through it, by the simulator. Imports only `marline-wire`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod base;
pub mod group;
mod incoming;
mod message;
mod node;
mod outgoing;
mod path;
mod peer;
mod recovery;
mod rma;
mod rx;
mod state;
mod testing;
mod tx;

pub use base::blocks::{BlockSet, Covered};
pub use base::config::{
    Config, Delivery, RailPolicy, RailSpec, FIRST_CREDIT, FRAGMENT_MAX, MESSAGE_OVERHEAD, PATHS_MAX,
};
pub use base::evidence::Evidence;
pub use base::mutation::Mutation;
pub use base::pairing::Pairing;
pub use base::pipeline::{Chunk, Chunks, Pipeline};
pub use base::side_work::{AdvertisementOut, WriteOut};
pub use base::stats::{NodeStats, PathStats, PeerStats, SIZE_CLASSES};
pub use base::types::{
    sum_seed, Batch, Claim, Dest, DropReason, Event, Landing, Memory, PathReason, PathState,
    Payload, PeerId, PutEnd, RecvSpec, SendSpec, Source, Span, Spans, Transmit, WriteCheck,
    WrittenSum,
};
pub use base::waits::{Waits, WAIT_CLASSES};
pub use incoming::matched::Peeked;
pub use message::rpc::RPC_MAX;
pub use node::{Held, Node};
pub use path::link::{LinkAsk, LinkEnd};
pub use peer::waiting::Silence;
pub use state::recv_window::RecvWindow;
pub use state::write_span::DIRECT_PACKET_MAX;
pub use testing::kept::Retained;
pub use tx::bulk::Run;
