//! Clusters of two versions of the protocol: neighbours agree, what is newer is skipped.

use marline_sim::{run_setup, Profile, Setup};

/// Half of the endpoints speak this version, half the next one, too, with one more kind of frame
/// and one more field of HELLO; 1 % of the packets get lost.
#[test]
fn a_cluster_of_two_versions_works_under_loss() {
    let (mut skipped, mut read, mut lost) = (0, 0, 0);
    for seed in 0..12 {
        let mut setup = Setup::draw(seed, Profile::Calm, 4, 2);
        setup.versions = true;
        setup.packet_faults.drop = 10_000;
        let outcome = run_setup(&setup, false);
        assert!(
            outcome.failure.is_none(),
            "seed {seed}: {:?}",
            outcome.failure
        );
        skipped += outcome.skipped.0;
        read += outcome.skipped.1;
        lost += outcome.rails.iter().map(|rail| rail.lost).sum::<u64>();
    }
    assert!(
        skipped > 0,
        "endpoints of this version met those of the next"
    );
    assert!(read > 0, "endpoints of the next version met");
    assert!(lost > 0);
}
