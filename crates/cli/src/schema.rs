//! `marline schema`: the JSON schema of an output, made from the types that the output is made of.

use crate::doctor::Examined;
use crate::outcome::Uncoded;
use crate::report::data::Report;
use crate::run::summary::Ended;
use crate::stats::data::{Events, Followed, Stats};
use crate::tool;
use crate::top::data::Snapshot;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

/// Arguments of `schema`.
#[derive(clap::Args)]
pub struct SchemaArgs {
    /// The output: of `marline run --json`, for example.
    output: Output,
}

/// Commands with JSON output.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Run,
    Stats,
    Events,
    /// A line of `marline events --follow --json`.
    Follow,
    Report,
    Top,
    Doctor,
}

/// Prints the schema.
pub fn main(args: &SchemaArgs) -> Uncoded {
    let schema = schema(args.output);
    let text = serde_json::to_string_pretty(&schema).map_err(|e| format!("schema: {e}"))?;
    tool::print(&format!("{text}\n"))?;
    Ok(0)
}

fn schema(output: Output) -> Schema {
    match output {
        Output::Run => of::<Ended>(),
        Output::Stats => of::<Stats>(),
        Output::Events => of::<Events>(),
        Output::Follow => of::<Followed>(),
        Output::Report => of::<Report>(),
        Output::Top => of::<Snapshot>(),
        Output::Doctor => of::<Examined<'static>>(),
    }
}

/// The schema of values as they are printed: members that may be null are there, too.
fn of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_output_has_a_schema_whose_members_are_all_required() {
        for output in Output::value_variants() {
            let schema = schema(*output).to_value();
            let members = schema["properties"].as_object().unwrap();
            let required = schema["required"].as_array().unwrap();
            assert_eq!(members.len(), required.len(), "{output:?}");
            let explained = members
                .values()
                .all(|member| !member["description"].is_null());
            assert!(explained, "{output:?}: {members:?}");
        }
    }
}
