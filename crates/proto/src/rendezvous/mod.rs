//! Long messages: grants, and the chunks of rails that stage.

pub(crate) mod grant;
#[cfg(feature = "staged")]
pub(crate) mod pipeline;
