//! Pooled buffers of the sender's log and of unexpected messages.

/// Sizes that buffers come in. The last is the longest eager message.
const CLASSES: [usize; 5] = [64, 512, 4_096, 16_384, 65_536];
/// Free buffers kept per class: enough for a burst (64 messages are common), at most 2 MiB of each
/// class, and only what was in use at once before. A new buffer costs its page faults.
const KEEP: [usize; 5] = [1_024, 256, 128, 64, 32];

/// A buffer; it goes back by [`Pool::give`].
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    class: usize,
}

impl Buffer {
    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// The pool: counts what is out, keeps some of what comes back.
#[derive(Debug)]
pub struct Pool {
    free: [Vec<Box<[u8]>>; 5],
    out_bytes: usize,
    out_bytes_max: usize,
    limit: usize,
}

impl Pool {
    /// A pool that gives out at most `limit` bytes at a time (small reserve requests excepted).
    pub fn new(limit: usize) -> Pool {
        Pool {
            free: Default::default(),
            out_bytes: 0,
            out_bytes_max: 0,
            limit,
        }
    }

    /// A buffer of at least `len` bytes (at most 64 KiB). `reserve`: may exceed the limit.
    pub fn take(&mut self, len: usize, reserve: bool) -> Option<Buffer> {
        let class = CLASSES.iter().position(|&c| len <= c)?;
        let size = CLASSES[class];
        if self.out_bytes + size > self.limit && !reserve {
            return None;
        }
        let bytes = self.free[class]
            .pop()
            .unwrap_or_else(|| vec![0; size].into_boxed_slice());
        self.out_bytes += size;
        self.out_bytes_max = self.out_bytes_max.max(self.out_bytes);
        Some(Buffer { bytes, class })
    }

    /// Takes a buffer back.
    pub fn give(&mut self, buffer: Buffer) {
        self.out_bytes -= CLASSES[buffer.class];
        if self.free[buffer.class].len() < KEEP[buffer.class] {
            self.free[buffer.class].push(buffer.bytes);
        }
    }

    /// Most bytes that were out at once.
    pub fn out_bytes_max(&self) -> usize {
        self.out_bytes_max
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
        assert_eq!(pool.out_bytes_max(), 8_192 + 64);
    }
}
