//! Log lines through libfabric's own log (`FI_LOG_LEVEL`). Stderr gets only lines that the user
//! requested.

use crate::abi;
use crate::base::host;
use marline_codes::Code;
use marline_engine::{LogLevel, LogSink};
use std::ffi::c_int;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

// Subsystems of fi_log; the call paths need only one.
const CORE: c_int = 0;
const EP_DATA: c_int = 4;

static CALLS: AtomicBool = AtomicBool::new(false);

/// Logs a warning with its code: `fi_log` shows it at every `FI_LOG_LEVEL`.
pub(crate) fn warn(code: Code, text: &str) {
    host::log(abi::FI_LOG_WARN, CORE, &code.mark(text));
}

/// Logs at level info.
pub(crate) fn info(text: &str) {
    if host::log_enabled(abi::FI_LOG_INFO, CORE) {
        host::log(abi::FI_LOG_INFO, CORE, text);
    }
}

/// Logs a call for developers. Use the [`trace!`] macro.
#[cold]
#[inline(never)]
pub(crate) fn call(text: std::fmt::Arguments<'_>) {
    host::log(abi::FI_LOG_DEBUG, EP_DATA, &text.to_string());
}

/// True if calls are logged. A plain load, as every call checks.
#[inline]
pub(crate) fn calls_enabled() -> bool {
    CALLS.load(Ordering::Relaxed)
}

/// Rereads the log level: at each `fi_getinfo` and `fi_domain`.
pub(crate) fn refresh() {
    CALLS.store(
        host::log_enabled(abi::FI_LOG_DEBUG, EP_DATA),
        Ordering::Relaxed,
    );
}

/// The engine's log lines.
pub(crate) fn sink() -> LogSink {
    LogSink(Arc::new(|level, text| match level {
        LogLevel::Report => {
            // A single write, so that lines of other processes do not interleave. A closed stderr
            // is ignored.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        LogLevel::Warn(code) => warn(code, text),
        LogLevel::Info => info(text),
        LogLevel::Debug if calls_enabled() => call(format_args!("{text}")),
        LogLevel::Debug => {}
    }))
}

/// Logs a call at `FI_LOG_LEVEL=debug`; otherwise costs one load and a branch.
macro_rules! trace {
    ($($arg:tt)*) => {
        if $crate::base::log::calls_enabled() {
            $crate::base::log::call(format_args!($($arg)*));
        }
    };
}
pub(crate) use trace;
