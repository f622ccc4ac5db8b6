//! Wall-clock time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_nanos() as u64)
}

/// Local time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalTime {
    /// Year, month from 1, day of the month from 1.
    pub date: (i32, i32, i32),
    /// Hour, minute, second.
    pub time: (i32, i32, i32),
}

impl LocalTime {
    /// Converts nanoseconds since 1970 to local time; all zeros for a time outside the calendar.
    pub fn of(unix_ns: u64) -> LocalTime {
        let seconds = (unix_ns / 1_000_000_000) as libc::time_t;
        // SAFETY: all zeros is a valid `tm`.
        let mut tm: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both point to values of their types for the call.
        let found = unsafe { libc::localtime_r(&raw const seconds, &raw mut tm) };
        if found.is_null() {
            return LocalTime::default();
        }
        LocalTime {
            date: (tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday),
            time: (tm.tm_hour, tm.tm_min, tm.tm_sec),
        }
    }

    /// Formats the time as `14:10:26`.
    pub fn clock(&self) -> String {
        let (h, m, s) = self.time;
        format!("{h:02}:{m:02}:{s:02}")
    }

    /// Formats the date as `2026-11-26`.
    pub fn day(&self) -> String {
        let (y, m, d) = self.date;
        format!("{y:04}-{m:02}-{d:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_shown() {
        let a = LocalTime::of(1_764_166_226_000_000_000);
        let b = LocalTime::of(1_764_166_228_000_000_000);
        assert_eq!(a.clock().len(), 8);
        assert!(a.day().starts_with("2025-11-2"), "{}", a.day());
        assert_eq!((b.time.2 - a.time.2).rem_euclid(60), 2);
    }
}
