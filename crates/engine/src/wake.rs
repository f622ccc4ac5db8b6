//! Sleeping and waking of the progress thread.
