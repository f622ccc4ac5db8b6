//! See `marline_fuzz::admission`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| marline_fuzz::admission(data));
