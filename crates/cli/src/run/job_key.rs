//! The key of a job: made where none is given and authentication is not switched off, and handed to
//! ranks by the environment. Never an argument: every user of a host can read command lines.

use marline_auth::{JobKey, JOB_KEY_LEN};
use marline_engine::settings::{Auth, Settings, CARRIED_BY_OPEN_MPI};
use std::fs::File;
use std::io::Read;

/// The variable with the key.
const KEY: &str = "FI_MARLINE_KEY";
/// Variables by which a launcher tells a process its rank. (Slurm sets `SLURM_PROCID` in job
/// scripts, too, and the number of the step in ranks alone.)
const RANKS: [&str; 4] = [
    "PMI_RANK",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_STEP_ID",
];
/// The source of keys.
const DEVICE: &str = "/dev/urandom";

/// The variable that brings the key to processes of MPI_Comm_spawn under Open MPI 5. Other
/// variables go there in a command line (`mpi::for_spawned`), which other users can read.
pub fn carried_by_open_mpi(carried: &[(String, String)]) -> Option<(String, String)> {
    let given = carried.iter().find(|(name, _)| name == KEY);
    given.map(|(name, value)| (format!("{CARRIED_BY_OPEN_MPI}{name}"), value.clone()))
}

/// Returns whether a variable must not stand in a command line.
pub fn is_secret(name: &str) -> bool {
    name.ends_with(KEY)
}

/// Makes a key as [`made`] does, except within a rank: each rank would make a key of its own, and
/// no rank would believe another.
pub fn made_outside_of_ranks(
    environment: &[(String, String)],
) -> Result<Option<(String, String)>, String> {
    let in_rank = |(name, _): &(String, String)| RANKS.contains(&name.as_str());
    match environment.iter().any(in_rank) {
        true => Ok(None),
        false => made(environment),
    }
}

/// Returns whether the environment gives a key or switches authentication off.
pub fn is_decided(environment: &[(String, String)]) -> Result<bool, String> {
    let lookup = |name: &str| {
        let full = format!("FI_MARLINE_{}", name.to_ascii_uppercase());
        let found = environment.iter().find(|(n, _)| *n == full);
        found.map(|(_, value)| value.clone())
    };
    let settings = Settings::from_lookup(lookup)?;
    let given = settings.was_given("key") || settings.was_given("key_file");
    Ok(given || settings.was_given("auth") && settings.auth == Auth::Off)
}

/// The variable with a new key, unless the environment gives one or switches authentication off.
pub fn made(environment: &[(String, String)]) -> Result<Option<(String, String)>, String> {
    if is_decided(environment)? {
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
    fn a_key_is_made_where_none_is_given_unless_it_is_switched_off() {
        let on = environment(&[("FI_MARLINE_AUTH", "on")]);
        let keys = [made(&on), made(&environment(&[]))];
        let keys = keys.map(|made| made.unwrap().unwrap());
        assert_ne!(keys[0].1, keys[1].1);
        for (name, value) in keys {
            assert!(is_secret(&name) && JobKey::from_hex(&value).is_some());
        }
        assert_eq!(made(&environment(&[("FI_MARLINE_AUTH", "off")])), Ok(None));
        let file = [("FI_MARLINE_AUTH", "on"), ("FI_MARLINE_KEY_FILE", "/k")];
        assert_eq!(made(&environment(&file)), Ok(None));
        let decided = |given: &[(&str, &str)]| is_decided(&environment(given));
        assert_eq!(decided(&file), Ok(true));
        assert_eq!(decided(&[("FI_MARLINE_AUTH", "off")]), Ok(true));
        assert_eq!(decided(&[("FI_MARLINE_AUTH", "on")]), Ok(false));
    }

    #[test]
    fn spawned_processes_of_open_mpi_get_a_copy() {
        let carried = environment(&[("FI_MARLINE_RAILS", "eth0"), (KEY, "0123")]);
        let (name, value) = carried_by_open_mpi(&carried).unwrap();
        assert!(is_secret(&name) && name.starts_with("OMPI_") && value == "0123");
        assert_eq!(carried_by_open_mpi(&carried[..1]), None);
    }

    #[test]
    fn ranks_make_no_keys() {
        let made = |name: &str| made_outside_of_ranks(&environment(&[(name, "0")]));
        for name in RANKS {
            assert_eq!(made(name), Ok(None), "{name}");
        }
        assert!(made("SLURM_PROCID").unwrap().is_some());
    }
}
