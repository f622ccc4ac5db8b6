//! Simulated clusters, in one binary.

mod behind;
mod command;
mod connections;
mod corrupt;
mod crowded;
mod flaps;
mod found;
mod full;
mod group;
mod inject;
mod killed;
mod moves;
mod neighbours;
mod polled;
mod reader;
mod reorder;
mod scale;
mod scale_parts;
mod seeds;
mod slow;
mod unlike;
mod versions;
