//! Marline sim.
