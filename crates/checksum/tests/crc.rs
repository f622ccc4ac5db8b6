//! The CRCs against their definitions, over lengths, alignments and splits.

use marline_checksum::{crc32c, Algorithm, Summer};

fn bitwise(poly: u64, ones: u64, bytes: &[u8]) -> u64 {
    let mut crc = ones;
    for &b in bytes {
        crc ^= b as u64;
        for _ in 0..8 {
            crc = (crc >> 1) ^ (poly & (crc & 1).wrapping_neg());
        }
    }
    crc ^ ones
}

fn sum(algorithm: Algorithm, bytes: &[u8]) -> u64 {
    let mut s = Summer::new(algorithm, 0);
    s.update(bytes);
    s.finish()
}

fn data(len: usize) -> Vec<u8> {
    let mut x = 0x1234_5678_9abc_def1u64;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 24) as u8
        })
        .collect()
}

#[test]
fn published_values() {
    assert_eq!(
        sum(Algorithm::Crc64Nvme, b"123456789"),
        0xae8b_1486_0a79_9888
    );
    // NVM Express: 4 KiB of zeros, of ones, and ascending.
    assert_eq!(sum(Algorithm::Crc64Nvme, &[0; 4096]), 0x6482_d367_eb22_b64e);
    assert_eq!(
        sum(Algorithm::Crc64Nvme, &[0xff; 4096]),
        0xc0dd_ba73_02ec_a3ac
    );
    // RFC 3720, B.4.
    let up: Vec<u8> = (0..32).collect();
    let down: Vec<u8> = (0..32).rev().collect();
    let vectors: [(&[u8], u32); 5] = [
        (&[0; 32], 0x8a91_36aa),
        (&[0xff; 32], 0x62a8_ab43),
        (&up, 0x46dd_794e),
        (&down, 0x113f_db5c),
        (b"123456789", 0xe306_9283),
    ];
    for (bytes, crc) in vectors {
        assert_eq!(crc32c(bytes), crc);
        assert_eq!(sum(Algorithm::Crc32c, bytes), crc as u64);
    }
}

#[test]
fn every_short_length() {
    let d = data(2048);
    for len in (0..700).chain([1023, 1024, 1025, 1344, 1535, 1536, 2000, 2047]) {
        for at in [0, 1] {
            let d = &d[at..at + len];
            let c64 = bitwise(0x9a6c_9329_ac4b_c9b5, !0, d);
            let c32 = bitwise(0x82f6_3b78, 0xffff_ffff, d);
            assert_eq!(sum(Algorithm::Crc64Nvme, d), c64, "len {len}");
            assert_eq!(sum(Algorithm::Crc32c, d), c32, "len {len}");
            assert_eq!(crc32c(d) as u64, c32, "len {len}");
        }
    }
}

#[test]
fn copies_exactly_and_splits_freely() {
    let d = data(1500);
    for algorithm in [Algorithm::None, Algorithm::Crc64Nvme, Algorithm::Crc32c] {
        for len in 0..1500 {
            let mut whole = Summer::new(algorithm, 77);
            whole.update(&d[..len]);
            let cut = len * 5 / 7;
            let mut out = vec![0xa5u8; len + 64];
            let mut parts = Summer::new(algorithm, 77);
            // SAFETY: `out` is longer than both parts together and does not overlap `d`.
            unsafe {
                parts.copy(out.as_mut_ptr().add(1), d.as_ptr(), cut);
                parts.copy(
                    out.as_mut_ptr().add(1 + cut),
                    d.as_ptr().add(cut),
                    len - cut,
                );
            }
            assert_eq!(parts.finish(), whole.finish(), "{algorithm:?} len {len}");
            assert_eq!(out[1..1 + len], d[..len]);
            assert!(
                out[0] == 0xa5 && out[1 + len..].iter().all(|&b| b == 0xa5),
                "len {len}"
            );
        }
    }
}
