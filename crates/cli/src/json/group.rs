//! A group of counters as an object, with their present and former names.

use crate::former::former;
use marline_engine::stats::{Counters, Row};
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::{json, Map, Value};
use std::borrow::Cow;

/// A group of counters.
#[derive(Debug)]
pub struct Group<C>(pub C);

/// The names of a counter: now, and in the version before.
fn names(row: &'static Row) -> impl Iterator<Item = &'static str> {
    [Some(row.name), former(row.name)].into_iter().flatten()
}

impl<C: Counters> Serialize for Group<C> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let values = self.0.values();
        to.collect_map(values.flat_map(|(row, value)| names(row).map(move |name| (name, value))))
    }
}

impl<C: Counters> JsonSchema for Group<C> {
    fn schema_name() -> Cow<'static, str> {
        let path = std::any::type_name::<C>();
        path.rsplit("::").next().unwrap_or(path).into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let counter = |row: &'static Row| {
            let about = format!("{} ({})", row.doc, row.unit);
            let schema = json!({ "type": "integer", "minimum": 0, "description": about });
            names(row).map(move |name| (name.to_owned(), schema.clone()))
        };
        let counters: Map<String, Value> = C::ROWS.iter().flat_map(counter).collect();
        let required: Vec<&String> = counters.keys().collect();
        json_schema!({ "type": "object", "required": required, "properties": counters })
    }
}
