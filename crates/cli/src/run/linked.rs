//! The MPI that a program is linked with, as the dynamic linker resolves it, and the MPI that
//! Python's mpi4py loads.

use crate::run::elf;
use crate::run::mpi::{self, Kind, Mpi};
use crate::tool;
use memchr::memmem;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A library of a program: name and path.
type Library = (String, PathBuf);

/// Name prefixes of MPI C libraries: MPICH and Intel MPI (libmpi.so.12), Open MPI (libmpi.so.40),
/// the MPI Forum's ABI, Debian's MPICH, Cray.
const NAMES: [&str; 4] = [
    "libmpi.so",
    "libmpi_abi.so",
    "libmpich.so",
    "libmpi_cray.so",
];

/// The MPI that this program is linked with, directly or through a library.
pub fn of_program(program: &Path) -> Result<Option<Mpi>, String> {
    let Ok(Some(linker)) = elf::interpreter(program) else {
        return Ok(None);
    };
    // The linker considers LD_LIBRARY_PATH, RUNPATH, its cache and preloads, and starts no program.
    let mut command = Command::new(linker);
    command.arg("--list").arg(program).stdin(Stdio::null());
    let output = command.output();
    let output = output.map_err(|error| tool::spawn_error(&command, &error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if let Some((_, why)) = said.split_once(NOT_FOUND) {
        return Err(format!(
            "the dynamic linker cannot start {}: {}; put the library's directory into \
             LD_LIBRARY_PATH (as the module of an MPI does)",
            program.display(),
            why.trim()
        ));
    }
    recognise(&listed(&String::from_utf8_lossy(&output.stdout)))
}

/// The dynamic linker's message for a missing library, up to the name.
const NOT_FOUND: &str = "error while loading shared libraries: ";

/// A Python program that prints the files that importing mpi4py maps, without starting an MPI.
const ASK_PYTHON: &str = "\
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
lines = [line.strip() for line in open('/proc/self/maps') if '.so' in line]
print(*{line.split(None, 5)[-1] for line in lines}, sep='\\n')
";

/// The MPI of this Python's mpi4py; `None` without mpi4py.
pub fn of_python(python: &Path) -> Result<Option<Mpi>, String> {
    let output = Command::new(python)
        .args(["-c", ASK_PYTHON])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else { return Ok(None) };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let loaded = said.lines().filter_map(|path| {
        let name = Path::new(path).file_name()?.to_string_lossy().into_owned();
        Some((name, PathBuf::from(path)))
    });
    recognise(&loaded.collect::<Vec<_>>())
}

/// The libraries in the dynamic linker's list: `NAME => PATH (ADDRESS)`.
fn listed(text: &str) -> Vec<Library> {
    let library = |line: &str| {
        let (name, rest) = line.trim().split_once(" => ")?;
        let (path, _) = rest.rsplit_once(" (")?;
        Some((name.to_owned(), PathBuf::from(path)))
    };
    text.lines().filter_map(library).collect()
}

fn recognise(libraries: &[Library]) -> Result<Option<Mpi>, String> {
    let of_mpi = |(name, _): &&Library| NAMES.iter().any(|known| name.starts_with(known));
    let Some((_, library)) = libraries.iter().find(of_mpi) else {
        return Ok(None);
    };
    let content = std::fs::read(library).map_err(|e| format!("{}: {e}", library.display()))?;
    let has = |word: &str| memmem::find(&content, word.as_bytes()).is_some();
    let loads = |start: &str| libraries.iter().any(|(name, _)| name.starts_with(start));
    let kind = kind(loads, has).ok_or_else(|| {
        format!(
            "{} is of no MPI that Marline knows (MPICH, Open MPI 4.1 and 5, Intel MPI)",
            library.display()
        )
    })?;
    let mpi = Mpi {
        kind,
        version: String::new(),
        file: library.clone(),
        path: None,
    };
    match kind == Kind::Mpich && !loads("libfabric.so") && !has("fi_getinfo") {
        true => Err(mpi::without(&mpi, "the device ch4:ofi (libfabric)")),
        false => Ok(Some(mpi)),
    }
}

/// The MPI, told by the libraries that a program loads and by words in its MPI library.
fn kind(loads: impl Fn(&str) -> bool, has: impl Fn(&str) -> bool) -> Option<Kind> {
    // Open MPI 4's run-time library, absent in Open MPI 5.
    if loads("libopen-rte.so") {
        return Some(Kind::OpenMpi4);
    }
    if loads("libopen-pal.so") {
        return Some(Kind::OpenMpi5);
    }
    // Names of variables in the libraries. Intel MPI contains MPICH's, too.
    if has("I_MPI_OFI_PROVIDER") {
        return Some(Kind::Intel);
    }
    has("MPIR_CVAR_").then_some(Kind::Mpich)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linkers_list_has_names_and_places() {
        let text = "\tlinux-vdso.so.1 (0x00007fe3ca65c000)\n\
                    \tlibmpi.so.12 => /opt/an mpi/libmpi.so.12 (0x00007f6fc7200000)\n\
                    \tlibx.so.1 => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f6fc766c000)\n";
        let place = PathBuf::from("/opt/an mpi/libmpi.so.12");
        assert_eq!(listed(text), [("libmpi.so.12".to_owned(), place)]);
    }

    #[test]
    fn an_mpi_is_recognised_by_its_libraries() {
        let of = |libraries: &str, words: &str| {
            let loads = |start: &str| libraries.split(' ').any(|name| name.starts_with(start));
            kind(loads, |word| words.contains(word))
        };
        assert_eq!(of("libopen-pal.so.80", ""), Some(Kind::OpenMpi5));
        let both = "libopen-pal.so.40 libopen-rte.so.40";
        assert_eq!(of(both, ""), Some(Kind::OpenMpi4));
        assert_eq!(of("", "MPIR_CVAR_CH4_NETMOD"), Some(Kind::Mpich));
        let intel = "MPIR_CVAR_CH4_NETMOD I_MPI_OFI_PROVIDER";
        assert_eq!(of("", intel), Some(Kind::Intel));
        assert_eq!(of("libc.so.6", "main"), None);
    }

    #[test]
    fn other_languages_libraries_are_not_the_mpis_own() {
        let library = ("libmpi_mpifh.so.40".to_owned(), PathBuf::from("/none"));
        assert!(recognise(&[library]).unwrap().is_none());
        let library = ("libmpi.so.40".to_owned(), PathBuf::from("/none"));
        assert!(recognise(&[library]).unwrap_err().contains("/none"));
    }

    #[test]
    fn a_program_without_an_mpi_has_none() {
        let own = std::env::current_exe().unwrap();
        assert!(of_program(&own).unwrap().is_none());
        assert!(of_python(Path::new("/no/such/python")).unwrap().is_none());
    }
}
