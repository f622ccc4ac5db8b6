//! `marline doctor`: which rails this machine has, and why others are not there.

use marline_rails::{choose_interfaces, verbs_ports};

/// Prints the report; the exit status is 0, as missing adapters are no fault.
pub fn main() -> Result<u8, String> {
    print!("{}", report());
    Ok(0)
}

fn report() -> String {
    let mut text = "UDP and TCP, by FI_MARLINE_RAILS=NAME or tcp:NAME\n".to_owned();
    match choose_interfaces(&[]) {
        Ok(interfaces) => {
            for one in interfaces {
                let (mtu, bits) = (one.mtu, one.bytes_per_s / 125_000);
                text += &format!("  {one}, MTU {mtu}{}\n", rate(bits));
            }
        }
        Err(why) => text += &format!("  none: {why}\n"),
    }
    text += "InfiniBand and RoCE, by FI_MARLINE_RAILS=ud:NAME, rc:NAME or uc:NAME\n";
    match verbs_ports() {
        Ok(ports) => ports.iter().for_each(|port| text += &format!("  {port}\n")),
        Err(why) => text += &format!("  none: {why}\n"),
    }
    text
}

fn rate(mbit: u64) -> String {
    match mbit {
        0 => String::new(),
        mbit => format!(", {mbit} Mbit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reports_whatever_the_machine_has() {
        let report = report();
        assert!(report.starts_with("UDP and TCP"), "{report}");
        assert!(report.contains("\nInfiniBand and RoCE"), "{report}");
    }
}
