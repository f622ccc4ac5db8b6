//! Choices that an engine derives from settings and profile when it opens.

use super::{default_path, LoadError, Machine, Profile};
use crate::api::LogLevel;
use crate::config::settings::Settings;
use marline_checksum::{set_plan, Algorithm};
use marline_codes::Code;
use marline_proto::Pipeline;
use std::path::PathBuf;

/// The value of `FI_MARLINE_PROFILE` for no profile.
const NONE: &str = "none";

/// The super-pipeline without a profile: C0, q for copies at 1.5 times the network's rate, and the
/// blocks of the last chunk.
const PIPELINE: Pipeline = Pipeline {
    first_bytes: 8_192,
    growth_permille: 1_500,
    block_bytes: 8_192,
    chunk_max: CHUNK_MAX,
};
/// Longest chunk in bytes, which is also the longest write.
const CHUNK_MAX: u32 = 65_536;

/// The result of the search for a profile.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// This machine's profile and its file.
    Profile(Box<Profile>, PathBuf),
    /// No usable profile: the log level and text of the reason.
    Nothing(LogLevel, String),
}

/// The choices of an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    /// Checksum algorithm to propose to peers.
    pub algorithm: Algorithm,
    /// Longest eager message in bytes.
    pub eager_max_bytes: usize,
    /// Chunks of staged messages.
    pub pipeline: Pipeline,
}

impl Found {
    /// Finds the profile that `setting` (`FI_MARLINE_PROFILE`) names: a file, `none`, or, if empty,
    /// the file that `marline tune` stores for this machine model.
    pub fn by(setting: &str, here: &Machine) -> Found {
        if setting == NONE {
            return Found::Nothing(LogLevel::Debug, "no profile is wanted".to_owned());
        }
        let given = Some(PathBuf::from(setting)).filter(|_| !setting.is_empty());
        let asked_for = given.is_some();
        let Some(path) = given.or_else(|| default_path(here)) else {
            let text = "no profile: there is no home directory to look for it in";
            return Found::Nothing(LogLevel::Info, text.to_owned());
        };
        let at = path.display();
        match Profile::load(&path) {
            Ok(profile) if profile.machine == *here => Found::Profile(Box::new(profile), path),
            Ok(profile) => {
                let text = format!(
                    "profile {at} is of another machine ({}, {}; this one is {}, {}): defaults \
                     are used; `marline tune` makes one for this machine",
                    profile.machine.cpu, profile.machine.kernels, here.cpu, here.kernels
                );
                Found::Nothing(LogLevel::Warn(Code::ProfileUnusable), text)
            }
            Err(LoadError::Bad(why)) => {
                let text = format!(
                    "profile {at} cannot be used: {why}; defaults are used; `marline tune` makes \
                     a new one"
                );
                Found::Nothing(LogLevel::Warn(Code::ProfileUnusable), text)
            }
            Err(LoadError::Missing) if asked_for => {
                let text = format!("FI_MARLINE_PROFILE: there is no {at}: defaults are used");
                Found::Nothing(LogLevel::Warn(Code::ProfileUnusable), text)
            }
            Err(LoadError::Missing) => {
                let text = format!("no profile of this machine ({at}): `marline tune` makes one");
                Found::Nothing(LogLevel::Info, text)
            }
        }
    }

    /// The profile, if there is one.
    pub fn profile(&self) -> Option<&Profile> {
        match self {
            Found::Profile(profile, _) => Some(profile),
            Found::Nothing(..) => None,
        }
    }
}

impl Tuned {
    /// Applies the user's settings before the profile, and the profile before defaults. Sets the
    /// process's plans for copying and summing, and logs the profile that was found.
    pub fn open(settings: &Settings, log: impl Fn(LogLevel, &str)) -> Tuned {
        let found = Found::by(&settings.profile, &Machine::here());
        let tuned = Tuned::of(settings, found.profile());
        match &found {
            Found::Nothing(level, text) => log(*level, text),
            Found::Profile(profile, path) => {
                for figures in &profile.algorithms {
                    if let Ok(algorithm) = figures.name.parse() {
                        set_plan(algorithm, figures.plan());
                    }
                }
                let (at, date) = (path.display(), &profile.date);
                log(LogLevel::Info, &format!("profile {at} of {date} is used"));
            }
        }
        let (algorithm, asked) = (tuned.algorithm, settings.checksum.name());
        log(
            LogLevel::Info,
            &format!(
                "checksum {algorithm} (asked for: {asked}), eager up to {} bytes",
                tuned.eager_max_bytes
            ),
        );
        tuned
    }

    /// The choices from these settings and this profile.
    pub fn of(settings: &Settings, profile: Option<&Profile>) -> Tuned {
        let eager = profile.filter(|_| !settings.was_given("eager_max_bytes"));
        Tuned {
            algorithm: settings.checksum.resolve(profile),
            eager_max_bytes: eager.map_or(settings.eager_max_bytes, |p| p.eager_max_bytes),
            pipeline: profile.map_or(PIPELINE, |p| p.pipeline.plan(CHUNK_MAX)),
        }
    }
}
