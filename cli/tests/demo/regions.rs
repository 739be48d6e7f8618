//! `ordinate demo --regions`: regions that are cut from each other, and judged.

use super::{Demo, run};

fn number_behind(line: &str, word: &str) -> u64 {
    let mut words = line.split([' ', ',']).skip_while(|it| *it != word);
    let number = words.nth(1).and_then(|it| it.parse().ok());
    number.unwrap_or_else(|| panic!("no number behind {word}: {line}"))
}

/// A verdict without a defect; how many appends each region has, with no cut and in one.
fn sound_verdict(demo: &mut Demo, regions: &[&str], with_cut: bool) -> Vec<(u64, u64)> {
    demo.say("verdict");
    let mut appends = Vec::new();
    for region in regions {
        let without = demo.until(&format!("  {region} "));
        let in_cut = if with_cut { number_behind(&demo.until("    cut "), "appends") } else { 0 };
        appends.push((number_behind(&without, "appends"), in_cut));
    }
    let verdict = demo.until("(checked: ");
    assert!(
        verdict.starts_with("  acknowledged lost: 0, none twice; each behind what its writer had seen ("),
        "{verdict}"
    );
    appends
}

// A region that waits for another one, or regions that do not agree again, are what the demo is to show that there are not.
#[test]
fn regions_go_on_in_a_cut_and_agree_after_it() {
    // A region whose hosts all stop has what is on their disks.
    let mut demo = Demo::start_with(&["--regions", "ohio,tokyo", "--rtt", "60ms"]);
    let line = demo.until("  ohio    a b c ");
    let words: Vec<&str> = line.split("ordinate ").nth(1).expect("a command").split(' ').collect();
    let printed = run(&words);
    assert_eq!(printed.code, Some(0), "{line}: {printed:?}");
    demo.until("Try:");
    demo.say("append ohio mine before the cut");
    demo.until("  node 0 of mine, after ");
    demo.say("cut");
    demo.until("  cut: ohio tokyo alone");
    demo.say("append ohio mine in ohio alone");
    demo.until("  node 1 of mine, after ");
    demo.say("kill tokyo");
    demo.until("  tokyo stopped");
    demo.say("restart tokyo");
    demo.until("  tokyo serves after ");
    demo.say("append tokyo mine in tokyo alone");
    demo.until("  node ");
    demo.say("sync tokyo mine");
    assert!(demo.until("in tokyo alone").ends_with("in tokyo alone"));
    demo.say("regions");
    demo.until("  ohio    a b c");
    assert!(demo.until("    tokyo: ").contains("heard"), "now or never");
    demo.say("wait 1s");
    for (_, in_cut) in sound_verdict(&mut demo, &["ohio", "tokyo"], true) {
        assert!(in_cut > 0, "nobody appended in the cut");
    }
    demo.until("  what one has of another is not compared while there is a cut");
    demo.say("heal");
    demo.until("  ohio has all that tokyo had, after ");
    demo.until("  tokyo has all that ohio had, after ");
    sound_verdict(&mut demo, &["ohio", "tokyo"], true);
    let equal = demo.until("  all regions equal: nodes ");
    assert!(number_behind(&equal, "nodes") > 3 && equal.ends_with("of blue, green, mine, red"), "{equal}");
    demo.say("append ohio mine tokyo.0 7");
    demo.until("is what a writer appends");
    demo.say("cut iowa");
    demo.until("  no region iowa; there are: ohio tokyo");
    let (code, trouble) = demo.end();
    assert_eq!(code, Some(1), "{trouble}");
    assert!(trouble.starts_with("error[O5002]: 2 of 14 lines failed"), "{trouble}");
}

// Three regions of which one is cut: the other two must still hear each other.
#[test]
fn one_of_three_regions_is_cut() {
    let mut demo = Demo::start_with(&["--regions", "ohio,tokyo,paris", "--rtt", "20ms"]);
    demo.until("Try:");
    demo.say("cut paris");
    demo.until("  cut: paris alone");
    demo.say("append ohio mine hello");
    demo.until("  node 0 of mine");
    let seen = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        demo.say("sync tokyo mine");
        demo.until("  nodes ") == "  nodes 1"
    });
    assert!(seen, "tokyo does not get it from ohio");
    demo.say("sync paris mine");
    assert_eq!(demo.until("  nodes "), "  nodes 0", "paris cannot have it");
    demo.say("heal");
    demo.until("  paris has all that ohio had, after ");
    sound_verdict(&mut demo, &["ohio", "tokyo", "paris"], true);
    demo.until("  all regions equal: nodes ");
    let (code, trouble) = demo.end();
    assert_eq!((code, trouble.as_str()), (Some(0), ""));
}

// A wrong flag must say what is wrong with it, and start nothing.
#[test]
fn regions_that_cannot_be_are_refused() {
    for (arguments, why) in [
        (&["--regions", "ohio"][..], "O5004"),
        (&["--regions", "ohio,ohio"], "a region is named twice"),
        (&["--regions", "ohio,"], "is no name for a region"),
        (&["--regions", "o hio,tokyo"], "\"o hio\" is no name for a region"),
        (&["--regions", "a,b,c,d,e,f,g,h,i"], "9 regions, and 2 to 8 are possible"),
        (&["--regions", "ohio,tokyo", "--rtt", "168"], "wanted: a time as 168ms"),
        (&["--regions", "ohio,tokyo", "--rtt", "2s"], "1s is the most"),
        (&["--rtt", "168ms"], "--regions"),
    ] {
        let ended = run(&[&["demo"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(format!("{ended:?}").contains(&why.replace('"', "\\\"")), "{arguments:?}: {ended:?}");
    }
}
