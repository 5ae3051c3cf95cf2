//! From a snapshot to a profile: addresses get names, the pool's own frames go, equal stacks become one site.
//!
//! What the frames of a stack are called does not change, so a builder that is kept (the dashboard's) only works on
//! the stacks that are new since its last profile.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use poolscope_wire::script::{self, Language};
use poolscope_wire::{DeviceCounter, label};

use crate::build::module_index::ModuleIndex;
use crate::build::pool_frames;
use crate::build::python::is_python;
use crate::model::functions::{Function, Functions};
use crate::model::memory::Place;
use crate::model::naming::Naming;
use crate::model::profile::{Frame, Held, Location, Peak, Profile, Site};
use crate::model::snapshot::{Amount, ProcessInfo, Snapshot, Stack};
use crate::symbols::function_name;
use crate::symbols::symbolize::SymbolCache;
use crate::symbols::warning::SymbolWarning;
use crate::words::figures;
use crate::words::printable::printable_str;

/// The name under which blocks count whose stack the segment could not hold.
pub const UNKNOWN_STACK: &str = "[unknown stack]";

/// Builds profiles, and remembers symbols between them. It stays in one thread (see [`SymbolCache`]).
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    symbols: SymbolCache,
    known: KnownStacks,
    naming: Arc<Naming>,
}

/// The stacks of one process that were seen already.
#[derive(Debug, Default)]
struct KnownStacks {
    owner: Option<(u32, u64, u64)>,
    former: Vec<(u32, ProcessInfo)>,
    modules: ModuleIndex,
    locations: Arc<Vec<Location>>,
    location_index: HashMap<CalledFrom, usize>,
    /// How many of the innermost functions of a location are the pool's.
    pool_functions: HashMap<usize, usize>,
    calls: KnownCalls,
    /// Locations of labels, by their names.
    labels: HashMap<String, usize>,
    /// Locations of generated code without a name, with whose they are.
    nameless: Vec<(usize, (u32, u64))>,
    sites: Vec<Rc<SiteKey>>,
    site_index: HashMap<Rc<SiteKey>, usize>,
    /// For each stack its length and its site.
    stacks: Vec<(usize, usize)>,
    /// What each site held last: profiles share what stays the same.
    held: Vec<Arc<[Held]>>,
    /// The sites in the order of the last profile: the next one's is nearly the same.
    order: Vec<u32>,
}

/// An address that was called from, in which module or which process's generated code, and how many of the innermost
/// functions there are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CalledFrom {
    address: u64,
    module: Option<usize>,
    owner: (u32, u64),
    skip: usize,
}

/// The locations of return addresses, as long as they mean the same: stacks have most of them in common.
#[derive(Debug, Default)]
struct KnownCalls {
    /// That depends on the modules that were there at the last stack, and on whose it is.
    last: u32,
    owner: (u32, u64),
    /// None of one in the pool's library.
    of: HashMap<u64, Option<u32>>,
}

/// A call of a stack.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Or the word of a function that an interpreter ran.
    return_address: u64,
    /// Its location with all of its functions; none of one in the pool's library.
    location: Option<usize>,
}

