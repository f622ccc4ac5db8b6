//! The house rules hold.

#[test]
fn tidy() {
    let report = xtask::tidy(&xtask::root()).expect("the repository can be read");
    // Of more files than that, or the walk missed them.
    assert!(report.files > 100, "{} files", report.files);
    let complaints = report.complaints.join("\n");
    assert!(
        complaints.is_empty(),
        "`cargo xtask tidy` says:\n{complaints}"
    );
}
