//! Frames with arbitrary contents.

use crate::input::Input;
use marline_wire::{
    blocks, Ack, AckMasks, Advertisement, Data, Eager, Frame, Grant, Have, MsgHead, Read, Rkey,
    Rts, Written, ACK_MASKS_MAX, BLOCK_BYTES, RAILS_MAX,
};

/// Usually a small number, sometimes any.
fn small(input: &mut Input<'_>) -> u64 {
    match input.below(16) {
        1 => input.any(),
        2 => u64::MAX,
        _ => input.below(12),
    }
}

fn head(input: &mut Input<'_>) -> MsgHead {
    MsgHead {
        number: small(input) as u32,
        flags: input.pick(&[0, 1, 1, 3, 5, 8, 64, 255]),
        tag: input.below(4),
        data: 0,
        total: total(input),
    }
}

fn total(input: &mut Input<'_>) -> u64 {
    match input.below(8) {
        0 => input.any::<u64>() >> 8,
        1 => input.pick(&[65_536, 65_537, (1 << 56) - 1, 1 << 40]),
        _ => input.below(3_000),
    }
}

/// Any frame except HELLO.
pub fn frame(input: &mut Input<'_>) -> Frame {
    match input.below(12) {
        0..=2 => {
            let head = head(input);
            let whole = (1 + input.below(4)) * BLOCK_BYTES;
            let len = whole.min(head.total) as u16;
            Frame::Eager(Eager { head, len, sum: 0 })
        }
        3..=5 => data(input),
        6 => Frame::Rts(Rts { head: head(input) }),
        7 => Frame::Grant(Grant {
            number: small(input) as u32,
            flags: input.pick(&[0, 8, 128, 255]),
            upto: total(input),
            wanted: total(input),
        }),
        8 => ack(input),
        9 => Frame::Read(Read {
            number: small(input) as u32,
            flags: 0,
            key: 0,
            addr: input.any(),
            len: total(input),
            upto: total(input),
        }),
        10 => match input.below(3) {
            0 => Frame::Credit {
                bytes: small(input),
            },
            1 => Frame::ReadFail {
                number: small(input) as u32,
            },
            _ => Frame::Ping,
        },
        _ => match input.below(8) {
            0 => Frame::Bye {
                arrived: small(input) as u32,
            },
            1 => Frame::Key(Rkey {
                number: small(input) as u32,
                flags: input.pick(&[0, 8, 128, 255]),
                rail: input.below(RAILS_MAX as u64) as u8,
                key: small(input),
            }),
            2 | 3 => written(input),
            4 => Frame::Advertisement(Advertisement {
                number: small(input) as u32,
                segment: small(input) as u8,
                rail: input.below(RAILS_MAX as u64) as u8,
                key: small(input),
                sum: small(input),
            }),
            5 => Frame::Have(Have {
                number: small(input) as u32,
                segments: [input.any(), 0, 0, input.any()],
            }),
            _ => {
                let len = input.below(1_000) as u16;
                let head = len % 8 * 8;
                Frame::Pad { len, head }
            }
        },
    }
}

fn data(input: &mut Input<'_>) -> Frame {
    let total = total(input);
    let block = match input.below(4) {
        0 => input.any::<u64>() % blocks(total),
        _ => input.below(8).min(blocks(total) - 1),
    };
    let offset = block * BLOCK_BYTES;
    let len = ((1 + input.below(4)) * BLOCK_BYTES).min(total - offset) as u16;
    Frame::Data(Data {
        number: small(input) as u32,
        flags: input.pick(&[0, 32, 8, 12, 255]),
        offset,
        total,
        len,
        sum: 0,
    })
}

fn written(input: &mut Input<'_>) -> Frame {
    let total = total(input).max(1);
    let offset = input.below(8).min(blocks(total) - 1) * BLOCK_BYTES;
    let len = ((1 + input.below(200)) * BLOCK_BYTES).min(total - offset) as u32;
    Frame::Written(Written {
        number: small(input) as u32,
        flags: input.pick(&[0, 0, 8, 16]),
        offset,
        total,
        len,
        sum: 0,
    })
}

fn ack(input: &mut Input<'_>) -> Frame {
    let count = input.below(ACK_MASKS_MAX as u64 + 1) as u8;
    let mut bits = [0; ACK_MASKS_MAX];
    bits[..count as usize].fill_with(|| input.pick(&[u64::MAX, 1, 0, 0xff0f]));
    let base = match input.below(8) {
        0 => input.any::<u64>() >> 16,
        _ => input.below(100),
    };
    Frame::Ack(Ack {
        path: input.pick(&[0, 0x101, 0x100, 0xffff]),
        delay_us: input.any(),
        base,
        masks: AckMasks { count, bits },
    })
}
