//! See `marline_fuzz::settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| marline_fuzz::settings(data));
