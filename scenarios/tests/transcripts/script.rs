//! A calm cluster under a script of steps, and what it says.

use kernel::{HostId, HostSlot, Node, NodeId, RequestId, Rng};
use sim::{
    Classes, Cluster, Control, Core, HostSpec, Incarnation, Latency, OperationId, Options, Plan, Scenario,
    TraceLine, Tuning, plain, run_seed,
};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Makes the nodes of a host.
pub(crate) type Build<N> = Rc<dyn Fn(Incarnation) -> Vec<(HostSlot, N)>>;
/// What a step does.
pub(crate) type Act<N> = Rc<dyn Fn(&mut Control<'_, N>)>;

/// One step of a script.
pub(crate) struct Step<N: Node> {
    title: &'static str,
    lasts: Duration,
    act: Act<N>,
    shown: bool,
}

/// A cluster, what happens to it, and which messages are left out of the transcript.
pub(crate) struct Flow<N: Node> {
    about: &'static str,
    hosts: Vec<(HostSpec, &'static str)>,
    build: Build<N>,
    steps: Rc<Vec<Step<N>>>,
    left_out: &'static [&'static str],
    /// What a node is called, by its number on its host and its role.
    label: fn(u32, &str) -> String,
}

impl<N: Node> Flow<N> {
    /// `left_out`: messages that every cluster sends all the time, by the beginning of their names.
    pub(crate) fn new(
        about: &'static str,
        hosts: Vec<(HostSpec, &'static str)>,
        build: Build<N>,
        left_out: &'static [&'static str],
        label: fn(u32, &str) -> String,
    ) -> Self {
        Self { about, hosts, build, steps: Rc::new(Vec::new()), left_out, label }
    }

    fn with(self, title: &'static str, lasts: u64, shown: bool, act: Act<N>) -> Self {
        let mut steps = Rc::into_inner(self.steps).unwrap_or_default();
        steps.push(Step { title, lasts: Duration::from_millis(lasts), act, shown });
        Self { steps: Rc::new(steps), ..self }
    }

    /// A step whose messages are in the transcript, for so many milliseconds.
    #[must_use]
    pub(crate) fn then(
        self,
        title: &'static str,
        lasts: u64,
        act: impl Fn(&mut Control<'_, N>) + 'static,
    ) -> Self {
        self.with(title, lasts, true, Rc::new(act))
    }

    /// A step whose messages are not.
    #[must_use]
    pub(crate) fn unseen(
        self,
        title: &'static str,
        lasts: u64,
        act: impl Fn(&mut Control<'_, N>) + 'static,
    ) -> Self {
        self.with(title, lasts, false, Rc::new(act))
    }

    /// What happened, as text.
    pub(crate) fn transcript(&self) -> String {
        let total: Duration = self.steps.iter().map(|step| step.lasts).sum();
        let options = Options { trace: true, until: Some(total.as_nanos() as u64), ..Options::default() };
        let hosts: Vec<HostSpec> = self.hosts.iter().map(|(spec, _)| *spec).collect();
        let factory =
            |_: &mut Rng| Cast { hosts: hosts.clone(), build: self.build.clone(), steps: self.steps.clone() };
        let outcome =
            run_seed(&factory, 0, &Options { plan: Some(calm(self.seed_of_even_links())), ..options });
        assert_eq!(outcome.violation, None, "{}", self.about);
        let mut text = format!("{}\n", self.about);
        let mut from = 0;
        for step in self.steps.iter() {
            let until = from + step.lasts.as_nanos() as u64;
            if step.shown {
                text.push_str(&format!("\n{}\n", step.title));
                let lines = outcome.trace.iter().filter(|line| (from..until).contains(&line.at));
                for line in lines.filter_map(|line| self.readable(line, from, &outcome.names)) {
                    text.push_str(&line);
                }
            } else {
                text.push_str(&format!("\n({})\n", step.title));
            }
            from = until;
        }
        text
    }

    /// The first seed by which every packet takes the same time.
    fn seed_of_even_links(&self) -> u64 {
        let nothing = |_: &mut Rng| Cast::<N> {
            hosts: Vec::new(),
            build: Rc::new(|_| Vec::new()),
            steps: Rc::default(),
        };
        let is_even = |seed: &u64| {
            let options = Options { plan: Some(calm(*seed)), until: Some(0), ..Options::default() };
            matches!(run_seed(&nothing, 0, &options).swarm.latency, Latency::Constant(_))
        };
        (0..64).find(is_even).expect("one distribution of four is even")
    }

    /// A line with names instead of numbers; none of what is left out.
    fn readable(
        &self,
        line: &TraceLine,
        from: u64,
        names: &BTreeMap<String, &'static str>,
    ) -> Option<String> {
        let mut text = plain(&line.text, names);
        // `h2.41` before `h2.4`.
        for (node, role) in names.iter().rev() {
            let (host, number) = node.split_once('.').expect("a node is a number on a host");
            let label = (self.label)(number.parse().expect("a number"), role);
            text = text.replace(&format!("{role}({node})"), node).replace(node, &format!("{host}.{label}"));
        }
        for (spec, name) in &self.hosts {
            text = text.replace(&format!("{:?}", spec.id), name);
        }
        let said = text.split_once(" sends ").and_then(|(_, said)| said.split_once(' '));
        let left_out = |said: &str| self.left_out.iter().any(|left_out| said.starts_with(left_out));
        if text.contains(" timer ") || said.is_some_and(|(_, said)| left_out(said)) {
            return None;
        }
        let text = text.replacen(" sends ", " -> ", 1);
        let shown: String = text.chars().take(LINE_MAX).collect();
        let more = if text.chars().count() > LINE_MAX { " ..." } else { "" };
        let at = (line.at - from) as f64 / 1e6;
        Some(format!("{at:>9.3} ms  {shown}{more}\n"))
    }
}

/// Longer lines are truncated: configurations, for instance.
const LINE_MAX: usize = 150;

/// A run without any fault.
fn calm(seed: u64) -> Plan {
    Plan {
        family: "transcript".to_owned(),
        seed,
        salt: 0,
        heal_at: None,
        faults: Vec::new(),
        omitted: Vec::new(),
        retained: None,
    }
}

/// The simulator's view of a flow.
struct Cast<N: Node> {
    hosts: Vec<HostSpec>,
    build: Build<N>,
    steps: Rc<Vec<Step<N>>>,
}

impl<N: Node> Scenario for Cast<N> {
    type Node = N;

    const FAMILY: &'static str = "transcript";

    fn hosts(&self) -> Vec<HostSpec> {
        self.hosts.clone()
    }

    fn clients(&self) -> Vec<NodeId> {
        Vec::new()
    }

    fn classes(&self) -> Classes {
        Classes::NONE
    }

    fn tuning(&self) -> Tuning {
        let same = |us| (Duration::from_micros(us), Duration::from_micros(us));
        let safety = Duration::from_secs(600);
        Tuning {
            safety: (safety, safety),
            latency: same(500),
            sync: same(200),
            burst: same(1),
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, N)> {
        (self.build)(incarnation)
    }

    fn on_begin(&mut self, control: &mut Control<'_, N>) {
        let mut at = Duration::ZERO;
        for (step, token) in self.steps.iter().zip(0..) {
            control.alarm(at, token);
            at += step.lasts;
        }
    }

    fn on_alarm(&mut self, token: u64, control: &mut Control<'_, N>) {
        (self.steps[token as usize].act)(control);
    }

    fn operate(&mut self, _: OperationId, _: NodeId, _: &mut Rng, _: &mut Control<'_, N>) {}

    fn on_response(&mut self, _: NodeId, _: RequestId, _: sim::ResponseOf<N>, _: &mut Control<'_, N>) {}

    fn core(&mut self, _: &Cluster<'_, N>, _: &mut Rng) -> Core {
        Core::Excused("a transcript ends before".to_owned())
    }
}

/// The host of that name.
pub(crate) fn host(name: &str) -> HostId {
    HostId::named(name)
}
