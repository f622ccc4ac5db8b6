//! Keys of a job and tags of its packets: which packets a process believes.
//!
//! A job has one key of 32 random bytes. From it follows a key for each direction of each pair of
//! endpoints ([`Direction`], HKDF-SHA-256), and each packet has a tag over its head under the key
//! of its direction ([`HeadKey`], SipHash-2-4). Payload sums may have keys too ([`PayloadKey`]),
//! and payloads may be encrypted ([`CipherKey`]).
//! Connections have keys of their own ([`ConnectionKeys`]). `docs/design/security.md` has the
//! construction, what it promises and what not. All cryptography comes from other crates.
//!
//! The engine calls this crate; nothing here knows the layout of a packet. One `unsafe` call asks
//! for the process's user ([`key_file`]).
#![deny(unsafe_code)]

mod connection;
mod damage;
mod direct;
mod group;
mod head;
mod job;
mod key;
pub mod key_file;

pub use connection::{
    Challenge, ConnectionKeys, FrameKey, MessageKey, PairOfKeys, BODY_MAX, CHALLENGE_LEN,
};
pub use damage::is_damaged;
pub use direct::DirectKey;
pub use group::GroupKey;
pub use head::{Direction, HeadKeys, PacketKeys};
pub use job::{JobKey, Level, JOB_KEY_LEN};
pub use key::{CipherKey, HeadKey, PayloadKey};
