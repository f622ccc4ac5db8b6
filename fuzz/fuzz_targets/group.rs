//! See `marline_fuzz::group`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| marline_fuzz::group(data));
