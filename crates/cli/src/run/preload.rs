//! The libraries preloaded into ranks: one for MPICH and Open MPI (`crates/mpi-shim` says why), and
//! optionally one for broadcasts by multicast (`crates/collectives`).

use crate::run::mpi::Kind;
use std::path::{Path, PathBuf};

/// The variable with the libraries that the dynamic linker preloads (ld.so(8)).
pub const VARIABLE: &str = "LD_PRELOAD";

/// The library's file names beside the provider, installed and built.
const FILE_NAMES: [&str; 2] = ["libmarline-mpi.so", "libmarline_mpi.so"];

/// The variable by which the multicast library finds the provider.
pub const MULTICAST: &str = "MARLINE_MULTICAST";

/// The variable with the names of the calls that the multicast library implements.
pub const MULTICAST_CALLS: &str = "MARLINE_MULTICAST_CALLS";
/// The variable that says that the user did not request multicast, so that the library uses it only
/// where it pays.
pub const MULTICAST_UNASKED: &str = "MARLINE_MULTICAST_UNASKED";
/// The calls that use multicast without a request: no reductions, whose rounding would differ from
/// the MPI's.
pub const UNASKED_CALLS: &str = "bcast";
/// See [`MULTICAST_CALLS`].
pub const CALLS: [&str; 4] = ["bcast", "allreduce", "barrier", "allgather"];

/// The file names of the multicast library.
const MULTICAST_NAMES: [&str; 2] = ["libmarline-collectives.so", "libmarline_collectives.so"];
/// The file names of the provider.
const PROVIDER_NAMES: [&str; 2] = ["libmarline-fi.so", "libmarline_fi.so"];

/// The multicast library and its provider, if both are in the provider's directory.
pub fn multicast(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    Some((find(dir, MULTICAST_NAMES)?, find(dir, PROVIDER_NAMES)?))
}

/// The library for ranks of this MPI, if it is in the provider's directory. A path with a blank or
/// a colon cannot be preloaded.
pub fn library(kind: Kind, dir: &Path) -> Option<PathBuf> {
    // Intel MPI does not yield after each poll.
    (kind != Kind::Intel).then(|| find(dir, FILE_NAMES))?
}

/// The loss of ranks of this MPI without the library, in addition to time.
pub fn lost(kind: Kind) -> Option<&'static str> {
    matches!(kind, Kind::OpenMpi5 | Kind::OpenMpi4).then_some(
        "MPI_Mrecv and MPI_Imrecv of Open MPI lose data with gaps, persistent sends and \
         MPI_Alltoallw of Open MPI 4.1 send wrong data, and threads do not yield to each other",
    )
}

fn find(dir: &Path, names: [&str; 2]) -> Option<PathBuf> {
    let mut paths = names.iter().map(|name| dir.join(name));
    let found = paths.find(|path| path.is_file());
    found.filter(|path| !path.to_string_lossy().contains([' ', ':']))
}

/// The variable's value: the MPI's library and the multicast library before the user's libraries. A
/// multicast library that the user did not request comes last, so that the user's tools see all
/// calls.
pub fn value(
    (own, multicast): (Option<PathBuf>, Option<PathBuf>),
    asked: bool,
    of_user: Option<String>,
) -> Option<String> {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let (own, multicast, of_user) = (
        own.map(text),
        multicast.map(text),
        of_user.unwrap_or_default(),
    );
    if own.is_none() && multicast.is_none() {
        return None;
    }
    let user = Some(of_user.clone()).filter(|given| !given.is_empty());
    let order = match asked {
        true => [multicast, own, user],
        false => [own, user, multicast],
    };
    let is_given = |library: &String| of_user.split([' ', ':']).any(|path| path == library);
    let new = |part: &String| *part == of_user || !is_given(part);
    let parts: Vec<String> = order.into_iter().flatten().filter(new).collect();
    Some(parts.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preloads_of_the_user_stay() {
        let own = Some(PathBuf::from("/m/mpi.so"));
        let given = |user: &str| value((own.clone(), None), true, Some(user.to_owned())).unwrap();
        assert_eq!(value((own.clone(), None), true, None).unwrap(), "/m/mpi.so");
        assert_eq!(given(""), "/m/mpi.so");
        let both = given("/u/a.so /u/b.so");
        assert_eq!(both, "/m/mpi.so:/u/a.so /u/b.so");
        assert_eq!(given(&both), both, "only once");
        let user = Some("/u/a.so".to_owned());
        assert_eq!(value((None, None), true, user), None);
    }

    #[test]
    fn unrequested_multicast_is_preloaded_last() {
        let libraries = || (Some("/m/mpi.so".into()), Some("/m/bcast.so".into()));
        let user = || Some("/u/a.so".to_owned());
        let asked = value(libraries(), true, user()).unwrap();
        assert_eq!(asked, "/m/bcast.so:/m/mpi.so:/u/a.so");
        let unasked = value(libraries(), false, user()).unwrap();
        assert_eq!(unasked, "/m/mpi.so:/u/a.so:/m/bcast.so");
    }

    #[test]
    fn intel_mpi_needs_no_preload_and_a_missing_one_is_skipped() {
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
