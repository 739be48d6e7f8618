//! `ordinate figures`, `plan` and `calibrate`: what is drawn is there, and what is planned is proven.

use super::{Folder, expect_failure, run};
use std::time::{Duration, Instant};

/// An answer to a question that people wait for, in a build that is not the fastest and on a machine that others use.
const ANSWERED_WITHIN: Duration = Duration::from_secs(180);

// A figure that cannot be read by a browser, a spreadsheet or a program is for nobody; one that is not listed is not found.
#[test]
fn figures_are_listed_and_drawn() {
    let folder = Folder::new("figures");
    let list = run(&["figures", "list"]);
    let named = |name: &str| list.out.lines().filter(|line| line.split(' ').next() == Some(name)).count();
    for name in ["mason-3", "mason-4", "mason-5", "mason-6", "compartmentalization-28"] {
        assert_eq!(named(name), 1, "{name} in {}", list.out);
    }
    let drawn = folder.run(&["figures", "run", "mason-6", "--out", "drawn"]);
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    assert!(
        drawn.out.starts_with("Mason, Figure 6  A contiguous sequence over two failures"),
        "{}",
        drawn.out
    );
    let read = |ending: &str| {
        let path = folder.0.join("drawn").join(format!("mason-6.{ending}"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (svg, csv, json) = (read("svg"), read("csv"), read("json"));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{}", &svg[..80.min(svg.len())]);
    assert!(csv.starts_with("panel,series,source,x,y,note\n") && csv.lines().count() > 1_000);
    let json: serde_json::Value = serde_json::from_str(&json).expect("a program reads it");
    let claims = json["claims"].as_array().expect("what the paper claims");
    // Failures are shorter than in the paper: that differs, and is not drawn as if it were the same.
    let holds: Vec<bool> = claims.iter().map(|claim| claim["holds"] == true).collect();
    assert_eq!(holds, [false, false, true, true], "{claims:?}");
    assert!(claims.iter().all(|claim| claim["kind"] == "prediction"), "{claims:?}");
    expect_failure(
        &run(&["figures", "run", "nosuch"]),
        2,
        "error[O8001]: there is no figure nosuch\n  figures have names, and all means all of them\n  -> ordinate figures list",
    );
}

// A figure that is put into no page, or into a page that lacks the others, would leave a page that is not true.
#[test]
fn a_figure_goes_into_a_page_that_is_there() {
    let folder = Folder::new("figures-page");
    let put_into = |page: &str| folder.run(&["figures", "run", "mason-6", "--markdown", page]);
    folder.write("empty.md", "# Nothing\n");
    for page in ["missing.md", "empty.md"] {
        let refused = put_into(page);
        let starts = "error[O8008]: there is no page to put this figure into\n";
        assert!(refused.code == Some(2) && refused.err.starts_with(starts), "{refused:?}");
        assert!(
            refused.err.contains(&format!("-> ordinate figures run all --markdown {page}")),
            "{refused:?}"
        );
    }
    let known = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/figures.md");
    std::fs::copy(known, folder.0.join("page.md")).expect("the page is in the repository");
    assert_eq!(put_into("page.md").code, Some(0));
    let text = |path: &std::path::Path| std::fs::read_to_string(path).expect("it was written");
    assert_eq!(text(&folder.0.join("page.md")), text(known.as_ref()), "the figure is drawn as it was before");
}

/// A plan that carries its load while nothing smaller does.
fn proven(arguments: &[&str], machines: &str) {
    let began = Instant::now();
    let plan = run(&[&["plan"], arguments].concat());
    assert_eq!(plan.code, Some(0), "{plan:?}");
    let lines = |start: &str| -> Vec<&str> {
        plan.out.lines().filter(|line| line.trim_start().starts_with(start)).collect()
    };
    let simulated = lines("simulated ");
    assert!(simulated.len() == 1 && simulated[0].contains(" carries it: "), "{}", plan.out);
    let fewer = lines("fewer ");
    assert!(!fewer.is_empty() && fewer.iter().all(|line| !line.contains(": carries it")), "{}", plan.out);
    assert!(plan.out.contains(machines), "not {machines}: {}", plan.out);
    assert!(began.elapsed() < ANSWERED_WITHIN, "{:?}", began.elapsed());
}

// The questions of docs/figures.md, with the answers given there: a plan that one machine fewer would do for wastes it, and one
// that does not carry its load is none.
#[test]
fn writes_are_planned() {
    proven(&["--writes", "800k/s", "--reads", "0", "--value", "16"], "  14 machines survive 1 failure");
}

#[test]
fn mostly_reads_are_planned() {
    proven(&["--writes", "50k/s", "--reads", "450k/s"], "  13 machines survive 1 failure");
}

#[test]
fn numbers_are_planned() {
    proven(&["--numbers", "5M/s"], " machines survive 1 failure of each kind");
}

#[test]
fn operations_of_shards_are_planned() {
    proven(&["--operations", "2M/s", "--value", "64"], " machines survive 1 failure of each kind");
}

// A question without a sense must be refused at once, with what to ask instead.
#[test]
fn plans_that_cannot_be_are_explained() {
    expect_failure(
        &run(&["plan"]),
        2,
        "error[O8003]: no load is given\n  neither writes nor reads\n  -> ordinate plan --writes 800k/s --value 16",
    );
    let unknown = run(&["plan", "--writes", "1k/s", "--machines", "nosuch"]);
    assert!(
        unknown.code == Some(2) && unknown.err.starts_with("error[O8004]: nosuch is no profile\n"),
        "{unknown:?}"
    );
    let too_much = run(&["plan", "--writes", "900M/s"]);
    let starts = "error[O8005]: no deployment carries this load\n";
    assert!(too_much.code == Some(1) && too_much.err.starts_with(starts), "{too_much:?}");
    let both = run(&["plan", "--writes", "1k/s", "--numbers", "1k/s"]);
    assert!(both.code == Some(2) && both.err.contains("cannot be used with"), "{both:?}");
}

// What this machine costs must be what plans are made of, without anything done to the file in between. The loads are small, because a
// busy machine measures itself as a slow one.
#[test]
fn a_measured_profile_makes_plans() {
    let folder = Folder::new("calibrate");
    let measured = folder.run(&["calibrate", "--out", "machine.toml", "--seconds", "0.2"]);
    assert_eq!(measured.code, Some(0), "{measured:?}");
    assert!(measured.out.contains("of processor time a put over "), "{}", measured.out);
    for question in [["--writes", "500/s"], ["--numbers", "2k/s"], ["--operations", "500/s"]] {
        let plan = folder.run(&["plan", question[0], question[1], "--machines", "machine.toml"]);
        assert_eq!(plan.code, Some(0), "{plan:?}");
        assert!(plan.out.contains("measured by ordinate calibrate"), "{}", plan.out);
        assert!(plan.out.contains(" carries it: "), "{}", plan.out);
    }
}
