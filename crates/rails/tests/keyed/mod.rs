//! Rails of jobs with keys, on a device.

use super::{link, send, wait, End};
use marline_auth::{ConnectionKeys, JobKey, JOB_KEY_LEN};
use marline_rails::{Links, RailEvent, RailTx, VerbsConfig};
use std::sync::Arc;

/// Rails of one job meet, and the device drops what a rail of another one sends, and counts it.
#[test]
#[ignore = "needs a verbs device: scripts/guest"]
fn a_key_keeps_others_out() {
    let of_job = |kind: &str, job: u8| {
        let key = JobKey::new([job; JOB_KEY_LEN]);
        let verbs = VerbsConfig {
            keys: Some(Arc::new(ConnectionKeys::new(&key))),
            ..VerbsConfig::default()
        };
        End::with(kind, verbs)
    };
    for kind in ["ud", "rc", "uc"] {
        let [mut a, mut b, mut other] = [1, 1, 2].map(|job| of_job(kind, job));
        let to_b = link(&mut a, &mut b);
        send(&mut a, to_b, &[1; 1000]);
        let came = wait(&mut a, &mut b, |_, b| b.packets.pop_front());
        assert_eq!(came, [1; 1000], "{kind}");
        let connected = other.tx.connect(&b.tx.local_addr());
        wait(&mut other, &mut b, |other, b| {
            let _ = other.tx.send(connected.link, &[2; 100], 100, 0);
            let counted = |event: &RailEvent| matches!(event, RailEvent::QKeyViolations(1..));
            b.events.iter().any(counted).then_some(())
        });
        let up = RailEvent::LinkUp(connected.link);
        let up = connected.up || other.events.contains(&up);
        assert_eq!(up, kind == "ud", "{kind}: without a handshake");
        assert!(b.packets.is_empty(), "{kind}");
    }
}
