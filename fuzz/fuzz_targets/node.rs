//! See `marline_fuzz::node`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| marline_fuzz::node(data));
