//! Steps by a module's unwind tables: framehop, with one unwinder for each module.
//!
//! An unwinder is made once, when its module is listed, and never changed. So captures share it without a lock, and
//! what it remembers in a [`Cache`] is bound to this one module: framehop marks each entry with a number that no other
//! unwinder has. A module at the place of an unloaded one has an unwinder of its own.
//!
//! framehop reads AArch64's tables as well; there, the procedure call standard (6.2.3) gives every frame a record that
//! the frame pointer chains, and the walk goes along it.

use crate::Caller;
use crate::loader::Object;
#[cfg(target_arch = "x86_64")]
use crate::realigned;
use crate::rules::Rule;
#[cfg(target_arch = "x86_64")]
use crate::rules::{Base, USUAL};
use crate::stack::Window;
use crate::unwind_tables::Tables;
use crate::walk::Step;

#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
#[cfg(target_arch = "x86_64")]
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, MustNotAllocateDuringUnwind, Unwinder as _};

/// What framehop remembers between steps, and its room to work: 33 KiB.
#[cfg(target_arch = "x86_64")]
pub(crate) type Cache = CacheX86_64<MustNotAllocateDuringUnwind>;
/// Not used.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type Cache = ();

/// A new cache. Allocates.
#[cold]
#[inline(never)]
pub(crate) fn new_cache() -> Cache {
    #[cfg(target_arch = "x86_64")]
    Cache::new_in()
}

/// Steps out of the functions of one module.
pub(crate) struct Unwinder {
    #[cfg(target_arch = "x86_64")]
    inner: UnwinderX86_64<&'static [u8], MustNotAllocateDuringUnwind>,
    #[cfg(target_arch = "x86_64")]
    tables: Tables,
}

#[cfg(target_arch = "x86_64")]
impl Unwinder {
    /// An unwinder for a module that the loader just confirmed. Allocates.
    pub(crate) fn new(object: &Object, tables: &Tables) -> Option<Self> {
        let range = object.start as u64..object.end as u64;
        // SAFETY: the walk steps only through modules that the loader confirmed during the same capture.
        let [(header, header_bytes), (frames, frames_bytes)] = unsafe { tables.sections() };
        // Addresses in the file and in memory are the same, as the sections are memory.
        let sections = ExplicitModuleSectionInfo {
            base_svma: range.start,
            eh_frame_hdr_svma: Some(header as u64..range.end),
            eh_frame_hdr: Some(header_bytes),
            eh_frame_svma: Some(frames as u64..range.end),
            eh_frame: Some(frames_bytes),
            ..Default::default()
        };
        let mut inner = UnwinderX86_64::new();
        inner.add_module(Module::new(Default::default(), range.clone(), range.start, sections));
        Some(Self { inner, tables: *tables })
    }

    /// To the caller of the frame that `registers` describe. `called`: its `pc` is a return address, not the place of
    /// an interruption.
    pub(crate) fn step(&self, registers: &Caller, called: bool, stack: &mut Window, cache: &mut Cache) -> Step {
        let pc = registers.pc as u64;
        let address = match FrameAddress::from_return_address(pc) {
            Some(address) if called => address,
            _ => FrameAddress::from_instruction_pointer(pc),
        };
        let mut inner = UnwindRegsX86_64::new(pc, registers.sp as u64, registers.fp as u64);
        let mut read = |address: u64| stack.word(address as usize).map(|word| word as u64).ok_or(());
        match self.inner.unwind_frame(address, &mut inner, cache, &mut read) {
            Ok(Some(caller)) => {
                let caller = Caller { pc: caller as usize, sp: inner.sp() as usize, fp: inner.bp() as usize };
                // Stacks grow down: a caller's frame lies above.
                if caller.sp > registers.sp { Step::To(caller) } else { Step::Lost }
            }
            Ok(None) => Step::End,
            Err(_) => Step::Lost,
        }
    }

    /// What framehop does at a return address. It is asked twice, with registers that are far from each other, and each
    /// word that it reads names its own address: that tells where the caller's registers come from.
    #[cold]
    pub(crate) fn rule(&self, pc: usize, cache: &mut Cache) -> Rule {
        let Some(address) = FrameAddress::from_return_address(pc as u64) else { return Rule::Other };
        let mut ask = |sp: u64, fp: u64| {
            let mut inner = UnwindRegsX86_64::new(pc as u64, sp, fp);
            let mut read = |address: u64| Ok(address ^ MARK);
            let caller = self.inner.unwind_frame(address, &mut inner, cache, &mut read);
            let saved = if inner.bp() == fp { None } else { Some(inner.bp() ^ MARK) };
            caller.map(|caller| caller.map(|pc| (inner.sp(), pc ^ MARK, saved)))
        };
        let [first, second] = PROBES;
        let (a, b) = match (ask(first.0, first.1), ask(second.0, second.1)) {
            (Ok(None), Ok(None)) => return Rule::End,
            (Ok(Some(a)), Ok(Some(b))) => (a, b),
            _ => return Rule::Other,
        };
        let as_usual = |(cfa, pc_at, _): (u64, u64, Option<u64>)| pc_at.wrapping_add(8) == cfa;
        let below = |(cfa, _, saved): (u64, u64, Option<u64>)| saved.map_or(0, |at| cfa.wrapping_sub(at));
        let above = |from: fn((u64, u64)) -> u64| {
            let cfa = a.0.wrapping_sub(from(first));
            (cfa == b.0.wrapping_sub(from(second))).then_some(cfa)
        };
        if !as_usual(a) || !as_usual(b) || below(a) != below(b) || a.2.is_some() != b.2.is_some() {
            return Rule::Other;
        }
        let rule = match (above(|registers| registers.0), above(|registers| registers.1)) {
            (Some(cfa), _) => Rule::offset(Base::Sp, cfa, below(a)),
            (None, Some(cfa)) => Rule::offset(Base::Fp, cfa, below(a)),
            (None, None) => Rule::Other,
        };
        // What framehop also says where it can't read the tables.
        if rule == USUAL { realigned::rule(&self.tables, address.address_for_lookup()).unwrap_or(rule) } else { rule }
    }
}

/// Two stack pointers with a frame pointer above each.
#[cfg(target_arch = "x86_64")]
const PROBES: [(u64, u64); 2] = [(1 << 40, (1 << 40) + (1 << 33)), (1 << 41, (1 << 41) + (1 << 34))];

/// Tells a word that framehop read from the registers that it was given.
#[cfg(target_arch = "x86_64")]
const MARK: u64 = 1 << 60;

#[cfg(not(target_arch = "x86_64"))]
impl Unwinder {
    /// There is none.
    pub(crate) fn new(_: &Object, _: &Tables) -> Option<Self> {
        None
    }

    /// Not called.
    pub(crate) fn step(&self, _: &Caller, _: bool, _: &mut Window, _: &mut Cache) -> Step {
        Step::Lost
    }

    /// Not called.
    pub(crate) fn rule(&self, _: usize, _: &mut Cache) -> Rule {
        Rule::Other
    }
}
