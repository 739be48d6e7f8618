//! `docs/extending.md` against the tree: what it asks people to touch is there, and is little.

use std::path::Path;

/// Existing files that one addition may touch.
const FILES_MAX: usize = 6;

/// The rows of a section: files, and words in them.
fn rows(section: &str) -> Vec<(&str, &str)> {
    section
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let file = cells.next()?.trim_end_matches('`');
            let words =
                cells.nth(1)?.trim().trim_end_matches('|').trim().strip_prefix('`')?.strip_suffix('`')?;
            Some((file, words))
        })
        .collect()
}

// A guide to files that have moved costs its reader a day; one that lists ten files is no architecture.
#[test]
fn each_addition_touches_few_files_and_they_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the repository");
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let page = read("docs/extending.md");
    let sections: Vec<&str> = page.split("\n## Add ").skip(1).collect();
    assert_eq!(sections.len(), 4, "an engine, a service, an opcode, a planted bug");
    for section in sections {
        let name = section.lines().next().unwrap_or_default();
        let rows = rows(section);
        assert!((3..=FILES_MAX).contains(&rows.len()), "add {name}: {} files", rows.len());
        for (file, words) in rows {
            assert!(read(file).contains(words), "add {name}: {file} does not say {words}");
        }
    }
}
