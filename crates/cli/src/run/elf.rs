//! Reads ELF headers of 64-bit programs and libraries.

use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Size of the ELF header in bytes.
pub const HEAD: usize = 64;
/// The first bytes of an ELF file.
const MAGIC: &[u8] = b"\x7fELF";
/// Type of the program header that names the dynamic linker (PT_INTERP).
const INTERPRETER: u32 = 3;
/// Longest path (PATH_MAX), which bounds the allocation for a damaged length.
const PATH_MAX: u64 = 4096;

/// The first bytes of a file, padded with zeros, and its length.
pub fn head(file: &Path) -> Result<([u8; HEAD], u64)> {
    let file = File::open(file)?;
    let length = file.metadata()?.len();
    let mut start = Vec::new();
    file.take(HEAD as u64).read_to_end(&mut start)?;
    start.resize(HEAD, 0);
    Ok((std::array::from_fn(|n| start[n]), length))
}

/// True for programs and libraries.
pub fn is_elf(head: &[u8; HEAD]) -> bool {
    head.starts_with(MAGIC)
}

/// The dynamic linker of a program; `None` for static programs and other files.
pub fn interpreter(program: &Path) -> Result<Option<PathBuf>> {
    let (head, _) = head(program)?;
    if !is_elf(&head) {
        return Ok(None);
    }
    let (at, size, entries) = (word(&head, 0x20), half(&head, 0x36), half(&head, 0x38));
    let mut file = File::open(program)?;
    for n in 0..u64::from(entries) {
        let mut entry = [0; 56];
        file.seek(SeekFrom::Start(at.saturating_add(n * u64::from(size))))?;
        file.read_exact(&mut entry)?;
        if entry[..4] == INTERPRETER.to_ne_bytes() {
            file.seek(SeekFrom::Start(word(&entry, 8)))?;
            let mut text = Vec::new();
            let length = word(&entry, 32).min(PATH_MAX);
            file.take(length).read_to_end(&mut text)?;
            text.retain(|&byte| byte != 0);
            return Ok(Some(std::ffi::OsString::from_vec(text).into()));
        }
    }
    Ok(None)
}

/// A 16-bit number in a header.
pub fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

/// A 64-bit number in a header.
pub fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|n| bytes[at + n]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_dynamic_linker_and_a_script_does_not() {
        let own = std::env::current_exe().unwrap();
        let linker = interpreter(&own).unwrap().expect("a dynamic program");
        assert!(linker.is_file(), "{}", linker.display());
        let script = std::env::temp_dir().join(format!("marline-elf-{}", std::process::id()));
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(interpreter(&script).unwrap(), None);
        std::fs::write(&script, &std::fs::read(&own).unwrap()[..HEAD]).unwrap();
        assert!(interpreter(&script).is_err(), "its table is cut off");
        std::fs::remove_file(&script).unwrap();
    }
}
