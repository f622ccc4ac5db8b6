//! Mistakes with first pieces are noticed: pieces beyond the credit, without memory, copied twice,
//! and receives that end without them.
#![cfg(feature = "mutation")]

use crate::face;

use face::pieces::{prompt_with, receive, run, run_through, Places, FIRST, LEN};
use face::{output, Flying};
use marline_proto::{Config, Mutation};
use marline_wire::{Frame, Packet};

fn config(mutation: Option<Mutation>) -> Config {
    Config {
        mutation,
        ..Config::default()
    }
}

/// Returns whether a request brings bytes although other messages have used the credit.
fn sends_beyond_credit(mutation: Option<Mutation>) -> bool {
    let config = Config {
        credit_bytes: 128 << 10,
        unexpected_bytes: 512 << 10,
        ..config(mutation)
    };
    let (mut pair, mut places) = (prompt_with(config), Places::default());
    for handle in 20..22 {
        pair.send(handle, 60_000);
        run(&mut pair, &mut places);
    }
    pair.send(50, LEN);
    let packets = output(&mut pair.a, pair.now, true);
    packets.iter().any(|(_, bytes)| {
        let packet = Packet::parse(bytes, |_| 0).unwrap();
        let brings = |(frame, _)| matches!(frame, Frame::Rts(rts) if rts.first > 0);
        let found = packet.frames().any(brings);
        found
    })
}

#[test]
fn a_piece_without_credit_is_noticed() {
    assert!(!sends_beyond_credit(None));
    assert!(sends_beyond_credit(Some(Mutation::SendUncredited)));
}

#[test]
fn a_piece_without_charge_is_noticed() {
    for (mutation, charged) in [(None, FIRST + 128), (Some(Mutation::HoldUncharged), 128)] {
        let (mut pair, mut places) = (prompt_with(config(mutation)), Places::default());
        pair.send(20, LEN);
        run(&mut pair, &mut places);
        assert_eq!(pair.b.held().unexpected_bytes, charged);
        assert_eq!(places.bounced.len(), 1);
    }
}

/// The errors seen in a message whose second fragment is lost; its receive is posted `late` or
/// before it.
fn wrong_after_a_loss(mutation: Option<Mutation>, late: bool) -> Vec<&'static str> {
    let (mut pair, mut places) = (prompt_with(config(mutation)), Places::default());
    if !late {
        receive(&mut pair, 20, LEN);
    }
    pair.send(20, LEN);
    let mut count = 0;
    let mut passes = |from: usize, _: &Flying| {
        count += (from == 0) as u32;
        from != 0 || count != 3
    };
    if late {
        let packets = output(&mut pair.a, pair.now, true);
        for packet in packets.iter().filter(|packet| passes(0, packet)) {
            let parsed = Packet::parse(&packet.1, |_| 0).unwrap();
            (pair.b)
                .handle_packet(pair.now, &parsed, packet.1.len(), &mut places)
                .unwrap();
        }
        receive(&mut pair, 20, LEN);
    }
    run_through(&mut pair, &mut places, &mut passes);
    places.wrong
}

#[test]
fn a_piece_that_is_copied_again_is_noticed() {
    assert_eq!(wrong_after_a_loss(None, true), [""; 0]);
    let wrong = wrong_after_a_loss(Some(Mutation::CopyPieceAgain), true);
    assert_eq!(wrong, ["copies what has not come"]);
}

#[test]
fn a_receive_that_ends_without_its_piece_is_noticed() {
    assert_eq!(wrong_after_a_loss(None, false), [""; 0]);
    let wrong = wrong_after_a_loss(Some(Mutation::EndWithoutPiece), false);
    assert_eq!(wrong, ["a receive ends before its message"]);
}
