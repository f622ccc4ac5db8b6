//! Functions of the libfabric that loaded the provider.
//!
//! A library linked against one libfabric version cannot be loaded by older ones. The functions are
//! therefore looked up by name at run time, each with a fallback.

use crate::abi;
use crate::base::about::provider;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::sync::OnceLock;

type LogFn = unsafe extern "C" fn(
    *const abi::fi_provider,
    c_int,
    c_int,
    *const c_char,
    c_int,
    *const c_char,
    ...
);
type LogEnabledFn = unsafe extern "C" fn(*const abi::fi_provider, c_int, c_int) -> c_int;
type ParamDefineFn = unsafe extern "C" fn(
    *const abi::fi_provider,
    *const c_char,
    c_int,
    *const c_char,
    ...
) -> c_int;
type ParamGetFn = unsafe extern "C" fn(*mut abi::fi_provider, *const c_char, *mut c_void) -> c_int;
type VersionFn = unsafe extern "C" fn() -> u32;

/// libfabric's helper functions; `None` if missing.
struct Host {
    log: Option<LogFn>,
    log_enabled: Option<LogEnabledFn>,
    param_define: Option<ParamDefineFn>,
    param_get: Option<ParamGetFn>,
    version: Option<VersionFn>,
}

static HOST: OnceLock<Host> = OnceLock::new();

fn host() -> &'static Host {
    HOST.get_or_init(|| {
        let from = library();
        // SAFETY: the types are those of the symbols in rdma/providers/fi_log.h and fi_prov.h.
        unsafe {
            Host {
                log: std::mem::transmute::<*mut c_void, Option<LogFn>>(find(from, c"fi_log")),
                log_enabled: std::mem::transmute::<*mut c_void, Option<LogEnabledFn>>(find(
                    from,
                    c"fi_log_enabled",
                )),
                param_define: std::mem::transmute::<*mut c_void, Option<ParamDefineFn>>(find(
                    from,
                    c"fi_param_define",
                )),
                param_get: std::mem::transmute::<*mut c_void, Option<ParamGetFn>>(find(
                    from,
                    c"fi_param_get",
                )),
                version: std::mem::transmute::<*mut c_void, Option<VersionFn>>(find(
                    from,
                    c"fi_version",
                )),
            }
        }
    })
}

fn find(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a handle from `library` and a C string.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// The handle for lookups: the global scope, or the mapped libfabric if the host program loaded
/// libfabric privately.
fn library() -> *mut c_void {
    if !find(libc::RTLD_DEFAULT, c"fi_log").is_null() {
        return libc::RTLD_DEFAULT;
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: the callback matches dl_iterate_phdr's contract and `paths` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut paths).cast()) };
    // After the iteration: dlopen during it would take the loader's locks in the wrong order.
    for path in paths {
        // SAFETY: RTLD_NOLOAD only raises the reference count of a loaded library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !handle.is_null() && !find(handle, c"fi_log").is_null() {
            return handle;
        }
    }
    libc::RTLD_DEFAULT
}

/// Appends the path of a mapped object named `libfabric*`.
unsafe extern "C" fn collect(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    paths: *mut c_void,
) -> c_int {
    // SAFETY: glibc passes a valid object whose name is a C string or null, and `paths` is what
    // `library` passed.
    unsafe {
        let path = (*object).dlpi_name;
        if !path.is_null() {
            let path = CStr::from_ptr(path);
            let base = path.to_bytes().rsplit(|&b| b == b'/').next().unwrap_or(b"");
            if base.starts_with(b"libfabric") {
                (*paths.cast::<Vec<CString>>()).push(path.to_owned());
            }
        }
    }
    0
}

/// Version of the running libfabric, 0 if unknown.
pub(crate) fn version() -> u32 {
    // SAFETY: fi_version takes nothing and cannot fail.
    host().version.map_or(0, |f| unsafe { f() })
}

/// True if a log line of this level would be shown.
pub(crate) fn log_enabled(level: c_int, subsystem: c_int) -> bool {
    // SAFETY: the provider lives as long as the process.
    host()
        .log_enabled
        .is_some_and(|f| unsafe { f(provider(), level, subsystem) } != 0)
}

/// Longest log line in bytes: `fi_log` truncates to 1,024.
const LINE_BYTES: usize = 1000;

/// Splits a text into lines of at most [`LINE_BYTES`].
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            let mut end = rest.len().min(LINE_BYTES);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let piece;
            (piece, rest) = rest.split_at(end);
            (!piece.is_empty()).then_some(piece)
        })
    })
}

/// Writes a text to libfabric's log, line by line; without libfabric, does nothing.
pub(crate) fn log(level: c_int, subsystem: c_int, text: &str) {
    let Some(write) = host().log else { return };
    for piece in pieces(text) {
        log_line(write, level, subsystem, piece);
    }
}

fn log_line(write: LogFn, level: c_int, subsystem: c_int, line: &str) {
    let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the format takes one string; all pointers live through the call.
    unsafe {
        let (func, format) = (c"marline".as_ptr(), c"%s\n".as_ptr());
        write(provider(), level, subsystem, func, 0, format, line.as_ptr());
    }
}

/// Registers a text parameter, which `fi_info -e` lists.
pub(crate) fn param_define(name: &str, help: &str) {
    let Some(define) = host().param_define else {
        return;
    };
    let (Ok(name), Ok(help)) = (CString::new(name), CString::new(help)) else {
        return;
    };
    // SAFETY: the format takes one string; libfabric copies both.
    unsafe {
        define(
            provider(),
            name.as_ptr(),
            abi::FI_PARAM_STRING,
            c"%s".as_ptr(),
            help.as_ptr(),
        );
    }
}

/// The value of a setting; `None` if unset.
pub(crate) fn param_get(name: &str) -> Option<String> {
    let Some(get) = host().param_get else {
        return std::env::var(format!("FI_MARLINE_{}", name.to_uppercase())).ok();
    };
    let name = CString::new(name).ok()?;
    let mut value: *const c_char = std::ptr::null();
    // SAFETY: libfabric returns a string parameter as a pointer to memory of its own.
    let rc = unsafe { get(provider(), name.as_ptr(), (&raw mut value).cast()) };
    if rc != 0 || value.is_null() {
        return None;
    }
    // SAFETY: as above; a C string.
    Some(
        unsafe { CStr::from_ptr(value) }
            .to_string_lossy()
            .into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_long_text_is_cut_off() {
        let settings = marline_engine::settings::Settings::default().show();
        assert!(settings.len() > LINE_BYTES, "as one line it would be");
        let lines: Vec<&str> = pieces(&settings).collect();
        assert_eq!(lines, settings.lines().collect::<Vec<_>>());
        let long = format!(
            "{}é{}",
            "a".repeat(LINE_BYTES - 1),
            "b".repeat(2 * LINE_BYTES)
        );
        let parts: Vec<&str> = pieces(&long).collect();
        assert_eq!(parts.concat(), long);
        assert_eq!(parts.len(), 4);
        assert!(parts.iter().all(|part| part.len() <= LINE_BYTES));
    }
}
