//! The libraries that are preloaded into the ranks: one for MPICH and Open MPI (`crates/mpi-shim`
//! says what for), and, where that is wanted, one for broadcasts by multicast
//! (`crates/collectives`).

use crate::mpi::Kind;
use std::path::{Path, PathBuf};

/// The variable with the libraries that the dynamic linker preloads (ld.so(8)).
pub const VARIABLE: &str = "LD_PRELOAD";

/// The names that the library has when installed and when built, beside the provider.
const FILE_NAMES: [&str; 2] = ["libmarline-mpi.so", "libmarline_mpi.so"];

/// The variable by which the library of multicast finds the provider.
pub const MULTICAST: &str = "MARLINE_MULTICAST";

/// The variable that tells it which calls to do, and their names.
pub const MULTICAST_CALLS: &str = "MARLINE_MULTICAST_CALLS";
/// See [`MULTICAST_CALLS`].
pub const CALLS: [&str; 4] = ["bcast", "allreduce", "barrier", "allgather"];

/// The same names of the library of multicast.
const MULTICAST_NAMES: [&str; 2] = ["libmarline-collectives.so", "libmarline_collectives.so"];
/// And of the provider.
const PROVIDER_NAMES: [&str; 2] = ["libmarline-fi.so", "libmarline_fi.so"];

/// The library of multicast and the provider that it uses, if they are in the provider's directory.
pub fn multicast(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    Some((find(dir, MULTICAST_NAMES)?, find(dir, PROVIDER_NAMES)?))
}

/// The library that the MPI's ranks gain by, if it is in the provider's directory. A path with a
/// blank or a colon in it cannot be preloaded.
pub fn library(kind: Kind, dir: &Path) -> Option<PathBuf> {
    // Intel MPI does not offer the processor after each poll.
    (kind != Kind::Intel).then(|| find(dir, FILE_NAMES))?
}

fn find(dir: &Path, names: [&str; 2]) -> Option<PathBuf> {
    let mut paths = names.iter().map(|name| dir.join(name));
    let found = paths.find(|path| path.is_file());
    found.filter(|path| !path.to_string_lossy().contains([' ', ':']))
}

/// The variable's value with the library in front of what the user preloads.
pub fn value(library: &Path, of_user: Option<&str>) -> String {
    let library = library.to_string_lossy().into_owned();
    let of_user = of_user.unwrap_or_default();
    let mut given = of_user.split([' ', ':']);
    match of_user {
        "" => library,
        _ if given.any(|path| path == library) => of_user.to_owned(),
        _ => format!("{library}:{of_user}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_preloads_stays() {
        let library = Path::new("/m/libmarline-mpi.so");
        assert_eq!(value(library, None), "/m/libmarline-mpi.so");
        assert_eq!(value(library, Some("")), "/m/libmarline-mpi.so");
        let both = value(library, Some("/u/a.so /u/b.so"));
        assert_eq!(both, "/m/libmarline-mpi.so:/u/a.so /u/b.so");
        assert_eq!(value(library, Some(&both)), both, "only once");
    }

    #[test]
    fn intel_mpi_does_without_and_others_if_it_is_not_there() {
        let dir = std::env::temp_dir().join(format!("marline-preload-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(library(Kind::Mpich, &dir), None);
        let path = dir.join("libmarline-mpi.so");
        std::fs::write(&path, "").unwrap();
        assert_eq!(library(Kind::Mpich, &dir), Some(path.clone()));
        assert_eq!(library(Kind::OpenMpi5, &dir), Some(path));
        assert_eq!(library(Kind::Intel, &dir), None);
        let names = ["libmarline-collectives.so", "libmarline_fi.so"].map(|name| dir.join(name));
        std::fs::write(&names[0], "").unwrap();
        assert_eq!(multicast(&dir), None, "there is no provider");
        std::fs::write(&names[1], "").unwrap();
        let [library, provider] = names;
        assert_eq!(multicast(&dir), Some((library, provider)));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
