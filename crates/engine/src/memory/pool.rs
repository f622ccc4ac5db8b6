//! Pooled buffers of the sender's log and of unexpected messages.

/// Buffer lengths; the last is that of the longest eager message. A buffer is less than twice as
/// long as the credit charged for the shortest message in it, so that the bound on unexpected bytes
/// bounds memory within that factor.
const CLASSES: [usize; 10] = [
    64, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536,
];
/// Free buffers kept per class: enough for a burst (64 messages are common), at most 4 MiB per
/// class, and no more than were in use at the same time. New buffers cost page faults, which matter
/// in a window of 64 long sends.
const KEEP: [usize; 10] = [1_024, 512, 256, 256, 128, 128, 64, 64, 64, 64];

/// A buffer; give it back with [`Pool::give`].
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    class: usize,
    /// True for the log, false for unexpected messages.
    logged: bool,
}

impl Buffer {
    /// The buffer's bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// A pool that counts buffers in use and retains some free ones.
#[derive(Debug)]
pub struct Pool {
    free: [Vec<Box<[u8]>>; CLASSES.len()],
    log_bytes: usize,
    log_bytes_max: usize,
    unexpected_bytes: usize,
    out_bytes_max: usize,
    limit: usize,
}

impl Pool {
    /// Creates a pool with at most `limit` bytes in use for the log, apart from small requests from
    /// the reserve.
    pub fn new(limit: usize) -> Pool {
        Pool {
            free: Default::default(),
            log_bytes: 0,
            log_bytes_max: 0,
            unexpected_bytes: 0,
            out_bytes_max: 0,
            limit,
        }
    }

    /// True if the log has room for `len` bytes within its limit.
    pub fn has_room(&self, len: usize) -> bool {
        let class = CLASSES.iter().find(|&&c| len <= c);
        class.is_some_and(|size| self.log_bytes + size <= self.limit)
    }

    /// True if the log has room for buffers of these lengths (at most 64 KiB each).
    pub fn has_room_for(&self, lengths: impl Iterator<Item = usize>) -> bool {
        let size = |len| CLASSES.iter().find(|&&c| len <= c).copied().unwrap_or(len);
        let bytes: usize = lengths.map(size).sum();
        bytes == 0 || self.log_bytes + bytes <= self.limit
    }

    /// Takes a buffer of at least `len` bytes (at most 64 KiB) for the log. `reserve`: may exceed
    /// the limit.
    pub fn take(&mut self, len: usize, reserve: bool) -> Option<Buffer> {
        let class = CLASSES.iter().position(|&c| len <= c)?;
        let size = CLASSES[class];
        if self.log_bytes + size > self.limit && !reserve {
            return None;
        }
        self.log_bytes += size;
        self.log_bytes_max = self.log_bytes_max.max(self.log_bytes);
        Some(self.buffer(class, true))
    }

    /// Takes a buffer for an unexpected message of `len` bytes (at most 64 KiB). Credit bounds
    /// these buffers. They take no room of the log: received messages must not block sends for
    /// which peers may be waiting.
    pub fn take_unexpected(&mut self, len: usize) -> Option<Buffer> {
        let class = CLASSES.iter().position(|&c| len <= c)?;
        self.unexpected_bytes += CLASSES[class];
        Some(self.buffer(class, false))
    }

    fn buffer(&mut self, class: usize, logged: bool) -> Buffer {
        let out = self.log_bytes + self.unexpected_bytes;
        self.out_bytes_max = self.out_bytes_max.max(out);
        let kept = self.free[class].pop();
        let bytes = kept.unwrap_or_else(|| vec![0; CLASSES[class]].into_boxed_slice());
        Buffer {
            bytes,
            class,
            logged,
        }
    }

    /// Takes a buffer back.
    pub fn give(&mut self, buffer: Buffer) {
        let size = CLASSES[buffer.class];
        match buffer.logged {
            true => self.log_bytes -= size,
            false => self.unexpected_bytes -= size,
        }
        if self.free[buffer.class].len() < KEEP[buffer.class] {
            self.free[buffer.class].push(buffer.bytes);
        }
    }

    /// Bytes in use by the log and by unexpected messages.
    pub fn out_bytes(&self) -> (usize, usize) {
        (self.log_bytes, self.unexpected_bytes)
    }

    /// Bytes of all buffers, in use or free.
    pub fn held_bytes(&self) -> usize {
        let kept = self.free.iter().zip(CLASSES);
        self.log_bytes
            + self.unexpected_bytes
            + kept.map(|(free, size)| free.len() * size).sum::<usize>()
    }

    /// Peak bytes in use.
    pub fn out_bytes_max(&self) -> usize {
        self.out_bytes_max
    }

    /// Peak bytes of the log.
    pub fn log_bytes_max(&self) -> usize {
        self.log_bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_and_the_reserve_passes_it() {
        let mut pool = Pool::new(8_192);
        let a = pool.take(4_000, false).unwrap();
        let _b = pool.take(4_096, false).unwrap();
        assert!(pool.take(1, false).is_none());
        assert!(pool.take(64, true).is_some());
        pool.give(a);
        assert!(pool.take(65_537, true).is_none());
        assert_eq!(pool.log_bytes_max(), 8_192 + 64);
    }

    /// A root with a full share of unexpected messages must still be able to send to the peer for
    /// which all others wait.
    #[test]
    fn unexpected_messages_take_no_room_of_the_log() {
        let mut pool = Pool::new(8_192);
        let many: Vec<Buffer> = (0..100)
            .filter_map(|_| pool.take_unexpected(4_000))
            .collect();
        assert_eq!(pool.out_bytes(), (0, 409_600));
        let logged = pool.take(8_000, false).unwrap();
        assert!(pool.take(65, false).is_none());
        many.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!(pool.out_bytes(), (8_192, 0));
        pool.give(logged);
        assert_eq!(pool.out_bytes(), (0, 0));
    }

    /// A message is charged 128 bytes in addition to its own.
    #[test]
    fn a_buffer_takes_less_than_twice_what_its_message_is_charged() {
        let mut pool = Pool::new(0);
        for len in 1..=65_536 {
            let mut buffer = pool.take_unexpected(len).unwrap();
            assert!(buffer.bytes().len() < 2 * (len + 128), "{len}");
            pool.give(buffer);
        }
    }
}
