//! Fault scripts: the faults of a rail, and their text form.
//!
//! ```text
//! seed=7;rail=1;tx:drop=0.01,duplicate=0.001;rx:corrupt=0.001;delay_us=100-500
//! ```
//! Items are separated by `;` or `,`. `tx:` or `rx:` applies to the item and those after it up to
//! the next `;`; without either a fault applies to both directions. Scripts for different rails are
//! separated by `/`.

/// Faults of one direction. Probabilities are per datagram, from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability of loss.
    pub drop: f64,
    /// Probability of duplication.
    pub duplicate: f64,
    /// Probability of being overtaken by the next few datagrams.
    pub reorder: f64,
    /// Probability that a few random bits flip.
    pub corrupt: f64,
    /// Probability of truncation.
    pub truncate: f64,
    /// Minimum and maximum delay of each datagram in nanoseconds; (0, 0) for none.
    pub delay_ns: (u64, u64),
    /// Rate limit in bytes per second; 0 for none. Sends beyond it find the rail busy, and received
    /// datagrams beyond it are lost.
    pub bytes_per_s: u64,
    /// Number of datagrams after which all are lost.
    pub kill_after: Option<u64>,
    /// Time in nanoseconds after opening from which all datagrams are lost.
    pub kill_at_ns: Option<u64>,
    /// Time in nanoseconds after opening from which datagrams pass again after a kill.
    pub revive_at_ns: Option<u64>,
}

impl Faults {
    /// Returns whether there are no faults.
    pub fn is_none(&self) -> bool {
        *self == Faults::default()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "drop" => self.drop = chance(key, value)?,
            "duplicate" => self.duplicate = chance(key, value)?,
            "reorder" => self.reorder = chance(key, value)?,
            "corrupt" => self.corrupt = chance(key, value)?,
            "truncate" => self.truncate = chance(key, value)?,
            "delay_us" => self.delay_ns = range_us(value)?,
            "rate_mbit" => self.bytes_per_s = whole(key, value)?.saturating_mul(125_000),
            "kill_after" => self.kill_after = Some(whole(key, value)?),
            "kill_at_ms" => self.kill_at_ns = Some(whole(key, value)?.saturating_mul(1_000_000)),
            "revive_at_ms" => {
                self.revive_at_ns = Some(whole(key, value)?.saturating_mul(1_000_000));
            }
            _ => return Err(format!("{key} is not a fault; there are {KEYS}")),
        }
        Ok(())
    }
}

const KEYS: &str = "seed, rail, drop, duplicate, reorder, corrupt, truncate, delay_us, rate_mbit, \
                    kill_after, kill_at_ms, revive_at_ms";

/// A seeded script of faults for one rail or all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultScript {
    /// Seed of all random choices; the same seed and traffic give the same faults.
    pub seed: u64,
    /// Index of the rail with these faults; `None` for all rails.
    pub rail: Option<u8>,
    /// Faults of sent datagrams.
    pub tx: Faults,
    /// Faults of received datagrams.
    pub rx: Faults,
}

impl FaultScript {
    /// Parses one script; the error quotes the wrong item.
    pub fn parse(text: &str) -> Result<FaultScript, String> {
        let mut script = FaultScript::default();
        for group in text.split(';') {
            let (tx, rx, items) = match group.trim().split_once(':') {
                None => (true, true, group),
                Some(("tx", items)) => (true, false, items),
                Some(("rx", items)) => (false, true, items),
                Some((other, _)) => {
                    return Err(format!("fault script: {other}: is neither tx: nor rx:"));
                }
            };
            for item in items
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
            {
                script
                    .set(item, tx, rx)
                    .map_err(|e| format!("fault script, at \"{item}\": {e}"))?;
            }
        }
        Ok(script)
    }

    /// Parses the scripts of several rails, separated by `/`; an empty text has none.
    pub fn parse_all(text: &str) -> Result<Vec<FaultScript>, String> {
        let scripts = text.split('/').filter(|t| !t.trim().is_empty());
        scripts.map(FaultScript::parse).collect()
    }

