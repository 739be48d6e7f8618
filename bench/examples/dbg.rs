//! debug
use bench::figures::*;
fn main() {
    for name in std::env::args().skip(1) {
        let t = std::time::Instant::now();
        let f = Figure::named(&name).unwrap();
        let d = f.draw(&Watch { progress: &|_, _| {}, threads: 2 }).unwrap();
        for c in &d.claims {
            println!("{:50} {:?} {:.2} {} {}", c.what, c.paper, c.ours, c.holds, c.note);
        }
        for p in &d.panels {
            for s in &p.series {
                println!(
                    "{} {}",
                    s.name,
                    s.points
                        .iter()
                        .map(|p| format!("({:.0},{:.2} {})", p.x, p.y, p.note))
                        .collect::<Vec<_>>()
                        .join(" ")
                );
            }
        }
        write(&d, &name, std::path::Path::new("/tmp/fig")).unwrap();
        println!("{name} {:?}", t.elapsed());
    }
}
