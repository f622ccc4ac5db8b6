//! CRC arithmetic shared by all kernels, and the portable kernel.
//!
//! Both CRCs are reflected and treated as 64-bit CRCs. CRC-32C becomes the 64-bit CRC of the
//! polynomial x^32 * P(x): M * x^64 mod (x^32 * P) = x^32 * (M * x^32 mod P), so its register is in
//! the low 32 bits and the high bits stay zero. One set of folding kernels then serves both.
//!
//! Convention: bit `j` of a 64-bit register represents x^(63-j). In a carry-less product of two
//! such registers bit `k` represents x^(126-k), one power less than in a 128-bit register
//! (x^(127-k)); the constants below are divided by x to compensate.

/// A reflected CRC polynomial and constants derived at compile time.
pub(crate) trait Poly {
    /// The polynomial without its x^64 term, reflected.
    const REFLECTED: u64;
    /// Initial value and final xor.
    const ONES: u64;
    /// Tables of the portable kernel (slicing by 8).
    const TABLES: &'static [[u64; 256]; 8];

    /// True if the polynomial has the term x^0.
    const HAS_ONE: bool = Self::REFLECTED >> 63 == 1;
    /// The polynomial with its x^64 term in bit 0 and without its x^0 term.
    const POLY_SHIFTED: u64 = (Self::REFLECTED << 1) | 1;
    /// floor(x^128 / P) in the same form: Barrett's constant.
    const MU_SHIFTED: u64 = (barrett(Self::REFLECTED) << 1) | 1;

    /// Constants that advance the low and the high half of a 128-bit register by one, two and three
    /// pages of 4 KiB.
    const FOLD_PAGES: [[u64; 2]; 3] = [
        fold(Self::REFLECTED, 8 * 4096),
        fold(Self::REFLECTED, 16 * 4096),
        fold(Self::REFLECTED, 24 * 4096),
    ];
    /// Constants that advance a 128-bit register by 8192 bits.
    const FOLD_8192: [u64; 2] = fold(Self::REFLECTED, 8192);
    /// See [`Poly::FOLD_8192`].
    const FOLD_2048: [u64; 2] = fold(Self::REFLECTED, 2048);
    /// See [`Poly::FOLD_8192`].
    const FOLD_1536: [u64; 2] = fold(Self::REFLECTED, 1536);
    /// See [`Poly::FOLD_8192`].
    const FOLD_1024: [u64; 2] = fold(Self::REFLECTED, 1024);
    /// See [`Poly::FOLD_8192`].
    const FOLD_768: [u64; 2] = fold(Self::REFLECTED, 768);
    /// See [`Poly::FOLD_8192`].
    const FOLD_512: [u64; 2] = fold(Self::REFLECTED, 512);
    /// See [`Poly::FOLD_8192`].
    const FOLD_384: [u64; 2] = fold(Self::REFLECTED, 384);
    /// See [`Poly::FOLD_8192`].
    const FOLD_256: [u64; 2] = fold(Self::REFLECTED, 256);
    /// See [`Poly::FOLD_8192`].
    const FOLD_128: [u64; 2] = fold(Self::REFLECTED, 128);
    /// Multiplies a 128-bit register by x^64, the last step before the reduction.
    const FOLD_64: [u64; 2] = fold(Self::REFLECTED, 64);
    /// The four lanes of a 512-bit register, each advanced to the end and multiplied by x^64.
    const FOLD_LANES: [u64; 8] = {
        let (a, b) = (fold(Self::REFLECTED, 448), fold(Self::REFLECTED, 320));
        let (c, d) = (fold(Self::REFLECTED, 192), fold(Self::REFLECTED, 64));
        [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]
    };
}

/// CRC-64/NVME: NVM Express Base Specification, section 5.2.1.3.4.
pub(crate) struct Nvme;
/// CRC-32C (Castagnoli): RFC 3720.
pub(crate) struct Castagnoli;

static NVME_TABLES: [[u64; 256]; 8] = tables(Nvme::REFLECTED);
static CASTAGNOLI_TABLES: [[u64; 256]; 8] = tables(Castagnoli::REFLECTED);

impl Poly for Nvme {
    const REFLECTED: u64 = 0x9a6c_9329_ac4b_c9b5;
    const ONES: u64 = !0;
    const TABLES: &'static [[u64; 256]; 8] = &NVME_TABLES;
}

