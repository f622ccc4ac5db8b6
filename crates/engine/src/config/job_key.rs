//! The job's key from the settings: as text or in a file.

use crate::config::auth::Auth;
use crate::config::settings::Settings;
use marline_auth::{key_file, JobKey, Level};
use std::path::Path;

impl Settings {
    /// The job's key, if packets carry tags. The error is a text for the user.
    pub fn job_key(&self) -> Result<Option<JobKey>, String> {
        let (text, file) = (&self.key.0, &self.key_file);
        if !text.is_empty() && !file.is_empty() {
            return Err(
                "FI_MARLINE_KEY and FI_MARLINE_KEY_FILE both give a key: leave one away".to_owned(),
            );
        }
        let given = !text.is_empty() || !file.is_empty();
        let wanted = self.auth != Auth::Off || given && !self.was_given("auth");
        if !wanted {
            return Ok(None);
        }
        if !given {
            return Err(
                "FI_MARLINE_AUTH needs a key of the job: FI_MARLINE_KEY_FILE names a file with \
                 it (`marline run` and `marline env` make one)"
                    .to_owned(),
            );
        }
        let key = match JobKey::from_hex(text) {
            Some(key) => key,
            None => {
                let read = key_file::read(Path::new(file));
                read.map_err(|why| format!("FI_MARLINE_KEY_FILE: {why}"))?
            }
        };
        Ok(Some(key.at(match self.auth {
            Auth::On | Auth::Off => Level::Heads,
            Auth::Payload => Level::Payloads,
            Auth::Encrypt => Level::Encrypted,
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn with(given: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::from_lookup(|name| {
            let row = given.iter().find(|(n, _)| *n == name);
            row.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_key_switches_tags_on_and_is_never_shown() {
        let keyed = with(&[("key", KEY)]).unwrap();
        assert!(keyed.job_key().unwrap().is_some());
        let shown = [keyed.show(), format!("{keyed:?}")];
        assert!(
            shown.iter().all(|text| !text.contains("00112233")),
            "{shown:?}"
        );
        assert!(
            shown[0].contains("FI_MARLINE_KEY=(secret) (given)"),
            "{}",
            shown[0]
        );
        let off = with(&[("key", KEY), ("auth", "off")]).unwrap();
        assert!(off.job_key().unwrap().is_none());
        assert!(Settings::default().job_key().unwrap().is_none());
        let levels = ["on", "payload", "encrypt"].map(|auth| {
            let settings = with(&[("key", KEY), ("auth", auth)]).unwrap();
            settings.job_key().unwrap().unwrap().level()
        });
        let wanted = [Level::Heads, Level::Payloads, Level::Encrypted];
        assert_eq!(levels, wanted);
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let said = |given: &[(&str, &str)]| with(given).unwrap().job_key().unwrap_err();
        assert!(said(&[("auth", "on")]).contains("needs a key"));
        assert!(said(&[("key", KEY), ("key_file", "/k")]).contains("leave one away"));
        let missing = said(&[("key_file", "/nonexistent/key")]);
        assert!(
            missing.starts_with("FI_MARLINE_KEY_FILE: /nonexistent/key"),
            "{missing}"
        );
    }

    /// The error would stand in a log.
    #[test]
    fn a_wrong_key_is_not_repeated() {
        let wrong = with(&[("key", "0123456789")]).unwrap_err();
        assert!(!wrong.contains("0123456789"), "{wrong}");
        assert!(wrong.contains("64 hexadecimal digits"), "{wrong}");
    }
}
