//! The lanes and constants of the AES sum (`crate::aes`), shared by all of its kernels.

/// Bytes per group: 16 lanes of 16 bytes.
pub(crate) const GROUP: usize = 256;

/// The lanes; aligned for the 512-bit kernel.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Lanes(pub(crate) [[u8; 16]; 16]);

/// The first 32 numbers of SplitMix64: no hidden structure, and all lanes differ.
pub(crate) static START: Lanes = Lanes({
    let mut lanes = [[0; 16]; 16];
    let mut i = 0;
    while i < 32 {
        let bytes = splitmix(i as u64).to_le_bytes();
        let mut j = 0;
        while j < 8 {
            lanes[i / 2][i % 2 * 8 + j] = bytes[j];
            j += 1;
        }
        i += 1;
    }
    lanes
});

const fn splitmix(i: u64) -> u64 {
    splitmix_from(0, i)
}

/// The `i`-th number of SplitMix64 started from `start`.
pub(crate) const fn splitmix_from(start: u64, i: u64) -> u64 {
    let step = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut z = start.wrapping_add(step);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The factors of the lanes' halves.
pub(crate) static KEYS: Keys = Keys({
    let mut keys = [0; 32];
    let mut i = 0;
    while i < 32 {
        keys[i] = splitmix(32 + i as u64);
        i += 1;
    }
    keys
});

/// The factor of the length.
pub(crate) const LENGTH_KEY: u64 = splitmix(64);

/// x^64 modulo the polynomial of the field.
pub(crate) const FIELD: u64 = 0x1b;

/// A factor per half of a lane; aligned for the 512-bit kernel.
#[repr(align(64))]
pub(crate) struct Keys(pub(crate) [u64; 32]);

/// Multiplies by x in the AES field.
pub(crate) const fn double(v: u8) -> u8 {
    (v << 1) ^ (0x1b & (v >> 7).wrapping_neg())
}

/// The AES S-box, from its definition: inverse in the field, then an affine map.
static SBOX: [u8; 256] = {
    let mut t = [0; 256];
    // `p` enumerates the powers of the generator 3, `q` those of its inverse.
    let (mut p, mut q) = (1u8, 1u8);
    loop {
        p ^= double(p);
        q ^= q << 1;
        q ^= q << 2;
        q ^= q << 4;
        q ^= 0x09 & (q >> 7).wrapping_neg();
        let v = q ^ q.rotate_left(1) ^ q.rotate_left(2) ^ q.rotate_left(3) ^ q.rotate_left(4);
        t[p as usize] = v ^ 0x63;
        if p == 1 {
            break;
        }
    }
    t[0] = 0x63;
    t
};

/// The result of the AESENC instruction.
pub(crate) fn round(v: [u8; 16], key: [u8; 16]) -> [u8; 16] {
    let mut out = [0; 16];
    for column in 0..4 {
        let s: [u8; 4] = std::array::from_fn(|row| SBOX[v[(column + row) % 4 * 4 + row] as usize]);
        let all = s[0] ^ s[1] ^ s[2] ^ s[3];
        for row in 0..4 {
            let i = column * 4 + row;
            out[i] = s[row] ^ all ^ double(s[row] ^ s[(row + 1) % 4]) ^ key[i];
        }
    }
    out
}