impl Poly for Castagnoli {
    const REFLECTED: u64 = 0x82f6_3b78;
    const ONES: u64 = 0xffff_ffff;
    const TABLES: &'static [[u64; 256]; 8] = &CASTAGNOLI_TABLES;
}

/// Multiplies a reflected register by x.
const fn times_x(poly: u64, v: u64) -> u64 {
    (v >> 1) ^ (poly & (v & 1).wrapping_neg())
}

/// The product of two registers modulo P.
const fn times(poly: u64, mut a: u64, b: u64) -> u64 {
    let mut product = 0;
    let mut i = 64;
    while i > 0 {
        i -= 1;
        product ^= a & (b >> i & 1).wrapping_neg();
        a = times_x(poly, a);
    }
    product
}

/// x^n mod P, reflected.
pub(crate) const fn x_power(poly: u64, n: u32) -> u64 {
    let mut v = 1 << 63;
    let mut i = 32;
    while i > 0 {
        i -= 1;
        v = times(poly, v, v);
        if n >> i & 1 == 1 {
            v = times_x(poly, v);
        }
    }
    v
}

/// The factors of the low (x^64) and the high (x^0) half of a 128-bit register that advance it by
/// `bits`.
const fn fold(poly: u64, bits: u32) -> [u64; 2] {
    [x_power(poly, bits + 63), x_power(poly, bits - 1)]
}

/// floor(x^128 / P) without its x^64 term, reflected, by long division.
const fn barrett(reflected: u64) -> u64 {
    let poly = reflected.reverse_bits() as u128;
    let mut rest = poly << 64;
    let mut quotient = 0u64;
    let mut i = 64;
    while i > 0 {
        i -= 1;
        if rest >> (i + 64) & 1 == 1 {
            quotient |= 1 << i;
            rest ^= (1 << (i + 64)) ^ (poly << i);
        }
    }
    quotient.reverse_bits()
}

const fn tables(poly: u64) -> [[u64; 256]; 8] {
    let mut t = [[0u64; 256]; 8];
    let mut b = 0;
    while b < 256 {
        let mut v = b as u64;
        let mut i = 0;
        while i < 8 {
            v = times_x(poly, v);
            i += 1;
        }
        t[0][b] = v;
        b += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut b = 0;
        while b < 256 {
            let v = t[k - 1][b];
            t[k][b] = (v >> 8) ^ t[0][(v & 0xff) as usize];
            b += 1;
        }
        k += 1;
    }
    t
}

/// Adds bytes one at a time; also for data too short to fold.
#[inline]
pub(crate) fn update_bytes<P: Poly>(mut state: u64, bytes: &[u8]) -> u64 {
    for &b in bytes {
        state = (state >> 8) ^ P::TABLES[0][((state ^ b as u64) & 0xff) as usize];
    }
    state
}

/// The portable kernel: eight bytes per step through eight tables.
pub(crate) fn update_portable<P: Poly>(mut state: u64, bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let x = (state ^ u64::from_le_bytes(*word)).to_le_bytes();
        state = 0;
        for (i, &b) in x.iter().enumerate() {
            state ^= P::TABLES[7 - i][b as usize];
        }
    }
    update_bytes::<P>(state, tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle for tests: one bit at a time.
    pub(crate) fn bitwise<P: Poly>(mut state: u64, bytes: &[u8]) -> u64 {
        for &b in bytes {
            state ^= b as u64;
            for _ in 0..8 {
                state = times_x(P::REFLECTED, state);
            }
        }
        state
    }

    #[test]
    fn published_check_values() {
        let text = b"123456789";
        let nvme = update_portable::<Nvme>(Nvme::ONES, text) ^ Nvme::ONES;
        assert_eq!(nvme, 0xae8b_1486_0a79_9888);
        let c = update_portable::<Castagnoli>(Castagnoli::ONES, text) ^ Castagnoli::ONES;
        assert_eq!(c, 0xe306_9283);
    }

    #[test]
    fn tables_agree_with_bits() {
        // Fewer under an interpreter.
        let most = if cfg!(miri) { 40 } else { 300u32 };
        let data: Vec<u8> = (0..most).map(|i| (i * 31 + 7) as u8).collect();
        for len in 0..data.len() {
            let d = &data[..len];
            assert_eq!(update_portable::<Nvme>(5, d), bitwise::<Nvme>(5, d));
            assert_eq!(
                update_portable::<Castagnoli>(5, d),
                bitwise::<Castagnoli>(5, d)
            );
        }
    }
}
