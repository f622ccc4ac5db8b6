//! Frames of a packet as text of a trace.

use marline_wire::{Frame, Packet};

/// The frames of a packet, for a trace.
pub(crate) fn frames_text(packet: &Packet<'_>) -> String {
    let mut text = String::new();
    for (frame, _) in packet.frames() {
        match frame {
            Frame::Eager(f) => {
                text += &format!("eager#{}:{}/{} ", f.head.number, f.len, f.head.total)
            }
            Frame::Data(f) => {
                text += &format!("data#{}@{}+{}/{} ", f.number, f.offset, f.len, f.total);
            }
            Frame::Rts(f) => text += &format!("rts#{}:{} ", f.head.number, f.head.total),
            Frame::Grant(f) => text += &format!("grant#{}:{}/{} ", f.number, f.upto, f.wanted),
            Frame::Ack(f) => {
                let newest: u32 = f.masks.iter().map(|b| b.count_ones()).sum();
                text += &format!("ack {:04x}@{}x{} ", f.path, f.base, newest);
            }
            Frame::Written(f) => {
                text += &format!("written#{}@{}+{}/{} ", f.number, f.offset, f.len, f.total);
            }
            Frame::Hello(_) => text += "hello ",
            Frame::Read(f) => text += &format!("read#{}:{} ", f.number, f.len),
            other => text += &format!("{other:?} "),
        }
    }
    text
}
