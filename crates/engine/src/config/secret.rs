//! A secret among the settings: a text that is never shown.

use crate::config::kind::Kind;
use crate::config::value::Value;
use core::fmt;
use marline_auth::JobKey;

/// Prefix of the name of a variable with a secret where Open MPI carries the variable to processes
/// of MPI_Comm_spawn: it carries no others.
pub const CARRIED_BY_OPEN_MPI: &str = "OMPI_";

/// A text that is neither shown nor logged.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretText(pub(crate) String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl Value for SecretText {
    fn from_text(text: &str, _: &Kind) -> Option<Self> {
        let valid = text.is_empty() || JobKey::from_hex(text).is_some();
        valid.then(|| SecretText(text.to_owned()))
    }

    fn to_text(&self) -> String {
        let shown = if self.0.is_empty() { "" } else { "(secret)" };
        shown.to_owned()
    }
}
