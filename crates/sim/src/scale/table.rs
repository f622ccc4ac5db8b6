//! The table of all parts over the numbers of endpoints, as CSV.

use super::parts::{Part, PARTS};
use std::time::Instant;

/// Endpoints of the rows. The last is the most that the simulator numbers.
const SIZES: [usize; 7] = [16, 64, 256, 1_024, 4_096, 16_384, 65_280];

/// The rows that are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Least number of endpoints.
    pub least: usize,
    /// Most endpoints.
    pub most: usize,
    /// Only what takes about a minute.
    pub quick: bool,
}

impl Sizes {
    fn of(self, part: &Part) -> impl Iterator<Item = usize> {
        let limit = if self.quick { part.quick } else { part.most };
        let fits = move |n: &usize| (self.least..=self.most.min(limit)).contains(n);
        SIZES.into_iter().filter(fits)
    }
}

/// Prints the parts with this name, or all of them; returns whether all promises held.
pub fn print_parts(name: Option<&str>, sizes: Sizes) -> bool {
    println!("# one or two rails of 10 Gbit/s and 5 us, datagrams of 1,472 bytes, real engines");
    let wanted = |part: &&Part| name.is_none_or(|name| name == part.name);
    for part in PARTS.iter().filter(wanted) {
        let less = match part.simplified {
            "" => "nothing simplified",
            text => text,
        };
        println!("# {}: {} ({less})", part.name, part.what);
    }
    println!("part,endpoints,quantity,unit,value");
    for part in PARTS.iter().filter(wanted) {
        for endpoints in sizes.of(part) {
            let start = Instant::now();
            match (part.measure)(endpoints) {
                Ok(samples) => samples.iter().for_each(|sample| {
                    let (quantity, unit) = (sample.quantity, sample.unit);
                    println!(
                        "{},{endpoints},{quantity},{unit},{:.4}",
                        part.name, sample.value
                    );
                }),
                Err(text) => {
                    println!("{}, {endpoints} endpoints: {text}", part.name);
                    return false;
                }
            }
            eprintln!(
                "{} with {endpoints}: {:.1} s",
                part.name,
                start.elapsed().as_secs_f64()
            );
        }
    }
    true
}
