//! Finding the provider library, and checking that libfabric will find it too.

use std::fs;
use std::path::{Path, PathBuf};

/// Names the directory with the provider library.
pub const DIR_VARIABLE: &str = "MARLINE_PROVIDER_DIR";

/// The names that the library has when built and when installed. libfabric loads every file of
/// `FI_PROVIDER_PATH` whose name ends in `fi.so`.
const FILE_NAMES: [&str; 2] = ["libmarline-fi.so", "libmarline_fi.so"];

/// The directory for `FI_PROVIDER_PATH`.
pub fn find_dir(given: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(dir) = given {
        return check(dir).ok_or_else(|| format!("no {} in {}", FILE_NAMES[0], dir.display()));
    }
    if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
        let dir = PathBuf::from(dir);
        return check(&dir).ok_or_else(|| {
            format!(
                "{DIR_VARIABLE}={}: no {} there",
                dir.display(),
                FILE_NAMES[0]
            )
        });
    }
    let exe = crate::lab::enter::own_path()?;
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let installed = beside.join("../lib/marline");
    check(beside).or_else(|| check(&installed)).ok_or_else(|| {
        format!(
            "the provider library {} is neither in {} nor in {}: build it (`make build`) or set \
             {DIR_VARIABLE} to its directory",
            FILE_NAMES[0],
            beside.display(),
            installed.display()
        )
    })
}

fn check(dir: &Path) -> Option<PathBuf> {
    FILE_NAMES
        .iter()
        .any(|name| dir.join(name).is_file())
        .then(|| {
            // Absolute, since ranks run elsewhere.
            fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_the_library_is_refused_by_name() {
        let error = find_dir(Some(Path::new("/nowhere"))).unwrap_err();
        assert!(
            error.contains("libmarline-fi.so") && error.contains("/nowhere"),
            "{error}"
        );
    }
}
