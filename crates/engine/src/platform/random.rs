//! The kernel's random numbers, from which identities are made. Without random numbers the result
//! is an error: a constant would give all endpoints the same identity.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};

/// A source of random numbers; an error says why there are none.
pub type Random = Box<dyn FnMut() -> std::result::Result<u64, String> + Send>;

/// The kernel's random number generator.
pub(crate) fn random() -> Random {
    Box::new(|| {
        let mut bytes = [0; 8];
        fill(&mut bytes, call, device).map_err(|why| {
            format!("no random numbers, so no identity for an endpoint: {why}; see getrandom(2)")
        })?;
        Ok(u64::from_ne_bytes(bytes))
    })
}

/// Fills `bytes` by the system call, or from the device if the call is missing (an old kernel, a
/// sandbox) or fails.
fn fill(
    bytes: &mut [u8],
    mut call: impl FnMut(&mut [u8]) -> Result<usize>,
    device: impl FnOnce(&mut [u8]) -> Result<()>,
) -> std::result::Result<(), String> {
    let mut done = 0;
    while done < bytes.len() {
        let why = match call(&mut bytes[done..]) {
            Ok(n) if n > 0 => {
                done += n;
                continue;
            }
            Ok(_) => Error::from(ErrorKind::UnexpectedEof),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => e,
        };
        return device(bytes).map_err(|e| format!("getrandom: {why}; {DEVICE}: {e}"));
    }
    Ok(())
}

fn call(bytes: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer has as many bytes as are requested.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    usize::try_from(n).map_err(|_| Error::last_os_error())
}

const DEVICE: &str = "/dev/urandom";

fn device(bytes: &mut [u8]) -> Result<()> {
    File::open(DEVICE)?.read_exact(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_device(_: &mut [u8]) -> Result<()> {
        Err(ErrorKind::NotFound.into())
    }

    /// A system call that gives these results in turn; a success gives that many bytes.
    fn answers<'a>(
        list: &'a [std::result::Result<usize, i32>],
    ) -> impl FnMut(&mut [u8]) -> Result<usize> + 'a {
        let mut list = list.iter().copied();
        move |bytes| {
            let n = list.next().unwrap().map_err(Error::from_raw_os_error)?;
            bytes[..n].fill(7);
            Ok(n)
        }
    }

    #[test]
    fn interrupted_and_short_calls_are_repeated() {
        let mut bytes = [0; 8];
        let answers = answers(&[Err(libc::EINTR), Ok(3), Err(libc::EINTR), Ok(5)]);
        assert_eq!(fill(&mut bytes, answers, no_device), Ok(()));
        assert_eq!(bytes, [7; 8]);
    }

    #[test]
    fn without_the_system_call_the_device_is_read() {
        for answer in [Err(libc::ENOSYS), Err(libc::EPERM), Ok(0)] {
            let mut bytes = [0; 8];
            let device = |bytes: &mut [u8]| {
                bytes.fill(9);
                Ok(())
            };
            assert_eq!(fill(&mut bytes, answers(&[answer]), device), Ok(()));
            assert_eq!(bytes, [9; 8]);
        }
    }

    #[test]
    fn without_call_and_device_the_error_names_both() {
        let why = fill(&mut [0; 8], answers(&[Err(libc::ENOSYS)]), no_device).unwrap_err();
        assert!(why.contains("getrandom") && why.contains(DEVICE), "{why}");
    }

    #[test]
    fn the_kernels_numbers_differ() {
        let mut random = random();
        assert_ne!(random(), random());
    }
}
