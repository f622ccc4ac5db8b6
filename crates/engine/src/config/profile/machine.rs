//! Identifies the machine model by its processor, on which the measurements depend.

use serde::{Deserialize, Serialize};

/// A machine model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The processor's name and model numbers, as names are often ambiguous.
    pub cpu: String,
    /// Instruction sets in use: the name of a [`marline_checksum::Tier`].
    pub kernels: String,
}

impl Machine {
    /// The model of this machine.
    pub fn here() -> Machine {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            cpu: describe(&text),
            kernels: format!("{:?}", marline_checksum::tier()).to_lowercase(),
        }
    }

    /// Base name of the machine's profile file, without extension.
    pub fn file_stem(&self) -> String {
        let text = format!("{} {}", self.cpu, self.kernels).to_lowercase();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
        let mut file_stem = words.join("-");
        file_stem.truncate(120); // file names may have 255 bytes; the name is ASCII
        file_stem
    }
}

/// Describes the first processor of `/proc/cpuinfo`: name and three numbers on x86, numbers on Arm.
fn describe(cpuinfo: &str) -> String {
    let field = |name: &str| {
        let line = cpuinfo
            .lines()
            .find(|l| l.split(':').next().map(str::trim) == Some(name))?;
        Some(line.split_once(':')?.1.trim().to_owned()).filter(|v| !v.is_empty())
    };
    let x86 = ["cpu family", "model", "stepping"];
    let arm = ["CPU implementer", "CPU part", "CPU variant", "CPU revision"];
    let numbers =
        |names: &[&str]| -> Vec<String> { names.iter().filter_map(|n| field(n)).collect() };
    let mut words: Vec<String> = field("model name").into_iter().collect();
    let found = [numbers(&x86), numbers(&arm)].concat();
    if !found.is_empty() {
        words.push(format!("({})", found.join("/")));
    }
    if words.is_empty() {
        return format!("unknown {}", std::env::consts::ARCH);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_distinguished() {
        let x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\n\
                   model name\t: Intel(R) Xeon(R) Processor\nstepping\t: 2\n\nprocessor\t: 1\n";
        assert_eq!(describe(x86), "Intel(R) Xeon(R) Processor (6/207/2)");
        let arm = "processor : 0\nCPU implementer : 0x41\nCPU variant : 0x3\nCPU part : 0xd0c\n\
                   CPU revision : 1\n";
        assert_eq!(describe(arm), "(0x41/0xd0c/0x3/1)");
        assert!(describe("").starts_with("unknown "));
    }

    #[test]
    fn slugs_are_plain_file_names() {
        let machine = |cpu: &str| Machine {
            cpu: cpu.to_owned(),
            kernels: "avx512".to_owned(),
        };
        let file_stem = machine("Intel(R) Xeon(R) Processor (6/207/2)").file_stem();
        assert_eq!(file_stem, "intel-r-xeon-r-processor-6-207-2-avx512");
        assert_eq!(machine("../../é").file_stem(), "avx512");
        assert!(machine(&"x".repeat(1000)).file_stem().len() <= 120);
        let here = Machine::here();
        assert!(here.file_stem().ends_with(&here.kernels));
    }
}
