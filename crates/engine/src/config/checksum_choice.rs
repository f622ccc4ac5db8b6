//! The user's choice of a checksum: a class, a preset from the literature, or an algorithm by name.

use crate::config::profile::Profile;
use marline_checksum::{tier, Algorithm, Strength, Tier};

/// The algorithm with a name, in upper or lower case, with or without hyphens.
pub fn parse_checksum(name: &str) -> Option<Algorithm> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    unkeyed().find(|a| plain(a.name()) == plain(name))
}

/// The algorithms that can be chosen: without those that `FI_MARLINE_AUTH` chooses.
fn unkeyed() -> impl Iterator<Item = Algorithm> {
    Algorithm::all().filter(|a| !a.is_keyed())
}

/// A choice of checksum, which each machine resolves to an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumChoice {
    /// The fastest algorithm with the proven detection of the strong class.
    Strong,
    /// The fastest algorithm that is not weak.
    Fast,
    /// NewMadeleine's default before tuning: FNV-1a (paper 0, section 5.1).
    NewMadeleineFnv,
    /// CRC-32C where the processor has an instruction for it, else Fletcher-64 (paper 2,
    /// section 5.1).
    NewMadeleineCrc,
    /// A particular algorithm.
    Named(Algorithm),
}

/// Names that do not denote one algorithm.
pub const CLASSES: [(&str, ChecksumChoice); 4] = [
    ("strong", ChecksumChoice::Strong),
    ("fast", ChecksumChoice::Fast),
    ("newmadeleine-fnv", ChecksumChoice::NewMadeleineFnv),
    ("newmadeleine-crc", ChecksumChoice::NewMadeleineCrc),
];

/// Ratio of rates above which a faster algorithm is preferred to a more trusted one.
const GAIN_MIN: f64 = 1.03;

impl ChecksumChoice {
    /// The choice with a name, in upper or lower case, with or without hyphens.
    pub fn parse(name: &str) -> Option<ChecksumChoice> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
        let class = CLASSES.iter().find(|(n, _)| plain(n) == plain(name));
        let named = || parse_checksum(name).map(ChecksumChoice::Named);
        class.map(|(_, choice)| *choice).or_else(named)
    }

    /// The algorithm's name.
    pub fn name(&self) -> &'static str {
        if let ChecksumChoice::Named(algorithm) = self {
            return algorithm.name();
        }
        let row = CLASSES.iter().find(|(_, choice)| choice == self);
        row.map_or("", |(name, _)| *name)
    }

    /// All names as text.
    pub fn names() -> String {
        let classes = CLASSES.iter().map(|(name, _)| *name);
        let all: Vec<&str> = classes.chain(unkeyed().map(Algorithm::name)).collect();
        all.join(", ")
    }

    /// The algorithm for this machine, chosen by its profile if there is one.
    pub fn resolve(&self, profile: Option<&Profile>) -> Algorithm {
        self.resolve_at(tier(), profile)
    }

    fn resolve_at(&self, tier: Tier, profile: Option<&Profile>) -> Algorithm {
        match *self {
            ChecksumChoice::Named(algorithm) => algorithm,
            ChecksumChoice::NewMadeleineFnv => Algorithm::Fnv1a,
            ChecksumChoice::NewMadeleineCrc if tier >= Tier::Sse42 => Algorithm::Crc32c,
            ChecksumChoice::NewMadeleineCrc => Algorithm::Fletcher64,
            ChecksumChoice::Strong => {
                fastest(profile, Strength::Strong).unwrap_or(match tier {
                    // A single multiplication per 16 bytes instead of two, where multiplications
                    // are the bottleneck (docs/checksums.md); not measured on the other tiers.
                    Tier::Sse42 | Tier::Avx2 | Tier::Vpclmul | Tier::Avx512 => Algorithm::Crc64Nh,
                    Tier::Portable | Tier::Neon => Algorithm::Crc64Nvme,
                })
            }
            ChecksumChoice::Fast => fastest(profile, Strength::Medium).unwrap_or(
                // With AES instructions no algorithm is faster (docs/checksums.md). In plain Rust,
                // table look-ups make CRC and AES slower than XXH3.
                match tier {
                    Tier::Portable => Algorithm::Xxh3,
                    _ => Algorithm::AesLanes,
                },
            ),
        }
    }
}

