//! Finding the provider library, and checking that libfabric will find it too.

use std::fs;
use std::path::{Path, PathBuf};

/// Names the directory with the provider library.
pub const DIR_VARIABLE: &str = "MARLINE_PROVIDER_DIR";

/// The names that the library has when built and when installed. libfabric loads every file of
/// `FI_PROVIDER_PATH` whose name ends in `fi.so`.
const FILE_NAMES: [&str; 2] = ["libmarline-fi.so", "libmarline_fi.so"];

/// The directory for `FI_PROVIDER_PATH`, absolute, since ranks run elsewhere.
pub fn find_dir(given: Option<&Path>) -> Result<PathBuf, String> {
    let dir = look_for(given)?;
    let resolved = fs::canonicalize(&dir).unwrap_or_else(|_| dir.clone());
    // A link may be there to hide a colon.
    let named = std::path::absolute(&dir).unwrap_or(dir);
    let whole = |dir: &PathBuf| !dir.to_string_lossy().contains(':');
    [resolved, named].into_iter().find(whole).ok_or_else(|| {
        let dir = given.map_or("DIR".to_owned(), |dir| dir.display().to_string());
        format!(
            "the provider's directory has a colon in its path, and libfabric takes colons in \
             FI_PROVIDER_PATH for the ends of paths: make a link without one, as in `ln -s {} \
             ~/marline`, and give it by --provider-dir or {DIR_VARIABLE}",
            crate::tool::quote(&dir)
        )
    })
}

fn look_for(given: Option<&Path>) -> Result<PathBuf, String> {
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
    let exe = crate::tool::own_path()?;
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
    let has = |name: &str| dir.join(name).is_file();
    FILE_NAMES
        .iter()
        .any(|name| has(name))
        .then(|| dir.to_owned())
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

    #[test]
    fn a_colon_in_the_path_is_refused_and_a_link_helps() {
        let base = std::env::temp_dir().join(format!("marline-colon-{}", std::process::id()));
        let (dir, link) = (base.join("a:b"), base.join("plain"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(FILE_NAMES[0]), "").unwrap();
        let error = find_dir(Some(&dir)).unwrap_err();
        assert!(
            error.contains("colon") && error.contains("ln -s "),
            "{error}"
        );
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert_eq!(find_dir(Some(&link)), Ok(link));
        fs::remove_dir_all(&base).unwrap();
    }
}
