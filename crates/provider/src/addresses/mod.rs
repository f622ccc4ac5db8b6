//! The two address formats of applications: blobs of a fixed size, and text (`FI_ADDR_STR`).

pub(crate) mod resolve;

use crate::abi::*;
use crate::base::boundary::Errno;
use crate::base::{caller_memory, log, settings};
use marline_codes::Code;
use marline_engine::names::{self, Named, Unanswered};
use std::ffi::{c_void, CStr, CString};
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of an address blob: MPICH's limit (FI_NAME_MAX).
pub(crate) const ADDRESS_LEN: usize = 64;

/// The address format of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Blobs padded to this number of bytes: libfabric passes arrays of addresses without a length
    /// per entry.
    Opaque(usize),
    /// Text. libfabric's manual describes arrays of pointers to C strings; other providers accept,
    /// and applications pass, the strings themselves, each directly after the terminating zero of
    /// the string before.
    Text,
}

impl Default for Form {
    fn default() -> Form {
        Form::Opaque(ADDRESS_LEN)
    }
}

/// Longest address text in bytes: longer than every address and every host name.
const TEXT_ROOM: usize = 512;

impl Form {
    /// The form for a libfabric address format; `None` if the format is unknown.
    pub(crate) fn of(addr_format: u32) -> Option<Form> {
        match addr_format {
            FI_FORMAT_UNSPEC => Some(Form::Opaque(settings::address_bytes())),
            FI_ADDR_STR => Some(Form::Text),
            _ => None,
        }
    }

    /// Copies an address, truncated to the room at `out`, and sets `*out_len` to the full length.
    /// Returns true if the address fitted. A truncated text ends with a zero, too.
    ///
    /// # Safety
    /// `out_len` is valid and `out` has `*out_len` bytes (or is null).
    pub(crate) unsafe fn write(
        self,
        blob: &[u8; ADDRESS_LEN],
        out: *mut c_void,
        out_len: *mut usize,
    ) -> bool {
        match self {
            Form::Opaque(len) => {
                let blob = names::shortened(blob, len);
                // SAFETY: the caller's promise.
                unsafe { copy(&blob[..len], out.cast(), out_len) }
            }
            Form::Text => {
                let text = text_of(blob);
                // SAFETY: the caller's promise.
                unsafe { copy_text(&text, out.cast(), out_len) }
            }
        }
    }

    /// The blob of an `fi_info` address of `len` bytes; `None` for an address of another provider.
    ///
    /// # Safety
    /// `at` has `len` bytes.
    pub(crate) unsafe fn own(self, at: *const c_void, len: usize) -> Option<[u8; ADDRESS_LEN]> {
        match self {
            Form::Opaque(own) => {
                // SAFETY: the length was checked.
                let blob = (len == own).then(|| unsafe { padded(at.cast(), len) });
                blob.filter(|blob| names::text_of(blob).is_some())
            }
            Form::Text => {
                // SAFETY: the caller's promise.
                let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) };
                let text = CStr::from_bytes_until_nul(bytes).ok()?.to_str().ok()?;
                match names::read(text).ok()? {
                    Named::Whole(blob) => Some(blob),
                    Named::Place(host, port) => {
                        let ip = host.parse().ok()?;
                        Some(names::place_blob(&[SocketAddr::new(ip, port)]))
                    }
                }
            }
        }
    }

    /// The address in the format of an `fi_info`.
    pub(crate) fn bytes(self, blob: &[u8; ADDRESS_LEN]) -> Vec<u8> {
        match self {
            Form::Opaque(len) => names::shortened(blob, len)[..len].to_vec(),
            Form::Text => [text_of(blob).as_bytes(), &[0]].concat(),
        }
    }

    /// The blob of entry `at` of an array of addresses.
    ///
    /// # Safety
    /// `addresses` is an array of this form, with more than `at` entries.
    pub(crate) unsafe fn read(
        self,
        addresses: *const c_void,
        at: usize,
    ) -> Result<[u8; ADDRESS_LEN], Errno> {
        match self {
            Form::Opaque(len) => {
                // SAFETY: the caller's promise.
                Ok(unsafe { padded(addresses.cast::<u8>().add(at * len), len) })
            }
            // SAFETY: the caller's promise.
            Form::Text => blob_of(&text_of_array(unsafe { nth_text(addresses, at) })?),
        }
    }

    /// The text of an address in this form.
    ///
    /// # Safety
    /// `at` is an address of this form: for text a C string, otherwise a blob of the form's length.
    pub(crate) unsafe fn text(self, at: *const c_void) -> String {
        match self {
            // SAFETY: the caller's promise.
            Form::Opaque(len) => text_of(&unsafe { padded(at.cast(), len) }),
            // SAFETY: the caller's promise.
            Form::Text => unsafe { CStr::from_ptr(at.cast()) }
                .to_string_lossy()
                .into(),
        }
    }
}

/// Copies `len` bytes into a blob and fills the rest with zeros.
///
/// # Safety
/// `at` has `len` bytes.
unsafe fn padded(at: *const u8, len: usize) -> [u8; ADDRESS_LEN] {
    let mut blob = [0; ADDRESS_LEN];
    let len = len.min(ADDRESS_LEN);
    // SAFETY: the caller's promise, and no more than the blob has.
    unsafe { std::ptr::copy_nonoverlapping(at, blob.as_mut_ptr(), len) };
    blob
}

