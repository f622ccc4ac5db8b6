//! The profile: a file with the results of `marline tune` on a machine, which engines read.
//!
//! There is one small TOML file per processor model. All values are checked when the file is read,
//! as strictly as settings.

mod machine;
mod tuned;

pub use machine::Machine;
pub use tuned::{Found, Tuned};

use marline_checksum::{Algorithm, Plan};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Format of the file; files with other numbers are refused.
pub const FORMAT: u32 = 1;
/// Largest file in bytes that is read: far more than a profile needs.
const FILE_MAX: u64 = 1 << 20;

/// A machine's profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: u32,
    /// Date and time of the measurement, for display.
    pub date: String,
    /// Longest message in bytes that is sent eagerly.
    pub eager_max_bytes: usize,
    /// The machine on which the profile was measured.
    pub machine: Machine,
    /// Parameters of the super-pipeline.
    pub pipeline: Pipeline,
    /// Measurements of a rail, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rail: Option<RailFigures>,
    /// Measurements of checksums.
    #[serde(default, rename = "algorithm")]
    pub algorithms: Vec<AlgorithmFigures>,
}

/// Parameters of the super-pipeline (paper 0, section 4.3): chunks of C0 * q^n bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// C0 in bytes: as much as is copied and summed in one round trip.
    pub first_chunk_bytes: u64,
    /// q: rate of copying and summing divided by the network's rate; 1 if the network is faster, so
    /// that all chunks have equal lengths.
    pub growth: f64,
    /// Length in bytes of the blocks into which the last chunk is divided.
    pub last_block_bytes: u64,
}

impl Pipeline {
    /// Plan for staging buffers of `chunk_max` bytes.
    pub fn plan(&self, chunk_max: u32) -> marline_proto::Pipeline {
        let fit = |bytes: u64| bytes.min(chunk_max.into()) as u32;
        marline_proto::Pipeline {
            first_bytes: fit(self.first_chunk_bytes),
            growth_permille: (self.growth * 1_000.0) as u32,
            block_bytes: fit(self.last_block_bytes),
            chunk_max,
        }
    }
}

/// Measurements of a rail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RailFigures {
    /// The measured rail for display: its interface and the place of the other end.
    pub what: String,
    /// One-way latency of a small packet in microseconds.
    pub latency_us: f64,
    /// Throughput of a long stream in bytes per nanosecond.
    pub gb_per_s: f64,
    /// Nanoseconds between packets at the sender: the gap g of LogP.
    pub gap_ns: f64,
}

/// Measurements of one checksum algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlgorithmFigures {
    /// The algorithm's name.
    pub name: String,
    /// Copying and summing fragments of 1 to 64 KiB, in bytes per nanosecond, by the faster method.
    pub gb_per_s: f64,
    /// Length from which the blocked method is faster; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_from_bytes: Option<usize>,
    /// Length of a block of the blocked method in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<usize>,
    /// Length from which copies bypass the caches; 0: always use the caches; absent: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_from_bytes: Option<usize>,
}

impl AlgorithmFigures {
    /// Method of copying and summing.
    pub fn plan(&self) -> Plan {
        let usual = self.name.parse().map_or(Plan::FUSED, Plan::usual);
        Plan {
            blocked_from: self.blocked_from_bytes,
            block_bytes: self.block_bytes.unwrap_or(usual.block_bytes),
            stream_from: match self.stream_from_bytes {
                Some(from) => Some(from).filter(|n| *n > 0),
                None => usual.stream_from,
            },
        }
    }
}

impl Profile {
    /// Parses and checks a profile's text. Errors are texts for the user.
    pub fn parse(text: &str) -> Result<Profile, String> {
        /// The field that files of every format have.
        #[derive(Deserialize)]
        struct Any {
            format: u32,
        }
        let any: Any = toml::from_str(text).map_err(|e| short(&e))?;
        if any.format != FORMAT {
            let format = any.format;
            return Err(format!(
                "its format is {format}, this version reads {FORMAT}"
            ));
        }
        let profile: Profile = toml::from_str(text).map_err(|e| short(&e))?;
        profile.check()?;
        Ok(profile)
    }

    /// Loads a profile from a file.
    pub fn load(path: &Path) -> Result<Profile, LoadError> {
        let text = read_limited(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => LoadError::Missing,
            _ => LoadError::Bad(e.to_string()),
        })?;
        Profile::parse(&text).map_err(LoadError::Bad)
    }

    /// Formats the profile as a file.
    pub fn to_text(&self) -> Result<String, String> {
        self.check()?;
        let body = toml::to_string(self).map_err(|e| e.to_string())?;
        Ok(format!(
            "# What `marline tune` measured. Read by Marline on machines of this model only;\n\
             # delete it to go back to the defaults. docs/tuning.md explains each number.\n{body}"
        ))
    }

    /// Measurements of `algorithm`.
    pub fn figures(&self, algorithm: Algorithm) -> Option<&AlgorithmFigures> {
        self.algorithms.iter().find(|a| a.name == algorithm.name())
    }

    /// Checks the bounds of every number and the names of algorithms.
    fn check(&self) -> Result<(), String> {
        within(
            "eager_max_bytes",
            self.eager_max_bytes as f64,
            0.0,
            65_536.0,
        )?;
        let p = &self.pipeline;
        within("first_chunk_bytes", p.first_chunk_bytes as f64, 64.0, 1e9)?;
        within("growth", p.growth, 1.0, 1e3)?;
        within("last_block_bytes", p.last_block_bytes as f64, 64.0, 1e9)?;
        if let Some(rail) = &self.rail {
            within("latency_us", rail.latency_us, 1e-3, 1e7)?;
            within("gb_per_s", rail.gb_per_s, 1e-6, 1e5)?;
            within("gap_ns", rail.gap_ns, 0.0, 1e9)?;
        }
        for a in &self.algorithms {
            let name = &a.name;
            if name.parse::<Algorithm>().is_err() {
                return Err(format!("there is no checksum algorithm {name:?}"));
            }
            within(&format!("{name}'s gb_per_s"), a.gb_per_s, 1e-6, 1e5)?;
            if !a.plan().is_valid() {
                return Err(format!("{name}'s blocks or streams make no sense"));
            }
        }
        Ok(())
    }
}

/// The reason why no profile was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The file does not exist.
    Missing,
    /// The file is unreadable or invalid; a text for the user.
    Bad(String),
}

/// Default place of this machine's profile: `$XDG_DATA_HOME/marline/profiles/MODEL.toml`, else
/// below `~/.local/share`. `None` without a home directory.
pub fn default_path(machine: &Machine) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from);
    // The XDG Base Directory specification ignores paths that are not absolute.
    let data = set("XDG_DATA_HOME").filter(|p| p.is_absolute());
    let home = || {
        set("HOME")
            .filter(|p| p.is_absolute())
            .map(|h| h.join(".local/share"))
    };
    let file = format!("{}.toml", machine.file_stem());
    Some(data.or_else(home)?.join("marline/profiles").join(file))
}

fn within(what: &str, value: f64, min: f64, max: f64) -> Result<(), String> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(format!(
        "{what} is {value}, which is not within {min} to {max}"
    ))
}

/// First line of a parser's error, with its position.
fn short(error: &toml::de::Error) -> String {
    error
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn read_limited(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(FILE_MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
#[path = "profile/tests.rs"]
pub(crate) mod tests;