    fn set(&mut self, item: &str, tx: bool, rx: bool) -> Result<(), String> {
        let (key, value) = item.split_once('=').ok_or("write it as name=value")?;
        let (key, value) = (key.trim(), value.trim());
        match key {
            "seed" => self.seed = whole(key, value)?,
            "rail" => {
                let index = whole(key, value)?;
                let known = index < marline_wire::RAILS_MAX as u64;
                self.rail = Some(if known {
                    index as u8
                } else {
                    return Err(too_far(index));
                });
            }
            _ => {
                if tx {
                    self.tx.set(key, value)?;
                }
                if rx {
                    self.rx.set(key, value)?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the script applies to the rail of this index.
    pub fn applies_to(&self, rail: u8) -> bool {
        self.rail.is_none_or(|only| only == rail)
    }

    /// The script with a separate seed for this rail, so that rails do not fail in step.
    pub fn for_rail(&self, rail: u8) -> FaultScript {
        let seed = self.seed ^ (rail as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        FaultScript {
            seed,
            ..self.clone()
        }
    }
}

fn too_far(index: u64) -> String {
    format!(
        "rail {index} cannot be: rails count from 0 to {}",
        marline_wire::RAILS_MAX - 1
    )
}

fn chance(key: &str, value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err(format!("{key} takes a chance from 0 to 1")),
    }
}

fn whole(key: &str, value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("{key} takes a whole number"))
}

fn range_us(value: &str) -> Result<(u64, u64), String> {
    let (least, most) = value.split_once('-').unwrap_or((value, value));
    let (least, most) = (whole("delay_us", least)?, whole("delay_us", most)?);
    if least > most {
        return Err("delay_us takes least-most".to_owned());
    }
    Ok((least.saturating_mul(1000), most.saturating_mul(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_as_written() {
        let text = "seed=7; rail=1; tx:drop=0.01,duplicate=0.5;rx:corrupt=1;delay_us=100-500; \
                    tx:rate_mbit=8; kill_after=9; kill_at_ms=2; revive_at_ms=3;";
        let script = FaultScript::parse(text).unwrap();
        assert_eq!((script.seed, script.rail), (7, Some(1)));
        assert_eq!(
            (script.tx.drop, script.tx.duplicate, script.rx.drop),
            (0.01, 0.5, 0.0)
        );
        assert_eq!((script.tx.corrupt, script.rx.corrupt), (0.0, 1.0));
        assert_eq!(script.tx.delay_ns, (100_000, 500_000));
        assert_eq!(script.rx.delay_ns, script.tx.delay_ns);
        assert_eq!(
            (script.tx.bytes_per_s, script.rx.bytes_per_s),
            (1_000_000, 0)
        );
        assert_eq!(script.rx.kill_after, Some(9));
        assert_eq!(script.rx.kill_at_ns, Some(2_000_000));
        assert_eq!(script.rx.revive_at_ns, Some(3_000_000));
        assert!(script.applies_to(1) && !script.applies_to(0));
        assert_eq!(FaultScript::parse("").unwrap(), FaultScript::default());
    }

    #[test]
    fn several_scripts_are_distinguished() {
        let scripts = FaultScript::parse_all("rail=0;drop=1/rail=1;tx:drop=0.5").unwrap();
        assert_eq!(scripts.len(), 2);
        assert!(scripts[0].applies_to(0) && scripts[1].applies_to(1));
        assert_eq!(FaultScript::parse_all(" ").unwrap(), []);
    }

    #[test]
    fn a_wrong_script_says_where_and_why() {
        for (text, why) in [
            ("drop=2", "at \"drop=2\": drop takes a chance from 0 to 1"),
            ("drop=NaN", "chance from 0 to 1"),
            ("tx:drop", "at \"drop\": write it as name=value"),
            ("explode=1", "explode is not a fault; there are seed"),
            ("up:drop=1", "up: is neither tx: nor rx:"),
            ("delay_us=9-1", "least-most"),
            ("rail=32", "rails count from 0 to 31"),
            ("seed=-1", "seed takes a whole number"),
        ] {
            let error = FaultScript::parse(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
