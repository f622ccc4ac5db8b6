//! Checks the house rules on this repository.

#[test]
fn tidy() {
    let report = xtask::tidy(&xtask::root()).expect("the repository can be read");
    // Fewer files would mean that the walk missed some.
    assert!(report.files > 100, "{} files", report.files);
    let complaints = report.complaints.join("\n");
    assert!(
        complaints.is_empty(),
        "`cargo xtask tidy` says:\n{complaints}"
    );
}
