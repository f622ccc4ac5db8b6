//! Long messages: grants and chunks.

pub(crate) mod grant;
pub(crate) mod pipeline;
