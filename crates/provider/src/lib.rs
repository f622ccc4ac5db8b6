//! Marline provider.