/// The fastest measured algorithm of at least this strength; among nearly equal ones, the more
/// trusted one.
fn fastest(profile: Option<&Profile>, least: Strength) -> Option<Algorithm> {
    let mut best: Option<(Algorithm, f64)> = None;
    for number in Algorithm::BY_TRUST_UNKEYED {
        let Some(algorithm) = Algorithm::from_u8(*number).filter(|a| a.strength() >= least) else {
            continue;
        };
        if let Some(figures) = profile?.figures(algorithm) {
            if best.is_none_or(|(_, rate)| figures.gb_per_s > rate * GAIN_MIN) {
                best = Some((algorithm, figures.gb_per_s));
            }
        }
    }
    best.map(|(algorithm, _)| algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::profile::tests::profile_with;

    #[test]
    fn names_lead_back() {
        let named = unkeyed().map(ChecksumChoice::Named);
        for choice in CLASSES.iter().map(|(_, c)| *c).chain(named) {
            assert_eq!(ChecksumChoice::parse(choice.name()), Some(choice));
            assert!(ChecksumChoice::names().contains(choice.name()));
        }
        assert_eq!(
            ChecksumChoice::parse("STRONG"),
            Some(ChecksumChoice::Strong)
        );
        assert_eq!(
            ChecksumChoice::parse("crc64_nvme"),
            Some(ChecksumChoice::Named(Algorithm::Crc64Nvme))
        );
        assert_eq!(ChecksumChoice::parse("md5"), None);
    }

    #[test]
    fn without_a_profile_there_are_sensible_choices() {
        let at = |choice: ChecksumChoice, tier| choice.resolve_at(tier, None);
        let tiers = [
            Tier::Portable,
            Tier::Sse42,
            Tier::Avx2,
            Tier::Vpclmul,
            Tier::Avx512,
        ];
        for tier in tiers {
            assert_eq!(
                at(ChecksumChoice::Strong, tier).strength(),
                Strength::Strong
            );
            assert!(at(ChecksumChoice::Fast, tier).strength() > Strength::Weak);
            assert_eq!(at(ChecksumChoice::NewMadeleineFnv, tier), Algorithm::Fnv1a);
        }
        for tier in [Tier::Sse42, Tier::Avx2, Tier::Vpclmul, Tier::Avx512] {
            assert_eq!(at(ChecksumChoice::Strong, tier), Algorithm::Crc64Nh);
        }
        for tier in [Tier::Portable, Tier::Neon] {
            assert_eq!(at(ChecksumChoice::Strong, tier), Algorithm::Crc64Nvme);
        }
        let crc = ChecksumChoice::NewMadeleineCrc;
        assert_eq!(at(crc, Tier::Sse42), Algorithm::Crc32c);
        assert_eq!(at(crc, Tier::Portable), Algorithm::Fletcher64);
    }

    #[test]
    fn a_profile_decides_within_the_class() {
        // The weak algorithm is by far the fastest, and never chosen.
        let rates = [
            ("crc64-nvme", 20.0),
            ("crc64-nh", 20.5),
            ("xxh3", 25.0),
            ("aes-lanes", 30.0),
            ("sum32", 99.0),
        ];
        let profile = profile_with(&rates);
        let of = |choice: ChecksumChoice| choice.resolve(Some(&profile));
        assert_eq!(of(ChecksumChoice::Strong), Algorithm::Crc64Nvme);
        assert_eq!(of(ChecksumChoice::Fast), Algorithm::AesLanes);
        let profile = profile_with(&[("crc64-nvme", 20.0), ("crc64-nh", 30.0)]);
        let strong = ChecksumChoice::Strong.resolve(Some(&profile));
        assert_eq!(strong, Algorithm::Crc64Nh);
        let profile = profile_with(&[("crc64-nvme", 20.0), ("xxh3", 20.5), ("aes-lanes", 19.0)]);
        let fast = ChecksumChoice::Fast.resolve(Some(&profile));
        assert_eq!(
            fast,
            Algorithm::Crc64Nvme,
            "nearly as fast, and more trusted"
        );
        let fast = ChecksumChoice::Fast.resolve(Some(&profile_with(&[])));
        assert_eq!(fast, ChecksumChoice::Fast.resolve(None));
    }
}
