//! Reliability: acks, losses, retransmissions, timers.

pub(crate) mod ack;
pub(crate) mod deferred_ack;
pub(crate) mod descheduled;
pub(crate) mod loss;
pub(crate) mod native;
pub(crate) mod pto;
pub(crate) mod pto_interval;
pub(crate) mod retransmit;
pub(crate) mod sent_frames;
pub(crate) mod stall;
pub(crate) mod timers;
