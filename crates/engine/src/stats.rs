//! Statistics page.
