//! Runs a test with a fake libibverbs (`verbs.c`): the test is repeated in a separate
//! process whose loader finds the fake first.

use std::path::PathBuf;
use std::process::Command;

/// Variable with the folder of the files that the fake reads.
const FOLDER: &str = "STAND_IN";

/// The fake's devices, as a test sees them.
pub struct FakeVerbs {
    folder: PathBuf,
}

impl FakeVerbs {
    /// Runs the test of this name in a process whose devices have these ports (format: see
    /// `verbs.c`), and returns `None`; in that process, returns the fake.
    pub fn enter(name: &str, ports: &[&str]) -> Option<FakeVerbs> {
        if let Some(folder) = std::env::var_os(FOLDER) {
            let folder = PathBuf::from(folder);
            return Some(FakeVerbs { folder });
        }
        let folder = std::env::temp_dir().join(format!("marline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_verbs/verbs.c");
        let library = folder.join("libibverbs.so.1");
        let compiled = Command::new("cc")
            .args([
                "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o",
            ])
            .args([library.as_os_str(), source.as_ref()])
            .status();
        assert!(
            compiled.unwrap().success(),
            "cc and libibverbs-dev: scripts/install-deps"
        );
        let fake_verbs = FakeVerbs { folder };
        fake_verbs.has(ports);
        let test = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(FOLDER, &fake_verbs.folder)
            .env("LD_LIBRARY_PATH", &fake_verbs.folder)
            .output();
        std::fs::remove_dir_all(&fake_verbs.folder).unwrap();
        let test = test.unwrap();
        let [said, wrong] = [test.stdout, test.stderr].map(|text| String::from_utf8(text).unwrap());
        // A wrong test name would run no test and succeed.
        let ran = test.status.success() && said.contains("1 passed");
        assert!(ran, "{said}{wrong}");
        None
    }

    /// Sets the devices' ports.
    pub fn has(&self, ports: &[&str]) {
        let new = self.folder.join("new");
        std::fs::write(&new, ports.join("\n")).unwrap();
        std::fs::rename(new, self.folder.join("ports")).unwrap();
    }

    /// The marks that the devices were given since the last call, each once, in order.
    #[allow(dead_code)] // not all tests ask
    pub fn marks(&self) -> Vec<String> {
        let file = self.folder.join("marks");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let _ = std::fs::remove_file(file);
        let mut marks: Vec<String> = text.lines().map(str::to_owned).collect();
        marks.sort();
        marks.dedup();
        marks
    }

    /// Makes the devices report an event, by its number in verbs, for a port or queue pair.
    pub fn tells(&self, event: u32, which: u32) {
        let events = self.folder.join("events");
        let before = std::fs::read_to_string(&events).unwrap_or_default();
        std::fs::write(events, format!("{before}{event} {which}\n")).unwrap();
    }
}
