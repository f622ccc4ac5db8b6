//! Timers wait until received packets have been read.

/// Timers are deferred at most this often while packets arrive without a pause.
const PUT_OFF_MAX: u32 = 64;

/// Tracks whether a process has unread packets of groups. After a long poll gap, or with several
/// rails, the missing chunks and acknowledgements may be among them, so timers wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backlog {
    /// Packets have arrived since a poll of all rails last found none.
    unread: bool,
    /// How often timers were deferred since that poll.
    put_off: u32,
}

impl Backlog {
    /// Records received packets of a group.
    pub fn came(&mut self) {
        self.unread = true;
    }

    /// Records that a poll of all rails found nothing.
    pub fn caught_up(&mut self) {
        self.unread = false;
    }

    /// Returns whether timers must wait. Call this once per attempt.
    pub fn must_read_first(&mut self) -> bool {
        self.put_off = if self.unread { self.put_off + 1 } else { 0 };
        self.put_off % PUT_OFF_MAX != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_wait_for_unread_packets_but_not_forever() {
        let mut backlog = Backlog::default();
        assert!(!backlog.must_read_first());
        backlog.came();
        let put_off = (0..1_000).take_while(|_| backlog.must_read_first()).count();
        assert_eq!(put_off, PUT_OFF_MAX as usize - 1);
        backlog.caught_up();
        assert!(!backlog.must_read_first());
    }
}
