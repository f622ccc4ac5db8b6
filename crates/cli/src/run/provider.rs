//! Finds the provider library and checks that libfabric will load it.

use crate::run::elf;
use std::fs;
use std::path::{Path, PathBuf};

/// The variable with the provider library's directory.
pub const DIR_VARIABLE: &str = "MARLINE_PROVIDER_DIR";

/// The library's file names, installed and built. libfabric loads every file of `FI_PROVIDER_PATH`
/// with a name that ends in `fi.so`.
const FILE_NAMES: [&str; 2] = ["libmarline-fi.so", "libmarline_fi.so"];

/// The directory for `FI_PROVIDER_PATH`; absolute, as ranks run in other directories.
pub fn find_dir(given: Option<&Path>) -> Result<PathBuf, String> {
    let dir = look_for(given)?;
    if let Some(why) = library_in(&dir).and_then(|library| flaw(&library)) {
        return Err(why);
    }
    let resolved = fs::canonicalize(&dir).unwrap_or_else(|_| dir.clone());
    // A symbolic link may serve to avoid a colon in the path.
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
        return check(dir)
            .ok_or_else(|| format!("no {} in {}{MAKE_IT}", FILE_NAMES[0], dir.display()));
    }
    if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
        let dir = PathBuf::from(dir);
        return check(&dir).ok_or_else(|| {
            format!(
                "{DIR_VARIABLE}={}: no {} there{MAKE_IT}",
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

/// Advice for a directory without the library.
const MAKE_IT: &str = " (`make build` puts it into build/provider)";

fn check(dir: &Path) -> Option<PathBuf> {
    library_in(dir).map(|_| dir.to_owned())
}

fn library_in(dir: &Path) -> Option<PathBuf> {
    let mut libraries = FILE_NAMES.iter().map(|name| dir.join(name));
    libraries.find(|library| library.is_file())
}

/// Bytes of the ELF header that are compared with this program's: class and byte order; machine.
const OURS: [std::ops::Range<usize>; 2] = [0..6, 18..20];

/// The reason why a library cannot be loaded here, from its ELF header. libfabric skips such a
/// library silently, and a truncated one kills ranks with a bus error.
fn flaw(library: &Path) -> Option<String> {
    let bad = |why: String| Some(format!("{}: {why}", library.display()));
    let (head, length) = match elf::head(library) {
        Ok(read) => read,
        Err(error) => return bad(format!("{error}; ranks have to be able to read it")),
    };
    let own = head_of_ours().unwrap_or(head);
    if OURS.into_iter().any(|at| head[at.clone()] != own[at]) {
        let built = "build it here (`make build`), or copy it again from where it was built";
        return bad(format!("this is no library for this machine: {built}"));
    }
    let number = |at: usize| u64::from(elf::half(&head, at));
    let table = elf::word(&head, 0x28);
    // The section table is at the end of the file.
    let whole = table.saturating_add(number(0x3a) * number(0x3c));
    if length < whole {
        return bad(format!(
            "only {length} of its {whole} bytes are there (was a disk full?): copy it again"
        ));
    }
    None
}

fn head_of_ours() -> Option<[u8; elf::HEAD]> {
    elf::head(&crate::tool::own_path().ok()?)
        .ok()
        .map(|(head, _)| head)
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
        fs::copy(std::env::current_exe().unwrap(), dir.join(FILE_NAMES[0])).unwrap();
        let error = find_dir(Some(&dir)).unwrap_err();
        assert!(
            error.contains("colon") && error.contains("ln -s "),
            "{error}"
        );
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert_eq!(find_dir(Some(&link)), Ok(link));
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_library_that_cannot_be_loaded_is_refused() {
        let dir = std::env::temp_dir().join(format!("marline-flaw-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let library = dir.join(FILE_NAMES[0]);
        let said = || find_dir(Some(&dir)).unwrap_err();
        fs::write(&library, "").unwrap();
        assert!(said().contains("no library for this machine"), "{}", said());
        let mut whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        fs::write(&library, &whole[..whole.len() / 2]).unwrap();
        assert!(said().contains("bytes are there"), "{}", said());
        fs::write(&library, &whole).unwrap();
        assert_eq!(find_dir(Some(&dir)), Ok(dir.clone()));
        whole[18] ^= 1;
        fs::write(&library, &whole).unwrap();
        assert!(said().contains("no library for this machine"), "{}", said());
        fs::remove_dir_all(&dir).unwrap();
    }
}