/// The bytes of text `at` of an array of pointers or of adjacent strings. An array of strings
/// begins with the scheme's text, which no pointer does. `None` if the memory is not readable.
///
/// # Safety
/// The conditions of [`Form::read`], except that the array's pointers need not be valid.
unsafe fn nth_text(addresses: *const c_void, at: usize) -> Option<Vec<u8>> {
    let scheme = names::SCHEME.as_bytes();
    let text = |from: *const u8| caller_memory::text(from, TEXT_ROOM);
    let begins = caller_memory::read(addresses.cast(), size_of::<usize>())?;
    if !scheme.starts_with(&begins) {
        let slot = addresses.cast::<usize>().wrapping_add(at).cast();
        let pointer = caller_memory::read(slot, size_of::<usize>())?;
        let pointer = usize::from_ne_bytes(pointer.try_into().ok()?);
        return text(pointer as *const u8);
    }
    let mut from = addresses.cast::<u8>();
    for _ in 0..at {
        from = from.wrapping_add(text(from)?.len() + 1);
    }
    text(from)
}

fn text_of_array(bytes: Option<Vec<u8>>) -> Result<String, Errno> {
    let text = bytes.map(String::from_utf8);
    text.and_then(Result::ok).ok_or_else(|| {
        log::warn(
            Code::BadAddress,
            "fi_av_insert: an address is no text of UTF-8, nor a pointer to one \
             (FI_ADDR_STR: an array of pointers to strings, or strings)",
        );
        Errno::INVAL
    })
}

fn blob_of(text: &str) -> Result<[u8; ADDRESS_LEN], Errno> {
    let refused = |why: &str| {
        log::warn(Code::BadAddress, &format!("fi_av_insert: {why}"));
        Errno::INVAL
    };
    match names::read(text).map_err(|why| refused(&why))? {
        Named::Whole(blob) => Ok(blob),
        Named::Place(host, port) => {
            let host = CString::new(host).map_err(|_| Errno::INVAL)?;
            place_of(&host, port, false).map_err(|why| refused(&why))
        }
    }
}

/// A blob for a host and a port, without the endpoint's identity. Errors are texts for people.
pub(crate) fn place_of(host: &CStr, port: u16, numeric: bool) -> Result<[u8; ADDRESS_LEN], String> {
    if port == 0 {
        return Err(format!("{}: port 0 is nobody's", host.to_string_lossy()));
    }
    let mut at = resolve::addresses(host, None, numeric)?;
    at.iter_mut().for_each(|at| at.set_port(port));
    Ok(names::place_blob(&at))
}

/// The full address of an endpoint. For a blob with just a host and port, asks that place, which
/// takes a round trip; without an answer the call lasts until the timeout for dead peers.
pub(crate) fn whole(blob: [u8; ADDRESS_LEN]) -> Result<[u8; ADDRESS_LEN], Errno> {
    let Some(places) = names::places_of(&blob) else {
        return Ok(blob);
    };
    if places.iter().any(|place| place.port() == 0) {
        log::warn(Code::BadAddress, "fi_av_insert: port 0 is nobody's");
        return Err(Errno::INVAL);
    }
    let settings = settings::lookup().ok();
    let silent_ms = settings.as_ref().map_or(0, |s| s.rail_timeout_ms());
    let key = settings.and_then(|s| s.job_key().ok().flatten());
    names::ask(&places, Duration::from_millis(silent_ms), key.as_ref()).map_err(|why| {
        let (why, errno) = match why {
            Unanswered::NoWay => ("no way leads there", Errno::HOSTUNREACH),
            Unanswered::Refused => ("nobody has this port", Errno::CONNREFUSED),
            Unanswered::Silent => ("nobody answers", Errno::TIMEDOUT),
        };
        log::warn(Code::BadAddress, &format!("{}: {why}", text_of(&blob)));
        errno
    })
}

/// The text of a blob; hexadecimal digits if the blob is not a valid address.
pub(crate) fn text_of(blob: &[u8; ADDRESS_LEN]) -> String {
    names::text_of(blob).unwrap_or_else(|| {
        let digits: String = blob.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}?{digits}", names::SCHEME)
    })
}

/// # Safety
/// The conditions of [`Form::write`] hold.
unsafe fn copy(bytes: &[u8], out: *mut u8, out_len: *mut usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let room = if out.is_null() { 0 } else { *out_len };
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, room.min(bytes.len()));
        *out_len = bytes.len();
        room >= bytes.len()
    }
}

/// Copies a text and its terminating zero; truncation as in [`Form::write`].
///
/// # Safety
/// The conditions of [`Form::write`] hold.
pub(crate) unsafe fn copy_text(text: &str, out: *mut u8, out_len: *mut usize) -> bool {
    let bytes = [text.as_bytes(), &[0]].concat();
    // SAFETY: the caller's promise.
    unsafe {
        let room = if out.is_null() { 0 } else { *out_len };
        let fits = copy(&bytes, out, out_len);
        if !fits && room > 0 {
            *out.add(room - 1) = 0;
        }
        fits
    }
}
