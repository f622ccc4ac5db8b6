//! Replays the committed inputs, each through its target, so that former findings stay fixed.

use marline_fuzz::TARGETS;
use std::path::Path;

#[test]
fn every_committed_input_passes() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in TARGETS {
        let inputs = std::fs::read_dir(corpora.join(name)).expect("each target has a corpus");
        let mut paths: Vec<_> = inputs.map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        assert!(paths.len() > 3, "{name} has too few inputs");
        for path in paths {
            let data = std::fs::read(&path).expect("an input");
            // Shown only on failure: the panic does not name the input.
            println!("{}", path.display());
            target(&data);
        }
    }
}

#[test]
fn targets_and_corpora_are_the_same() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(corpora).expect("the corpora") {
        let name = entry.expect("an entry").file_name();
        assert!(
            TARGETS.iter().any(|(target, _)| name == **target),
            "{name:?}"
        );
    }
}
