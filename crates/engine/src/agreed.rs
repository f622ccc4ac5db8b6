//! What is said when two peers want different checksums.

use crate::api::{EpId, LogLevel};
use crate::core::Core;
use marline_checksum::Algorithm;
use marline_proto::PeerId;
use marline_rails::RailTx;

impl<T: RailTx> Core<T> {
    /// The algorithm for payloads to `peer` is agreed, and is not what both sides asked for.
    pub(crate) fn say_agreed(&self, ep: EpId, peer: PeerId, wish: u8, agreed: u8) {
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
