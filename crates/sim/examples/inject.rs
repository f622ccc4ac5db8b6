//! Failure injection as a table: `inject [COPIES] [--only ALGORITHM] [--csv FILE]`, with COPIES
//! (default 50000) damaged copies for each kind of damage, algorithm and content.
//!
//! Exits with status 1 if a strong algorithm or the head's CRC missed any damage, or if an
//! algorithm's misses contradict theory. `make detect` runs the whole table.
#![forbid(unsafe_code)]

use marline_checksum::{Algorithm, Strength};
use marline_sim::damage::{HEAD_KINDS, PAYLOAD_KINDS};
use marline_sim::inject::{Plan, Stuff, Tally};
use std::fmt::Write;
use std::process::ExitCode;

const HEADING: &str = "place,damage,content,algorithm,copies,by_head,by_payload,as_duplicate,\
harmless,missed,theory,as_theory";

struct Args {
    copies: u64,
    only: Option<Algorithm>,
    csv: Option<String>,
}

fn parse() -> Option<Args> {
    let mut args = Args {
        copies: 50_000,
        only: None,
        csv: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => args.only = Some(words.next()?.parse().ok()?),
            "--csv" => args.csv = Some(words.next()?),
            n => args.copies = n.parse().ok()?,
        }
    }
    Some(args)
}

/// All experiments: heads with the default algorithm, payloads with every algorithm.
fn plans(copies: u64) -> Vec<Plan> {
    let plan = |algorithm, stuff, kind| Plan {
        algorithm,
        stuff,
        kind,
        packets: copies,
        seed: 1,
    };
    let mut plans: Vec<Plan> = HEAD_KINDS
        .iter()
        .map(|k| plan(Algorithm::default(), Stuff::Noise, *k))
        .collect();
    for stuff in [Stuff::Noise, Stuff::Integers] {
        for algorithm in Algorithm::all() {
            plans.extend(PAYLOAD_KINDS.iter().map(|k| plan(algorithm, stuff, *k)));
        }
    }
    plans
}

fn row(plan: &Plan, tally: &Tally, fits: &str) -> String {
    let place = format!("{:?}", plan.kind.place).to_lowercase();
    format!(
        "{place},{},{},{},{},{},{},{},{},{},{},{fits}",
        plan.kind.name.replace(',', ""),
        plan.stuff.name(),
        plan.algorithm,
        tally.tried,
        tally.by_head,
        tally.by_payload,
        tally.as_duplicate,
        tally.harmless,
        tally.missed(),
        plan.theory().text(),
    )
}

fn main() -> ExitCode {
    let Some(args) = parse() else {
        eprintln!("usage: inject [COPIES] [--only ALGORITHM] [--csv FILE]");
        return ExitCode::from(2);
    };
    let mut table = format!("{HEADING}\n");
    let (mut strong, mut missed, mut wrong) = (0, 0, 0);
    let wanted = |plan: &Plan| args.only.is_none_or(|only| plan.algorithm == only);
    for plan in plans(args.copies).into_iter().filter(wanted) {
        let tally = match plan.run() {
            Ok(tally) => tally,
            Err(text) => {
                eprintln!("{text}");
                return ExitCode::FAILURE;
            }
        };
        let bounds = plan.theory().bounds(tally.tried);
        let fits = bounds.map(|(least, most)| (least..=most).contains(&tally.missed()));
        let word = fits.map_or("", |yes| if yes { "yes" } else { "no" });
        wrong += u64::from(fits == Some(false));
        if plan.algorithm.strength() == Strength::Strong {
            strong += tally.tried;
            missed += tally.missed();
        }
        let line = row(&plan, &tally, word);
        println!("{line}");
        let _ = writeln!(table, "{line}");
    }
    eprintln!("strong: {strong} damaged packets, {missed} missed; {wrong} rows not as theory");
    if let Some(path) = args.csv {
        if let Some(dir) = std::path::Path::new(&path).parent() {
            // Writing the file reports the error.
            let _ = std::fs::create_dir_all(dir);
        }
        if let Err(e) = std::fs::write(&path, table) {
            eprintln!("{path}: {e}");
            return ExitCode::FAILURE;
        }
    }
    if missed + wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
