//! dev
use scenarios::paxos::PaxosScenario;
use sim::{Options, Report, Sweep};
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    if a.len() == 1 {
        let o = sim::run_seed(
            &|rng: &mut kernel::Rng| PaxosScenario::draw(rng),
            a[0],
            &Options { trace: true, ..Options::default() },
        );
        match sim::report(&o, &Report::default()) {
            Some(t) => println!("{t}"),
            None => println!("ok {} events {} ops", o.events, o.operations.len()),
        }
        return;
    }
    let t = std::time::Instant::now();
    let r = sim::sweep(
        &|rng: &mut kernel::Rng| PaxosScenario::draw(rng),
        &Sweep { threads: 2, violations_max: 30, ..Sweep::of(a[0]..a[1]) },
    );
    println!(
        "seeds {} violations {} events {} ops {} hours {:.2} wall {:.1}",
        r.seeds,
        r.violations,
        r.events,
        r.operations,
        r.sim_hours,
        t.elapsed().as_secs_f64()
    );
    println!("{:?}", r.by_invariant);
    for f in r.found.iter().take(12) {
        println!(
            "{} {} {} step {}",
            f.seed,
            f.invariant,
            f.what.chars().take(3000).collect::<String>(),
            f.step
        );
    }
    println!("excused {} {:?}\nrejects {:?}\nshort {:?}", r.excused, r.excuses, r.rejects, r.shortfalls);
    println!("{:?}", r.marks);
}
