//! Priorities of an Ethernet port (data center bridging), from `dcb` of iproute2.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::process::Command;

/// Names of the program; the folder of the others is not in each user's PATH.
const PROGRAMS: [&str; 3] = ["dcb", "/usr/sbin/dcb", "/sbin/dcb"];

/// The answer about an interface.
#[derive(Debug, PartialEq, Eq)]
pub enum Dcb {
    /// The driver has priorities.
    Known(Priorities),
    /// The driver or the kernel has none.
    Unsupported,
    /// No answer, and the reason.
    Unknown(String),
}

/// The priorities of an interface.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    /// Priorities that are paused instead of losing packets (PFC).
    pub paused: Vec<u8>,
    /// Priority of packets by their DSCP.
    pub by_dscp: BTreeMap<u8, u8>,
    /// Priority of other packets.
    pub default: u8,
}

impl Priorities {
    /// The priority of packets with this DSCP.
    pub fn of(&self, dscp: u8) -> u8 {
        self.by_dscp.get(&dscp).copied().unwrap_or(self.default)
    }
}

/// A part of the output of `dcb -j pfc show`.
#[derive(Deserialize)]
struct Pfc {
    prio_pfc: Vec<bool>,
}

/// A part of the output of `dcb -j app show`, which leaves out empty tables.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Apps {
    default_prio: Vec<u8>,
    dscp_prio: Vec<(u8, u8)>,
}

/// Asks for the priorities of an interface; `said` runs `dcb` with these words and returns its
/// output or its complaint.
pub fn ask(said: &dyn Fn(&[&str]) -> Result<String, String>, interface: &str) -> Dcb {
    let show = |object| said(&["-j", object, "show", "dev", interface]);
    let pfc = match show("pfc") {
        Ok(text) => serde_json::from_str::<Pfc>(&text).map_err(|e| format!("dcb pfc: {e}")),
        Err(why) if is_unsupported(&why) => return Dcb::Unsupported,
        Err(why) => Err(why),
    };
    let apps = match show("app") {
        Ok(text) => serde_json::from_str::<Apps>(&text).map_err(|e| format!("dcb app: {e}")),
        Err(why) if is_unsupported(&why) => Ok(Apps::default()),
        Err(why) => Err(why),
    };
    match (pfc, apps) {
        (Ok(pfc), Ok(apps)) => Dcb::Known(priorities(&pfc, &apps)),
        (Err(why), _) | (_, Err(why)) => Dcb::Unknown(why),
    }
}

fn priorities(pfc: &Pfc, apps: &Apps) -> Priorities {
    let paused = (0..).zip(&pfc.prio_pfc).filter(|(_, &on)| on);
    Priorities {
        paused: paused.map(|(priority, _)| priority).collect(),
        by_dscp: apps.dscp_prio.iter().copied().collect(),
        default: apps.default_prio.first().copied().unwrap_or(0),
    }
}

fn is_unsupported(why: &str) -> bool {
    why.contains("not supported") || why.contains("Attribute not found")
}

/// Runs the program of this host. Returns its output.
///
/// # Errors
///
/// Its complaint, in English, or the reason why it does not run.
pub fn run(words: &[&str]) -> Result<String, String> {
    for program in PROGRAMS {
        match Command::new(program)
            .args(words)
            .env("LC_ALL", "C")
            .output()
        {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{program}: {e}")),
            Ok(done) if done.status.success() => {
                return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
            }
            Ok(done) => return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
        }
    }
    Err("there is no dcb here (iproute2)".to_owned())
}

#[cfg(test)]
pub mod testing {
    /// The answers of a `dcb` that prints these texts for `pfc` and `app`. Without them the driver
    /// has no DCB.
    pub fn program(
        texts: Option<[&str; 2]>,
    ) -> impl Fn(&[&str]) -> Result<String, String> + 'static {
        let texts = texts.map(|both| both.map(str::to_owned));
        move |words| match (words, &texts) {
            (["-j", "pfc", "show", "dev", "eth0"], Some([pfc, _])) => Ok(pfc.clone()),
            (["-j", "app", "show", "dev", "eth0"], Some([_, app])) => Ok(app.clone()),
            (_, None) => Err("Attribute read: Operation not supported".to_owned()),
            _ => Err(format!("Unknown option: {words:?}")),
        }
    }

    /// The text of PFC on these priorities.
    pub fn pfc(on: &[usize]) -> String {
        let all: Vec<String> = (0..8).map(|n| on.contains(&n).to_string()).collect();
        let all = all.join(",");
        format!(r#"{{"pfc_cap":8,"macsec_bypass":false,"delay":0,"prio_pfc":[{all}]}}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(texts: Option<[&str; 2]>) -> Dcb {
        ask(&testing::program(texts), "eth0")
    }

    #[test]
    fn priorities_are_read() {
        let apps = r#"{"default_prio":[1],"dscp_prio":[[26,3],[48,6]]}"#;
        let Dcb::Known(known) = asked(Some([&testing::pfc(&[3, 4]), apps])) else {
            panic!("known")
        };
        assert_eq!(known.paused, [3, 4]);
        assert_eq!([26, 48, 0].map(|dscp| known.of(dscp)), [3, 6, 1]);
        let bare = asked(Some([&testing::pfc(&[]), "{}"]));
        assert_eq!(bare, Dcb::Known(Priorities::default()));
    }

    #[test]
    fn a_driver_without_priorities_is_no_failure() {
        assert_eq!(asked(None), Dcb::Unsupported);
        assert!(matches!(asked(Some(["x", "{}"])), Dcb::Unknown(_)));
        let absent = |_: &[&str]| Err("there is no dcb here (iproute2)".to_owned());
        assert!(matches!(ask(&absent, "eth0"), Dcb::Unknown(_)));
    }

    /// The kernel's own answer.
    #[test]
    fn the_loopback_interface_has_no_priorities() {
        assert_eq!(ask(&run, "lo"), Dcb::Unsupported);
    }
}
