//! The table at the end of a run: one line per rail, from the statistics that the ranks left.

use marline_engine::stats::{reader, summary};
use std::fs;
use std::path::{Path, PathBuf};

/// A fresh directory for a job's statistics, removed when dropped.
pub struct StatsDir(PathBuf);

impl StatsDir {
    /// Makes it, in memory where the machine has a place for that.
    pub fn create() -> Result<StatsDir, String> {
        use std::os::unix::fs::DirBuilderExt;
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let since_epoch = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default();
        let name = format!(
            "marline-stats-{}-{}",
            std::process::id(),
            since_epoch.as_nanos()
        );
        let path = base.join(name);
        // Other users have no business in it, and the name must not exist yet.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(StatsDir(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Prints the table on standard error: standard output belongs to the program.
    pub fn print_summary(&self) {
        let mut pages = Vec::new();
        for path in reader::list_pages(&self.0) {
            match reader::read_page(&path) {
                Ok(page) => pages.push(page),
                Err(error) => eprintln!("marline: {error}"),
            }
        }
        eprint!("{}", summary::format_summary(&summary::Summary::of(&pages)));
    }
}

impl Drop for StatsDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_private_and_goes_away() {
        use std::os::unix::fs::PermissionsExt;
        let dir = StatsDir::create().unwrap();
        let path = dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        dir.print_summary();
        drop(dir);
        assert!(!path.exists());
    }
}
