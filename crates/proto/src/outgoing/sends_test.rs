//! Outgoing messages without a node: from the queue to the last ack, a refusal, or the peer's end.

use super::*;
use crate::state::context::testing::Parts;
use crate::state::transfer::new_send;
use marline_wire::{HeadWriter, MsgHead, FLAG_PUT};

const PEER: PeerId = PeerId(0);

fn head(number: u32, total: u64, flags: u8) -> MsgHead {
    MsgHead {
        number,
        flags,
        tag: 0,
        data: 0,
        total,
    }
}

/// A queued message; the handle is its number.
fn post(outgoing: &mut Outgoing, conn: &mut Conn, number: u32, total: u64, flags: u8) -> Key {
    let send = new_send(number, PEER, head(number, total, flags), SendKind::Queued);
    let key = outgoing.insert(send);
    conn.tx.queue.push_back(key);
    key
}

/// The frames of a packet with the heads that are due.
fn heads(outgoing: &mut Outgoing, parts: &mut Parts) -> Vec<FrameRef> {
    let mut conn = parts.directory.peers[0].conn.take().expect("opened");
    let (mut out, mut spans) = ([0; 2_048], Vec::new());
    let writer = HeadWriter::new(&mut out, 1_400);
    let mut b = Builder::new(writer, &mut spans, Vec::new());
    outgoing.add_heads(&mut parts.context(), &mut conn, 0, &mut b);
    let frames = b.frames.clone();
    parts.directory.peers[0].conn = Some(conn);
    frames
}

fn done(parts: &mut Parts) -> Vec<(u32, bool)> {
    let ended = |event| match event {
        Event::SendDone { handle, ok } => Some((handle, ok)),
        _ => None,
    };
    parts.events.drain(..).filter_map(ended).collect()
}

fn with_conn(parts: &mut Parts, f: impl FnOnce(&mut Conn)) {
    f(parts.directory.conn_mut(PEER).expect("opened"));
}

#[test]
fn short_messages_leave_with_their_payload_and_end_with_its_ack() {
    let (mut parts, mut outgoing) = (Parts::with_peers(1), Outgoing::new(7));
    let mut keys = Vec::new();
    with_conn(&mut parts, |conn| {
        keys = [0, 1].map(|n| post(&mut outgoing, conn, n, 8, 0)).to_vec();
    });
    let frames = heads(&mut outgoing, &mut parts);
    let data = |xfer| FrameRef::Data {
        xfer,
        offset: 0,
        len: 8,
    };
    assert_eq!(frames, [data(keys[0]), data(keys[1])]);
    assert_eq!(parts.stats.eager_sent, 2);
    outgoing.arrived(&mut parts.context(), (keys[1], 0, 8));
    assert_eq!(done(&mut parts), [(1, true)]);
    assert_eq!(outgoing.len(), 1);
}

#[test]
fn a_message_without_credit_is_requested_and_leaves_as_far_as_granted() {
    let (mut parts, mut outgoing) = (Parts::with_peers(1), Outgoing::new(7));
    let total = 4 * BLOCK_BYTES;
    let mut key = Key::default();
    with_conn(&mut parts, |conn| {
        conn.credit.spend(8 * 1_024);
        key = post(&mut outgoing, conn, 0, total, 0);
    });
    assert_eq!(heads(&mut outgoing, &mut parts), [FrameRef::Rts(key)]);
    let grant = |upto, flags| Grant {
        number: 0,
        flags,
        upto,
        wanted: total,
    };
    outgoing.on_grant(
        &mut parts.context(),
        1,
        PEER,
        &grant(2 * BLOCK_BYTES + 1, 0),
    );
    let send = outgoing.get(key).map(|send| (send.upto, send.in_bulk));
    assert_eq!(send, Some((2 * BLOCK_BYTES, true)), "whole blocks");
    outgoing.arrived(&mut parts.context(), (key, 0, 2 * BLOCK_BYTES as u32));
    assert_eq!(done(&mut parts), []);
    outgoing.on_grant(&mut parts.context(), 1, PEER, &grant(total, 0));
    let rest = (key, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES as u32);
    outgoing.arrived(&mut parts.context(), rest);
    assert_eq!(done(&mut parts), [(0, true)]);
}

#[test]
fn a_refused_remote_write_ends_and_a_message_cannot_be_refused() {
    let (mut parts, mut outgoing) = (Parts::with_peers(1), Outgoing::new(7));
    with_conn(&mut parts, |conn| {
        for (number, flags) in [(0, FLAG_PUT), (1, 0)] {
            let key = post(&mut outgoing, conn, number, 100, flags);
            outgoing.get_mut(key).expect("posted").waits = true;
        }
    });
    assert_eq!(heads(&mut outgoing, &mut parts).len(), 2);
    for number in [0, 1] {
        let refusal = Grant {
            number,
            flags: FLAG_REFUSED,
            upto: 0,
            wanted: 0,
        };
        outgoing.on_grant(&mut parts.context(), 1, PEER, &refusal);
    }
    let refused = parts.events.pop_front();
    assert_eq!(refused, Some(Event::PutRefused { handle: 0 }));
    assert_eq!((parts.events.len(), outgoing.len()), (0, 1));
}

#[test]
fn a_closing_peer_says_which_messages_it_has() {
    let (mut parts, mut outgoing) = (Parts::with_peers(1), Outgoing::new(7));
    with_conn(&mut parts, |conn| {
        for number in [0, 1] {
            post(&mut outgoing, conn, number, 8, 0);
        }
    });
    assert_eq!(heads(&mut outgoing, &mut parts).len(), 2);
    outgoing.end_peer(&mut parts.context(), PEER, Some(1));
    assert_eq!(done(&mut parts), [(0, true), (1, false)]);
}
