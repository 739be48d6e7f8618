//! The rules of the repository, applied to it. Each failure names file and line.

use std::path::Path;
use tidy::{File, Finding};

fn demand(rule: fn(&[File]) -> Vec<Finding>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the repository");
    let files = tidy::repository(root).expect("the repository can be read");
    assert!(files.iter().any(|file| file.path == "kernel/src/lib.rs"), "this is not the repository");
    let findings: Vec<String> = rule(&files).iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

// Each test: what the rule's own description says would otherwise creep in.
macro_rules! rules {
    ($($rule:ident),+ $(,)?) => {
        $(
            #[test]
            fn $rule() {
                demand(tidy::$rule);
            }
        )+
    };
}

rules!(
    layers,
    circles,
    promises,
    public_types,
    names,
    root_files,
    words,
    words_that_are_out,
    stubs,
    headings,
    long_files,
    long_functions,
    unsafe_code,
    packages,
    registries,
    lints,
    links,
    named_files,
    error_codes,
    metrics,
    wide_lines,
    dashboard,
);
