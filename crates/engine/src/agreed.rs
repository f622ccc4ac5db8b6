//! What is said when the settings of two peers differ.

use crate::api::{EpId, LogLevel};
use crate::core::Core;
use crate::system::System;
use marline_checksum::{Algorithm, Strength};
use marline_proto::PeerId;

impl<S: System> Core<S> {
    /// One side has software reliability, the other has not: nothing can be exchanged.
    pub(crate) fn say_mismatch(&self, ep: EpId, peer: PeerId) {
        let who = self.describe(ep, peer);
        self.say(
            LogLevel::Warn,
            &format!(
                "peer {who} and this process differ in FI_MARLINE_RELIABILITY: set it the same \
                 everywhere"
            ),
        );
    }

    /// A peer has a rail that this version cannot use. Each endpoint tells it once for each kind.
    pub(crate) fn say_unknown_kind(&self, kind: u8) {
        let text = format!(
            "a peer has rails of kind {kind}, which this version of Marline does not know: they are \
             not used"
        );
        self.say(LogLevel::Warn, &text);
    }

    /// The algorithm for payloads to `peer` is agreed, and is not what both sides asked for.
    /// Nothing is said where both wishes are strong: processors differ in their default.
    pub(crate) fn say_agreed(&self, ep: EpId, peer: PeerId, wish: u8, agreed: u8) {
        let strength = |n| Algorithm::from_u8(n).map(Algorithm::strength);
        if [wish, self.cfg.proto.algorithm].map(strength) == [Some(Strength::Strong); 2] {
            return;
        }
        let who = self.describe(ep, peer);
        let name = |n| Algorithm::from_u8(n).map(Algorithm::name);
        let agreed = name(agreed).unwrap_or("?");
        let (level, asks) = match name(wish) {
            Some(wish) => (LogLevel::Info, wish.to_owned()),
            None => (
                LogLevel::Warn,
                format!("number {wish}, which this version does not know"),
            ),
        };
        let ours = name(self.cfg.proto.algorithm).unwrap_or("?");
        self.say(
            level,
            &format!(
                "peer {who} asks for checksum {asks}, this process for {ours}: {agreed} is used \
                 both ways"
            ),
        );
    }
}
