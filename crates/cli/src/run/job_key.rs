//! The key of a job: made where authentication is wanted without one, and handed to ranks by the
//! environment. Never an argument: every user of a host can read command lines.

use marline_auth::{JobKey, JOB_KEY_LEN};
use marline_engine::settings::Settings;
use std::fs::File;
use std::io::Read;

/// The variable with the key.
const KEY: &str = "FI_MARLINE_KEY";
/// The source of keys.
const DEVICE: &str = "/dev/urandom";

/// Returns whether a variable must not stand in a command line.
pub fn is_secret(name: &str) -> bool {
    name == KEY
}

/// The variable with a new key, if the environment asks for authentication and gives no key.
pub fn made(environment: &[(String, String)]) -> Result<Option<(String, String)>, String> {
    let lookup = |name: &str| {
        let full = format!("FI_MARLINE_{}", name.to_ascii_uppercase());
        let found = environment.iter().find(|(n, _)| *n == full);
        found.map(|(_, value)| value.clone())
    };
    let settings = Settings::from_lookup(lookup)?;
    let given = settings.was_given("key") || settings.was_given("key_file");
    if given || !settings.auth {
        return Ok(None);
    }
    let mut bytes = [0; JOB_KEY_LEN];
    let filled = File::open(DEVICE).and_then(|mut device| device.read_exact(&mut bytes));
    filled.map_err(|why| format!("no key for the job: {DEVICE}: {why}"))?;
    let text = JobKey::new(bytes).to_hex();
    Ok(Some((KEY.to_owned(), (*text).clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(given: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = given.iter();
        owned
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_key_is_made_where_one_is_wanted_and_missing() {
        let on = environment(&[("FI_MARLINE_AUTH", "on")]);
        let keys = [made(&on), made(&on)].map(|made| made.unwrap().unwrap());
        assert_ne!(keys[0].1, keys[1].1);
        for (name, value) in keys {
            assert!(is_secret(&name) && JobKey::from_hex(&value).is_some());
        }
        assert_eq!(made(&environment(&[])), Ok(None));
        assert_eq!(made(&environment(&[("FI_MARLINE_AUTH", "off")])), Ok(None));
        let file = [("FI_MARLINE_AUTH", "on"), ("FI_MARLINE_KEY_FILE", "/k")];
        assert_eq!(made(&environment(&file)), Ok(None));
    }
}
