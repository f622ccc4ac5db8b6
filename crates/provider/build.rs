//! Link options of the provider library.

fn main() {
    // A thread of ours may still be leaving when libfabric unloads its providers; code that is
    // never unmapped makes that harmless (rust-lang/rust#91979).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
