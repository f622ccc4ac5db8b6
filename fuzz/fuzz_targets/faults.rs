//! See `marline_fuzz::faults`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| marline_fuzz::faults(data));
