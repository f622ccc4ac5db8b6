//! The content of a frame: a snapshot and the user's choices.

use super::data::Snapshot;
use super::view::View;

/// A snapshot and the user's choices.
pub struct Screen<'a> {
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// The choices.
    pub view: &'a View,
    /// A remark, such as the reason for an empty snapshot.
    pub note: &'a str,
}
