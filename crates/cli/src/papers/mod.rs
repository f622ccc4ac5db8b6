//! Comparisons with the papers, which no job needs: `marline model`.

mod broadcast;
mod constants;
mod measured;
pub mod model;
