//! See `marline_fuzz::stats_page`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| marline_fuzz::stats_page(data));
