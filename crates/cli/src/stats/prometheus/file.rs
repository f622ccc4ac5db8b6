//! Files that other programs read at any time.

use crate::tool;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Replaces a file at once, by a new one that every user may read.
pub fn replace(path: &Path, text: &str) -> Result<(), String> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new{}", std::process::id()));
    let new = Path::new(&new);
    let written = tool::write_new(new, text.as_bytes())
        .and_then(|()| fs::set_permissions(new, Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(new, path));
    written.map_err(|error| {
        let _ = fs::remove_file(new);
        format!("{}: {error}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_replaced_whole() {
        let dir = std::env::temp_dir().join(format!("marline-whole-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("m.prom");
        replace(&path, "first").unwrap();
        // An open reader keeps the old contents.
        let before = fs::File::open(&path).unwrap();
        replace(&path, "second").unwrap();
        assert_eq!(std::io::read_to_string(before).unwrap(), "first");
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::create_dir(dir.join("folder")).unwrap();
        assert!(replace(&dir.join("folder"), "x")
            .unwrap_err()
            .contains("folder"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        fs::remove_dir_all(&dir).unwrap();
    }
}