impl Call {
    fn is_script(self) -> bool {
        script::Call::of_word(self.return_address).is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SiteKey {
    locations: Arc<[usize]>,
    place: Place,
    incomplete: bool,
}

impl ProfileBuilder {
    /// A builder that knows no symbols yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder that looks for separate debug information in these folders, too ([`SymbolCache::with_debug_dirs`]).
    pub fn with_debug_dirs(debug_dirs: &[PathBuf]) -> Self {
        Self { symbols: SymbolCache::with_debug_dirs(debug_dirs), ..Self::default() }
    }

    /// Has names of functions kept in a folder from one run to the next ([`SymbolCache::kept_in`]).
    #[must_use]
    pub fn with_names_kept_in(self, folder: &Path) -> Self {
        Self { symbols: self.symbols.kept_in(folder), ..self }
    }

    /// Has call sites not be named by some functions, in every report of what is built from now on.
    #[must_use]
    pub fn with_naming(self, naming: Arc<Naming>) -> Self {
        Self { naming, ..self }
    }

    /// The same from the next profile on.
    pub fn set_naming(&mut self, naming: Arc<Naming>) {
        self.naming = naming;
    }

    /// Builds the profile of a snapshot.
    pub fn build(&mut self, snapshot: &Snapshot) -> Profile {
        self.build_with_sites(snapshot, |_| false).0
    }

    /// The same, and for each stack of the snapshot its site in the profile; none for those that hold and allocated
    /// nothing, unless `wanted` says so by the stack's number.
    pub fn build_with_sites(
        &mut self,
        snapshot: &Snapshot,
        wanted: impl Fn(usize) -> bool,
    ) -> (Profile, Vec<Option<usize>>) {
        self.known.prepare(snapshot);
        let mut processes: Vec<&ProcessInfo> = snapshot.former.iter().map(|(_, process)| process).collect();
        processes.push(&snapshot.process);
        processes.dedup();
        let read = processes.into_iter().filter(|process| self.symbols.update_generated(process)).count();
        if read > 0 {
            self.known.name_generated(&self.symbols);
        }
        for (index, stack) in snapshot.stacks.iter().enumerate().skip(self.known.stacks.len()) {
            let site = self.known.add(&mut self.symbols, snapshot, index as u32, stack);
            self.known.stacks.push((stack.frames.len(), site));
        }

        let mut sites: Vec<Site> = self.known.sites.iter().map(|key| key.empty_site()).collect();
        for (stack, &(_, site)) in snapshot.stacks.iter().zip(&self.known.stacks) {
            sites[site].allocated += stack.allocated;
            sites[site].peak += stack.peak;
        }
        // Where the blocks of each site begin, once they stand by site.
        let mut begins = vec![0usize; sites.len() + 1];
        for block in &snapshot.live {
            if let Some(&(_, site)) = self.known.stacks.get(block.stack as usize) {
                begins[site + 1] += 1;
                sites[site].in_use += block.amount();
                sites[site].in_use_variance += block.variance();
                let oldest = &mut sites[site].oldest_ns;
                *oldest = if *oldest == 0 { block.time_ns } else { block.time_ns.min(*oldest) };
            }
        }
        for site in 0..sites.len() {
            begins[site + 1] += begins[site];
        }
        let mut next = begins.clone();
        let mut held = vec![Held::default(); begins.last().copied().unwrap_or(0)];
        for block in &snapshot.live {
            if let Some(&(_, site)) = self.known.stacks.get(block.stack as usize) {
                held[next[site]] = Held { size: block.size, tid: block.tid, amount: block.amount() };
                next[site] += 1;
            }
        }
        self.known.held.resize_with(sites.len(), Arc::default);
        let mut merged: Vec<Held> = Vec::new();
        for (site, known) in self.known.held.iter_mut().enumerate() {
            let of_site = &mut held[begins[site]..begins[site + 1]];
            of_site.sort_unstable_by_key(|held| (held.size, held.tid));
            merged.clear();
            for next in of_site.iter() {
                match merged.last_mut() {
                    Some(last) if (last.size, last.tid) == (next.size, next.tid) => last.amount += next.amount,
                    _ => merged.push(*next),
                }
            }
            if **known != *merged {
                *known = merged.as_slice().into();
            }
            sites[site].held = Arc::clone(known);
        }
        let (peak, device_peaks) = Peak::find(snapshot, &mut sites);
        let mut kept = vec![false; sites.len()];
        self.known.stacks.iter().enumerate().for_each(|(stack, &(_, site))| kept[site] |= wanted(stack));
        let first_new = self.known.order.len() as u32;
        self.known.order.extend(first_new..sites.len() as u32);
        // What is compared lies together: sites are far from each other. Those that are equal stand as they were first seen.
        let key = |&at: &u32| (sites[at as usize].in_use.bytes, sites[at as usize].allocated.bytes, at);
        let mut keys: Vec<(f64, f64, u32)> = self.known.order.iter().map(key).collect();
        keys.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
        self.known.order.iter_mut().zip(keys).for_each(|(order, (.., at))| *order = at);

        let mut places: Vec<Option<usize>> = vec![None; sites.len()];
        let is_used = |at: usize| {
            let site = &sites[at];
            site.in_use != Amount::default() || site.allocated != Amount::default() || kept[at]
        };
        let mut used = 0;
        for at in self.known.order.iter().map(|&at| at as usize).filter(|&at| is_used(at)) {
            places[at] = Some(used);
            used += 1;
        }
        put_in_order(&mut sites, &places, used);
        let stacks = self.known.stacks.iter().take(snapshot.stacks.len());
        let site_of_stacks = stacks.map(|&(_, site)| places[site]).collect();
        let profile = Profile {
            period_bytes: snapshot.period_bytes,
            exact: snapshot.exact,
            time_realtime_ns: snapshot.taken_realtime_ns,
            peak: Some(peak),
            device_peaks,
            modules: self.known.modules.files.clone(),
            locations: Arc::clone(&self.known.locations),
            sites,
            naming: Arc::clone(&self.naming),
            main: snapshot.process.exe.clone(),
            comments: comments(snapshot),
            ..Profile::default()
        };
        (profile, site_of_stacks)
    }

    /// Forgets the stacks, and not the symbols: those of the next snapshot are others.
    pub fn forget_stacks(&mut self) {
        self.known = KnownStacks::default();
    }

    /// Takes what kept names from being found since the last call; each module is reported once.
    pub fn take_warnings(&mut self) -> Vec<SymbolWarning> {
        self.symbols.take_warnings()
    }
}

/// Brings each site to its place, the first `used` of all; those without one go.
fn put_in_order(sites: &mut Vec<Site>, places: &[Option<usize>], used: usize) {
    // Those that go stand behind the others, in any order.
    let mut behind = used;
    let mut last = || {
        behind += 1;
        behind - 1
    };
    let mut goes_to: Vec<usize> = places.iter().map(|place| place.unwrap_or_else(&mut last)).collect();
    for at in 0..sites.len() {
        while goes_to[at] != at {
            let to = goes_to[at];
            sites.swap(at, to);
            goes_to.swap(at, to);
        }
    }
    sites.truncate(used);
    if sites.capacity() > 2 * used {
        sites.shrink_to_fit();
    }
}

/// Whose profile it is, and what it misses.
fn comments(snapshot: &Snapshot) -> Vec<String> {
    let process = &snapshot.process;
    let command = if process.args.is_empty() { process.exe.clone() } else { process.args.join(" ") };
    let mut comments = vec![format!("{command} (pid {}, {})", process.pid, process.state.said())];
    if !snapshot.exact {
        let period = figures::bytes(snapshot.period_bytes as f64);
        comments.push(format!("estimated from samples, one in {period} on average"));
    }
    let missed = snapshot.dropped.total();
    if missed > 0 {
        comments.push(format!("{} lost: figures are too low", figures::count(missed, "sample")));
    }
    for pool in snapshot.devices.iter().filter(|pool| pool.period_bytes() > 1) {
        let (memory, period) = (pool.place.memory().describe(), figures::bytes(pool.period_bytes() as f64));
        let in_use = figures::bytes(pool.get(DeviceCounter::CurrentUsage) as f64);
        comments.push(format!(
            "{memory} {in_use} are in use, as its pool counts; samples, one in {period} now, estimate by whom"
        ));
    }
    comments
}

impl SiteKey {
    fn empty_site(&self) -> Site {
        Site {
            locations: Arc::clone(&self.locations),
            place: self.place,
            incomplete: self.incomplete,
            ..Site::default()
        }
    }
}

impl KnownStacks {
    /// Forgets everything if the snapshot is of another process, or its modules are others than before.
    fn prepare(&mut self, snapshot: &Snapshot) {
        let process = &snapshot.process;
        let owner = Some((process.pid, process.start_realtime_ns, process.start_monotonic_ns));
        let known = self.stacks.iter().map(|&(len, _)| len);
        let same = self.owner == owner
            && self.modules.modules == snapshot.modules
            && self.former == snapshot.former
            && self.stacks.len() <= snapshot.stacks.len()
            && known.eq(snapshot.stacks.iter().take(self.stacks.len()).map(|stack| stack.frames.len()));
        if !same {
            let modules = ModuleIndex::new(&snapshot.modules);
            *self = Self { owner, former: snapshot.former.clone(), modules, ..Self::default() };
        }
    }

    /// The site of a new stack.
    fn add(&mut self, symbols: &mut SymbolCache, snapshot: &Snapshot, index: u32, stack: &Stack) -> usize {
        let process = snapshot.process_of(index);
        let words = stack.frames.to_vec();
        let (frames, label) = label::split(&words);
        let calls = self.calls(symbols, snapshot, index, frames);
        let is_of_host = stack.place == Place::Host;
        let (from, skip) = if is_of_host { self.outside_pool(&calls) } else { self.outside_device_pool(&calls) };
        // Nothing but the pool: then it is the pool that allocated.
        let (from, skip) = if from < calls.len() { (from, skip) } else { (0, 0) };
        let mut locations = Vec::with_capacity(calls.len() - from + 1);
        for (at, call) in calls.iter().enumerate().skip(from) {
            locations.push(match call.location {
                Some(location) if at > from || skip == 0 => location,
                _ => self.look_up(symbols, process, index, call.return_address, if at == from { skip } else { 0 }),
            });
        }
        if locations.is_empty() {
            locations.push(self.unknown_stack());
        }
        if let Some(label) = label {
            locations.push(self.label(&String::from_utf8_lossy(label.bytes())));
        }
        let key = SiteKey { locations: locations.into(), place: stack.place, incomplete: stack.incomplete };
        *self.site_index.entry(Rc::new(key)).or_insert_with_key(|key| {
            self.sites.push(Rc::clone(key));
            self.sites.len() - 1
        })
    }

    /// The calls of a stack, innermost first.
    fn calls(&mut self, symbols: &mut SymbolCache, snapshot: &Snapshot, index: u32, frames: &[u64]) -> Vec<Call> {
        let process = snapshot.process_of(index);
        if self.calls.owner != process.identity() || !self.modules.are_the_same(self.calls.last, index) {
            self.calls.of.clear();
        }
        (self.calls.last, self.calls.owner) = (index, process.identity());
        let call = |&return_address: &u64| {
            let location = self.calls.of.get(&return_address).copied().unwrap_or_else(|| {
                let location = match script::Call::of_word(return_address) {
                    Some(call) => Some(self.script_location(&snapshot.functions, return_address, call)),
                    None => {
                        let (address, module) = self.modules.find(called_at(return_address), index);
                        let is_pool = self.modules.is_pool(module);
                        (!is_pool).then(|| self.location(symbols, process, address, module, 0))
                    }
                };
                let location = location.map(|location| location as u32);
                self.calls.of.insert(return_address, location);
                location
            });
            Call { return_address, location: location.map(|location| location as usize) }
        };
        let mut calls: Vec<Call> = frames.iter().map(call).collect();
        leave_out_trampolines(&mut calls, &self.locations);
        calls
    }

    /// The location of a call of a function that an interpreter ran, by its word.
    fn script_location(&mut self, functions: &Functions, word: u64, call: script::Call) -> usize {
        // Whoever runs it, as the functions of all processes of a recording have numbers of their own.
        let called_from = CalledFrom { address: word, module: None, owner: (0, 0), skip: 0 };
        *self.location_index.entry(called_from).or_insert_with(|| {
            let frames = match functions.get(call.function) {
                Some(function) => vec![frame_of_script(function, &call)],
                None => vec![Location::placeholder(None, word)],
            };
            Arc::make_mut(&mut self.locations).push(Location { address: word, module: None, frames });
            self.locations.len() - 1
        })
    }

    /// The location of a call of a stack, without the `skip` innermost of its functions.
    fn look_up(
        &mut self,
        symbols: &mut SymbolCache,
        process: &ProcessInfo,
        index: u32,
        return_address: u64,
        skip: usize,
    ) -> usize {
        let (address, module) = self.modules.find(called_at(return_address), index);
        self.location(symbols, process, address, module, skip)
    }

    /// Where the program begins in the stack of a block of the host's: the first call, and how many functions that were
    /// inlined there are still the pool's.
    fn outside_pool(&mut self, calls: &[Call]) -> (usize, usize) {
        for (at, call) in calls.iter().enumerate() {
            let Some(location) = call.location else { continue };
            let skip = if call.is_script() { 0 } else { self.pool_functions(location) };
            if skip < self.locations[location].frames.len() {
                return (at, skip);
            }
        }
        (calls.len(), 0)
    }

    /// How many of the innermost functions of a location are the pool's.
    fn pool_functions(&mut self, location: usize) -> usize {
        let functions = &self.locations[location].frames;
        let count = || functions.iter().take_while(|frame| pool_frames::is_pool_frame(frame)).count();
        *self.pool_functions.entry(location).or_insert_with(count)
    }

    /// Names the generated code that had no name when it was seen first.
    fn name_generated(&mut self, symbols: &SymbolCache) {
        let locations = Arc::make_mut(&mut self.locations);
        self.nameless.retain(|(at, process)| {
            let location = &mut locations[*at];
            let name = symbols.generated(*process, location.address);
            name.map(|frame| location.frames = vec![frame]).is_none()
        });
    }

    /// Where the program begins in the stack of a device's block: the first call, and how many functions that were
    /// inlined there are still the pool's. Functions of the standard library may lie between those of the pool.
    fn outside_device_pool(&self, calls: &[Call]) -> (usize, usize) {
        let mut outside = (0, 0);
        for (at, call) in calls.iter().enumerate() {
            let Some(location) = call.location else {
                outside = (at + 1, 0);
                continue;
            };
            let functions = &self.locations[location].frames;
            match functions.iter().rposition(|frame| !call.is_script() && pool_frames::is_device_pool_frame(frame)) {
                Some(last) if last + 1 < functions.len() => outside = (at, last + 1),
                Some(_) => outside = (at + 1, 0),
                None => {}
            }
        }
        outside
    }

    /// The location of an address, without the `skip` innermost of its functions.
    fn location(
        &mut self,
        symbols: &mut SymbolCache,
        process: &ProcessInfo,
        address: u64,
        module: Option<usize>,
        skip: usize,
    ) -> usize {
        let owner = if module.is_some() { (0, 0) } else { process.identity() };
        *self.location_index.entry(CalledFrom { address, module, owner, skip }).or_insert_with(|| {
            let frames = match module {
                Some(index) => symbols.frames(process, &self.modules.files[index], address)[skip..].to_vec(),
                None => vec![symbols.generated(owner, address).unwrap_or_else(|| {
                    self.nameless.push((self.locations.len(), owner));
                    Location::placeholder(None, address)
                })],
            };
            Arc::make_mut(&mut self.locations).push(Location { address, module, frames });
            self.locations.len() - 1
        })
    }

    fn label(&mut self, name: &str) -> usize {
        let name = printable_str(name.to_owned());
        *self.labels.entry(name).or_insert_with_key(|name| {
            Arc::make_mut(&mut self.locations).push(Location::of_label(name));
            self.locations.len() - 1
        })
    }

    fn unknown_stack(&mut self) -> usize {
        *self
            .location_index
            .entry(CalledFrom { address: 0, module: None, owner: (0, 0), skip: usize::MAX })
            .or_insert_with(|| {
                let frame = Frame { name: UNKNOWN_STACK.to_owned(), ..Frame::default() };
                Arc::make_mut(&mut self.locations).push(Location { address: 0, module: None, frames: vec![frame] });
                self.locations.len() - 1
            })
    }
}

/// Leaves out the code that CPython makes for each function with `-X perf` and calls it through, which has its name.
fn leave_out_trampolines(calls: &mut Vec<Call>, locations: &[Location]) {
    if !calls.iter().any(|call| call.is_script()) {
        return;
    }
    let generated = |call: &Call| locations.get(call.location?).filter(|location| location.module.is_none());
    let mut was_script = false;
    calls.retain(|call| {
        // Where functions stand apart from the interpreter's frames, that code has at least their names.
        let is_double = !call.is_script() && generated(call).is_some_and(|location| was_script || is_python(location));
        was_script = call.is_script();
        !is_double
    });
}

/// A function with the line that it was at. Methods that are written in C have neither file nor line.
fn frame_of_script(function: &Function, call: &script::Call) -> Frame {
    if function.file.is_empty() && call.language == Language::Ruby {
        return Frame { name: function.name.clone(), ..Frame::default() };
    }
    // `(eval at /srv/app.rb:12)` names who asked for it, `<internal:/usr/lib/ruby/a.rb>` is Ruby's own.
    let within = ["(eval at ", "<internal:"].into_iter().find(|kind| function.file.starts_with(kind));
    let file = match (within, function.file.rsplit_once('/')) {
        (Some(kind), Some((_, last))) => format!("{kind}{last}"),
        _ => function.file.clone(),
    };
    Frame {
        name: function_name::in_file(&function.name, &file),
        file: Some(file),
        line: Some(function.line(call.at)),
        ..Frame::default()
    }
}

/// The call before the address that it returns to, which may already belong to the next function.
fn called_at(return_address: u64) -> u64 {
    return_address.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_and_the_code_that_calls_it_are_one_wherever_the_two_stand() {
        let named = |name: &str| {
            let (_, file) = name.split_once(" (").unwrap_or_default();
            let file = (!file.is_empty()).then(|| file.trim_end_matches(')').to_owned());
            let module = if name == "eval" { Some(0) } else { None };
            Location { module, frames: vec![Frame { name: name.to_owned(), file, ..Frame::default() }], address: 0 }
        };
        let locations = ["f (a.py)", "eval", "[0x7000]", "jitted"].map(named);
        let of_script = script::Call { language: Language::Python, function: 1, at: None }.word().expect("has room");
        let left = |stack: &[Option<usize>]| {
            let call = |at: &Option<usize>| match at {
                Some(at) => Call { return_address: 0x1000, location: Some(*at) },
                None => Call { return_address: of_script, location: Some(0) },
            };
            let mut calls: Vec<Call> = stack.iter().map(call).collect();
            leave_out_trampolines(&mut calls, &locations);
            calls.iter().map(|call| call.location.filter(|_| !call.is_script())).collect::<Vec<_>>()
        };
        // Named or not, it follows its function, or stands where the interpreter's calls are.
        assert_eq!(left(&[Some(1), None, Some(0), Some(1), None, Some(2)]), [Some(1), None, Some(1), None]);
        assert_eq!(left(&[Some(1), None, None, Some(1), Some(0), Some(3)]), [Some(1), None, None, Some(1), Some(3)]);
        // Without functions that were read, it is all that there is.
        assert_eq!(left(&[Some(1), Some(0), Some(2)]), [Some(1), Some(0), Some(2)]);
    }
}
