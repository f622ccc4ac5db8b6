//! Packets that came and were not read: what is due waits for them.

/// Where packets come without a pause, what is due is put off so often.
const PUT_OFF_MAX: u32 = 64;

/// Knowledge of packets of groups that are still to be read by a process. Whoever was away for
/// long, or has several rails to read, finds what it misses, and the acknowledgements that it waits
/// for, among them: so its timers wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backlog {
    /// Packets came, and since then no look at all rails has found nothing.
    unread: bool,
    /// How often what is due was put off until that is so.
    put_off: u32,
}

impl Backlog {
    /// Packets of a group came.
    pub fn came(&mut self) {
        self.unread = true;
    }

    /// A look at all rails found nothing.
    pub fn caught_up(&mut self) {
        self.unread = false;
    }

    /// Tells if what is due has to wait: to be asked once for each time that it would be done.
    pub fn must_read_first(&mut self) -> bool {
        self.put_off = if self.unread { self.put_off + 1 } else { 0 };
        self.put_off % PUT_OFF_MAX != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_waits_until_all_is_read_and_not_for_ever() {
        let mut backlog = Backlog::default();
        assert!(!backlog.must_read_first());
        backlog.came();
        let put_off = (0..1_000).take_while(|_| backlog.must_read_first()).count();
        assert_eq!(put_off, PUT_OFF_MAX as usize - 1);
        backlog.caught_up();
        assert!(!backlog.must_read_first());
    }
}
