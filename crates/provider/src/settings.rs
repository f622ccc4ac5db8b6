//! Settings `FI_MARLINE_*`: the engine's table, through libfabric's parameter calls.

use crate::host;
use marline_engine::settings::{Settings, TABLE};

/// Makes libfabric know every setting.
pub(crate) fn define_all() {
    for row in TABLE {
        let help = match row.default {
            "" => row.help.to_owned(),
            default => format!("{} (default: {default})", row.help),
        };
        host::param_define(row.name, &help);
    }
}

/// Reads what the user set. The error is a text for people.
pub(crate) fn read() -> Result<Settings, String> {
    Settings::from_lookup(host::param_get)
}
