//! See `marline_fuzz::operations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| marline_fuzz::operations(data));
