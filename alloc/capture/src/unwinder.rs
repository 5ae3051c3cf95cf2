//! Steps by a module's unwind tables: framehop, with one unwinder for each module.
//!
//! An unwinder is made once, when its module is listed, and never changed. So captures share it without a lock, and
//! what it remembers in a [`Cache`] is bound to this one module: framehop marks each entry with a number that no other
//! unwinder has. A module at the place of an unloaded one has an unwinder of its own.
//!
//! framehop's types are other ones for each processor.

use crate::Caller;
use crate::frame::{ADDRESS_BITS, return_address};
use crate::loader::Object;
#[cfg(target_arch = "x86_64")]
use crate::realigned;
#[cfg(target_arch = "x86_64")]
use crate::rules::USUAL;
use crate::rules::{Base, Rule};
use crate::stack::Window;
use crate::unwind_tables::Tables;
use crate::walk::Step;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, MustNotAllocateDuringUnwind, Unwinder as _};

#[cfg(target_arch = "x86_64")]
mod machine {
    pub(super) use framehop::x86_64::{
        CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as Unwinder,
    };

    pub(super) fn registers(pc: u64, sp: u64, fp: u64) -> Registers {
        Registers::new(pc, sp, fp)
    }

    pub(super) fn fp(registers: &Registers) -> u64 {
        registers.bp()
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use framehop::aarch64::PtrAuthMask;
    pub(super) use framehop::aarch64::{
        CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as Unwinder,
    };

    pub(super) fn registers(pc: u64, sp: u64, fp: u64) -> Registers {
        let addresses = PtrAuthMask((1 << super::ADDRESS_BITS) - 1);
        Registers::new_with_ptr_auth_mask(addresses, pc, sp, fp)
    }

    pub(super) fn fp(registers: &Registers) -> u64 {
        registers.fp()
    }
}

/// What framehop remembers between steps, and its room to work: 33 KiB.
pub(crate) type Cache = machine::Cache<MustNotAllocateDuringUnwind>;

/// A new cache. Allocates.
#[cold]
#[inline(never)]
pub(crate) fn new_cache() -> Cache {
    Cache::new_in()
}

/// Steps out of the functions of one module.
pub(crate) struct Unwinder {
    inner: machine::Unwinder<&'static [u8], MustNotAllocateDuringUnwind>,
    #[cfg(target_arch = "x86_64")]
    tables: Tables,
}

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
        let mut inner = machine::Unwinder::new();
        inner.add_module(Module::new(Default::default(), range.clone(), range.start, sections));
        Some(Self {
            inner,
            #[cfg(target_arch = "x86_64")]
            tables: *tables,
        })
    }

    /// To the caller of the frame that `registers` describe. `called`: its `pc` is a return address, not the place of
    /// an interruption.
    pub(crate) fn step(&self, registers: &Caller, called: bool, stack: &mut Window, cache: &mut Cache) -> Step {
        let pc = registers.pc as u64;
        let address = match FrameAddress::from_return_address(pc) {
            Some(address) if called => address,
            _ => FrameAddress::from_instruction_pointer(pc),
        };
        let mut inner = machine::registers(pc, registers.sp as u64, registers.fp as u64);
        let mut read = |address: u64| stack.word(address as usize).map(|word| word as u64).ok_or(());
        match self.unwind_frame(address, &mut inner, cache, &mut read) {
            Ok(Some(caller)) => {
                let caller = Caller { pc: caller as usize, sp: inner.sp() as usize, fp: machine::fp(&inner) as usize };
                // Stacks grow down: a caller's frame lies above.
                if caller.sp > registers.sp { Step::To(caller) } else { Step::Lost }
            }
            Ok(None) => Step::End,
            Err(_) => Step::Lost,
        }
    }

    /// Framehop's step. A reader of words of one type for all: framehop's code is there once, then, and not for each
    /// reader.
    fn unwind_frame(
        &self,
        address: FrameAddress,
        registers: &mut machine::Registers,
        cache: &mut Cache,
        mut read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    ) -> Result<Option<u64>, framehop::Error> {
        self.inner.unwind_frame(address, registers, cache, &mut read)
    }

    /// What framehop does at a return address. It is asked twice, with registers that are far from each other, and each
    /// word that it reads names its own address: that tells where the caller's registers come from.
    #[cold]
    pub(crate) fn rule(&self, pc: usize, cache: &mut Cache) -> Rule {
        let Some(address) = FrameAddress::from_return_address(pc as u64) else { return Rule::Other };
        let mut ask = |sp: u64, fp: u64| {
            let mut inner = machine::registers(pc as u64, sp, fp);
            let mut read = |address: u64| Ok(address ^ MARK);
            let caller = self.unwind_frame(address, &mut inner, cache, &mut read);
            let now = machine::fp(&inner);
            let saved = if now == fp { None } else { Some(now ^ MARK) };
            caller.map(|caller| caller.map(|pc| (inner.sp(), pc ^ MARK, saved)))
        };
        let [first, second] = PROBES;
        let (a, b) = match (ask(first.0, first.1), ask(second.0, second.1)) {
            (Ok(None), Ok(None)) => return Rule::End,
            (Ok(Some(a)), Ok(Some(b))) => (a, b),
            _ => return Rule::Other,
        };
        let below = |(cfa, _, saved): (u64, u64, Option<u64>)| saved.map_or(0, |at| cfa.wrapping_sub(at));
        let as_usual =
            |found: (u64, u64, Option<u64>)| found.1 == return_address(found.0 as usize, below(found) as usize) as u64;
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
        #[cfg(target_arch = "x86_64")]
        if rule == USUAL {
            // What framehop also says where it can't read the tables.
            return realigned::rule(&self.tables, address.address_for_lookup()).unwrap_or(rule);
        }
        rule
    }
}

/// Two stack pointers with a frame pointer above each.
const PROBES: [(u64, u64); 2] = [(1 << 40, (1 << 40) + (1 << 33)), (1 << 41, (1 << 41) + (1 << 34))];

/// Tells a word that framehop read from the registers that it was given. It is no bit of a signature.
const MARK: u64 = 1 << (ADDRESS_BITS - 2);
