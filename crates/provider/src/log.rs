//! Log lines, through libfabric's own log (`FI_LOG_LEVEL`), never to the program's stderr: there
//! only what the user asked for.

use crate::{host, sys};
use marline_engine::{LogLevel, LogSink};
use std::ffi::c_int;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

// Subsystems of fi_log. One filter letter for the call paths is enough for us.
const CORE: c_int = 0;
const EP_DATA: c_int = 4;

static CALLS: AtomicBool = AtomicBool::new(false);

/// Must be seen: `fi_log` shows what it is given, whatever `FI_LOG_LEVEL` says.
pub(crate) fn warn(text: &str) {
    host::log(sys::FI_LOG_WARN, CORE, text);
}

/// For people who ask.
pub(crate) fn info(text: &str) {
    if host::log_enabled(sys::FI_LOG_INFO, CORE) {
        host::log(sys::FI_LOG_INFO, CORE, text);
    }
}

/// For developers: one line per call. Use the [`trace!`] macro.
#[cold]
#[inline(never)]
pub(crate) fn call(text: std::fmt::Arguments<'_>) {
    host::log(sys::FI_LOG_DEBUG, EP_DATA, &text.to_string());
}

/// True if calls are logged. It is a plain load, since every call asks.
#[inline]
pub(crate) fn calls_enabled() -> bool {
    CALLS.load(Ordering::Relaxed)
}

/// Reads the log level anew: at each `fi_getinfo` and `fi_domain`, before the calls that matter.
pub(crate) fn refresh() {
    CALLS.store(
        host::log_enabled(sys::FI_LOG_DEBUG, EP_DATA),
        Ordering::Relaxed,
    );
}

/// The engine's log lines.
pub(crate) fn sink() -> LogSink {
    LogSink(Arc::new(|level, text| match level {
        LogLevel::Report => {
            // In one piece, so that no other process's lines come between. Nobody may read it.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        LogLevel::Warn => warn(text),
        LogLevel::Info => info(text),
        LogLevel::Debug if calls_enabled() => call(format_args!("{text}")),
        LogLevel::Debug => {}
    }))
}

/// Logs a call at `FI_LOG_LEVEL=debug`; costs one load and a branch otherwise.
macro_rules! trace {
    ($($arg:tt)*) => {
        if $crate::log::calls_enabled() {
            $crate::log::call(format_args!($($arg)*));
        }
    };
}
pub(crate) use trace;
