//! Long messages between two engines of one process with checksum workers: the bytes are right,
//! workers did sum, and their threads exist exactly while they are needed. One test, as it counts
//! the threads of its process.

#[path = "support/limit.rs"]
mod limit;
#[path = "support/side.rs"]
mod side;

use limit::Limit;
use marline_engine::stats::reader::{list_pages, read_page};
use marline_engine::{Completion, IoVec, LogSink, OpFlags, RecvReq, SendReq, SubmitError};
use side::Side;
use std::path::Path;
use std::sync::Arc;

const FLAGS: OpFlags = OpFlags {
    delivery_complete: true,
    ..OpFlags::COMPLETION
};

fn side(settings: &[(&str, &str)]) -> Side {
    side::side(settings, LogSink(Arc::new(|_, _| ())))
}

fn poll(side: &Side) -> usize {
    let mut out = [Completion::empty(); 16];
    side.engine.cq_read(side.cq, &mut out).unwrap()
}

/// Sends one message from `a` to `b`, into a buffer with other contents.
fn exchange(a: &Side, b: &Side, sent: &mut [u8], got: &mut [u8], limit: &Limit) {
    let iov = |bytes: &mut [u8]| {
        [IoVec {
            base: bytes.as_mut_ptr(),
            len: bytes.len(),
        }]
    };
    let (to, from) = (iov(got), iov(sent));
    let recv = RecvReq {
        source: 0,
        iov: &to,
        tag: Some((7, 0)),
        context: 1,
        flags: FLAGS,
    };
    b.engine.recv(b.ep, &recv).unwrap();
    let send = SendReq {
        dest: 0,
        iov: &from,
        tag: Some(7),
        data: None,
        context: 2,
        flags: FLAGS,
    };
    let mut done = 0;
    while a.engine.send(a.ep, &send) == Err(SubmitError::Again) {
        done += poll(a) + poll(b);
    }
    while done < 2 {
        limit.check("a message");
        done += poll(a) + poll(b);
    }
}

/// Number of checksum threads of this process.
fn workers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "marline-sums").count()
}

/// Bytes that workers have summed, by engine.
fn summed(dir: &Path) -> Vec<u64> {
    let pages = list_pages(dir)
        .into_iter()
        .filter_map(|p| read_page(&p).ok());
    pages.map(|page| page.process.summed_by_workers).collect()
}

/// Sends messages from `a` to `b` until `enough`, each with its own content.
fn play(rails: &str, workers: &str, dir: &Path, enough: impl Fn() -> bool) {
    let stats_dir = dir.to_str().unwrap();
    let given = [
        ("rails", rails),
        ("checksum_workers", workers),
        ("stats_dir", stats_dir),
    ];
    let (a, b) = (side(&given), side(&given));
    for (from, to) in [(&a, &b), (&b, &a)] {
        let (name, len) = from.engine.ep_name(from.ep).unwrap();
        assert_eq!(to.engine.av_insert(to.av, &name[..len]), Ok(0));
    }
    let (limit, mut round) = (Limit::begin(), 0u32);
    let mut got = vec![0; 1_500_000];
    while round < 4 || !enough() {
        let byte = |n: u32| n.wrapping_mul(31).wrapping_add(n >> 9).wrapping_add(round) as u8;
        let mut sent: Vec<u8> = (0..got.len() as u32).map(byte).collect();
        exchange(&a, &b, &mut sent, &mut got, &limit);
        assert!(sent == got, "{rails} {workers}: message {round}");
        round += 1;
    }
    for side in [&a, &b] {
        side.engine.ep_close(side.ep);
        side.engine.close();
    }
}

#[test]
fn workers_sum_what_engines_send_and_receive() {
    let dir = std::env::temp_dir().join(format!("marline-sums-{}", std::process::id()));
    for rails in ["tcp:lo", "shm", "lo"] {
        std::fs::create_dir_all(&dir).unwrap();
        play(rails, "0", &dir, || true);
        assert_eq!((workers(), summed(&dir)), (0, vec![0, 0]), "{rails}");
        std::fs::remove_dir_all(&dir).unwrap();

        std::fs::create_dir_all(&dir).unwrap();
        play(rails, "2", &dir, || {
            summed(&dir).iter().sum::<u64>() > 0 && workers() > 0
        });
        assert_eq!(workers(), 0, "{rails}: none is left");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
