//! What a peer keeps that says nothing any more.

mod face;

use face::Pair;

/// Bytes of the sender's only peer.
fn bytes(pair: &Pair) -> usize {
    let (bytes, peers) = pair.a.peer_bytes();
    assert_eq!(peers, 1);
    bytes
}

/// Rings that were long once stayed so: 40 KB for each peer that ever got a long message.
#[test]
fn what_a_burst_took_is_given_back() {
    let mut pair = Pair::new(1, true);
    for handle in 2..40 {
        pair.message(handle, 4 << 20);
        pair.message(1_000 + handle, 64);
    }
    pair.settle();
    assert!(pair.a.drained());
    let busy = bytes(&pair);
    assert!(busy > 40_000, "only {busy} bytes");
    pair.now += 2_000_000_000;
    pair.a.on_poll(pair.now, false);
    let idle = bytes(&pair);
    assert!(idle <= 2_048, "{idle} bytes, of {busy}");
    // And it goes on as before.
    pair.message(2, 4 << 20);
    pair.settle();
    assert!(pair.a.drained() && bytes(&pair) > 10_000);
}

/// What still waits for an ack stays, however long nothing was heard.
#[test]
fn nothing_is_given_back_that_is_needed() {
    let mut pair = Pair::new(1, true);
    pair.send(2, 60_000);
    let sent = pair.alone();
    assert!(sent.len() > 20);
    for _ in 0..5 {
        pair.now += 1_000_000_000;
        pair.a.on_poll(pair.now, false);
    }
    assert!(bytes(&pair) > 2_048);
    pair.settle();
    assert!(pair.a.drained());
}
