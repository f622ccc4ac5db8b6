//! The library of an MPI, by its mpiexec.

use crate::run::mpi::{Kind, Mpi};
use std::path::{Path, PathBuf};

/// Directories of libraries, from the one that holds `bin/mpiexec`.
const PLACES: [&str; 3] = ["lib", "lib64", "lib/release"];
/// Where Debian has libraries, for an mpiexec in /usr/bin.
const ON_DEBIAN: [&str; 2] = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"];

/// The path of the library.
pub fn of(mpi: &Mpi) -> Result<PathBuf, String> {
    let name = match mpi.kind {
        Kind::Mpich | Kind::Intel => "libmpi.so.12",
        Kind::OpenMpi5 | Kind::OpenMpi4 => "libmpi.so.40",
    };
    let real = std::fs::canonicalize(&mpi.file);
    let files = [Some(mpi.file.clone()), real.ok()].into_iter().flatten();
    let roots = files.filter_map(|file| Some(file.parent()?.parent()?.to_owned()));
    let mut candidates = roots.flat_map(|root| candidates(&root, name));
    candidates.find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "{}: its {name} is not in ../lib from there",
            mpi.file.display()
        )
    })
}

fn candidates(root: &Path, name: &str) -> Vec<PathBuf> {
    let places = PLACES.iter().chain(&ON_DEBIAN);
    places.map(|place| root.join(place).join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_beside_its_mpiexec() {
        let root = std::env::temp_dir().join(format!("marline-library-{}", std::process::id()));
        std::fs::create_dir_all(root.join("lib64")).unwrap();
        let mpi = |kind| Mpi {
            kind,
            version: String::new(),
            file: root.join("bin/mpiexec"),
            path: None,
        };
        let error = of(&mpi(Kind::OpenMpi5)).unwrap_err();
        assert!(error.contains("libmpi.so.40 is not in"), "{error}");
        let library = root.join("lib64/libmpi.so.12");
        std::fs::write(&library, "").unwrap();
        assert_eq!(of(&mpi(Kind::Mpich)), Ok(library));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
