//! Marline proto.
