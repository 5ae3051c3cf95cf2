//! What the hardened mode says before it ends the process.
//!
//! The first line names the fault, the address and the block. The stacks follow, a line for each frame: the module, and
//! the address in it that `addr2line -e MODULE` takes. Nothing here allocates.

use poolscope_capture::{module, module_count};

use super::records::{Call, Origin, Record, State};
use super::stacks::{Stack, Stacks};
use super::zones::Damage;
use crate::kernel::message::Message;
use crate::kernel::os;

/// What was being done when the fault was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A block is freed.
    Free,
    /// A block is resized.
    Realloc,
    /// A block's size is asked for.
    UsableSize,
    /// A block leaves the quarantine.
    Leave,
    /// The program accesses memory.
    Access,
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The address is no block's.
    Unknown,
    /// The block was freed before.
    Freed,
    /// The program says that the block has so many bytes.
    Size(usize),
    /// The program says that the block has this alignment.
    Align(usize),
    /// It is freed by what goes with another origin.
    Origin(Origin),
    /// Somebody wrote where nobody may.
    Damage(Damage),
    /// Somebody touched a guard page, or a block between guard pages that was freed.
    Touched,
}

/// Everything that is to be printed, apart from the tables that it was taken from.
pub struct Report {
    address: usize,
    action: Action,
    finding: Finding,
    record: Option<Record>,
    now: Stack,
    allocated: Stack,
    freed: Stack,
}

impl Report {
    /// A report on `address`, with the block there or around it and the calling thread's stack.
    pub fn new(
        address: usize,
        action: Action,
        finding: Finding,
        record: Option<Record>,
        now: Stack,
        stacks: &Stacks,
    ) -> Report {
        let stack = |call: fn(&Record) -> Call| record.map_or(Stack::NONE, |record| stacks.get(call(&record).stack));
        let (allocated, freed) = (stack(|record| record.allocated), stack(|record| record.freed));
        Report { address, action, finding, record, now, allocated, freed }
    }

    /// Prints the report and ends the process.
    pub fn abort(&self) -> ! {
        self.print();
        // SAFETY: abort takes nothing and does not return.
        unsafe { libc::abort() }
    }

    /// Prints the report.
    pub fn print(&self) {
        self.first_line().print();
        let freed = self.record.filter(|record| record.state == State::Freed);
        if self.action != Action::Leave {
            let doing = match self.action {
                Action::Free => "freed here",
                Action::Realloc => "resized here",
                Action::UsableSize => "asked for its size here",
                Action::Access | Action::Leave => "accessed here",
            };
            print_stack(doing, os::thread_id(), &self.now);
        }
        if let Some(record) = freed {
            let what = if self.action == Action::Free { "freed before" } else { "freed" };
            print_stack(what, record.freed.thread, &self.freed);
        }
        if let Some(record) = self.record {
            print_stack("allocated", record.allocated.thread, &self.allocated);
        }
    }

    fn first_line(&self) -> Message {
        let Some(record) = self.record else {
            return Message::new(self.verb()).address(self.address).text(", which is not an allocated block");
        };
        let block = |message: Message| message.text("a block of ").number(record.size as u64).text(" bytes");
        let verb = || Message::new(self.verb()).address(self.address);
        match self.finding {
            Finding::Unknown => block(position(verb().text(", which lies "), self.address, &record))
                .text(if record.state == State::Freed { " that was freed before" } else { "" }),
            Finding::Freed if self.action == Action::Free => {
                block(Message::new("double free of ").address(self.address).text(", "))
            }
            Finding::Freed => block(verb().text(", which was freed before: ")),
            Finding::Size(size) => {
                block(verb().text(" with a size of ").number(size as u64).text(" bytes, which does not fit: it is "))
            }
            Finding::Align(align) => {
                block(verb().text(" with an alignment of ").number(align as u64).text(", which does not fit: it is "))
                    .text(" aligned to ")
                    .number(record.align() as u64)
            }
            Finding::Origin(freed) => block(verb().text(" by ").text(freeing(freed)).text(", but "))
                .text(" that ")
                .text(allocating(record.origin))
                .text(" allocated"),
            Finding::Damage(Damage::Behind(at)) => block(Message::new("overflow of ").address(self.address).text(", "))
                .text(": byte ")
                .number((record.size + at) as u64)
                .text(" was written, counted from its start"),
            Finding::Damage(Damage::Before(at)) => {
                block(Message::new("underflow of ").address(self.address).text(", "))
                    .text(": the byte ")
                    .number(at as u64)
                    .text(" before its start was written")
            }
            Finding::Damage(Damage::Freed(at)) => {
                block(Message::new("use after free of ").address(self.address).text(", "))
                    .text(": byte ")
                    .number(at as u64)
                    .text(" was written after it was freed")
            }
            Finding::Touched => {
                let what = if record.state == State::Freed {
                    "use after free"
                } else if self.address < record.address {
                    "underflow"
                } else {
                    "overflow"
                };
                block(position(
                    Message::new(what).text(": access to ").address(self.address).text(", which lies "),
                    self.address,
                    &record,
                ))
            }
        }
    }

    fn verb(&self) -> &'static str {
        match self.action {
            Action::Free => "free of ",
            Action::Realloc => "realloc of ",
            Action::UsableSize => "malloc_usable_size of ",
            Action::Leave | Action::Access => "access to ",
        }
    }
}

fn allocating(origin: Origin) -> &'static str {
    match origin {
        Origin::Malloc => "malloc",
        Origin::New => "operator new",
        Origin::NewArray => "operator new[]",
    }
}

fn freeing(origin: Origin) -> &'static str {
    match origin {
        Origin::Malloc => "free",
        Origin::New => "operator delete",
        Origin::NewArray => "operator delete[]",
    }
}

/// Where an address lies, seen from a block.
fn position(message: Message, address: usize, record: &Record) -> Message {
    let end = record.address + record.size;
    let (bytes, where_to) = if address < record.address {
        (record.address - address, " bytes before ")
    } else if address >= end {
        (address - end, " bytes behind the end of ")
    } else {
        (address - record.address, " bytes inside ")
    };
    if bytes == 0 {
        return message.text(if address < end { "at the start of " } else { "right behind " });
    }
    message.number(bytes as u64).text(where_to)
}

fn print_stack(what: &str, thread: u32, stack: &Stack) {
    Message::new("  ").text(what).text(", thread ").number(u64::from(thread)).text(":").print();
    let frames = stack.frames();
    if frames.is_empty() {
        return Message::new("    (stack unknown)").print();
    }
    let own = own_library();
    let first = frames.iter().position(|frame| !own.is_some_and(|(start, end)| (start..end).contains(frame)));
    for frame in frames.get(first.unwrap_or(0)..).unwrap_or_default() {
        print_frame(*frame);
    }
}

/// A line that `addr2line` takes apart: the module, and the address of the call in it.
fn print_frame(frame: u64) {
    // The return address belongs to the next line of the source.
    let call = frame.wrapping_sub(1);
    let mut name = [0u8; 512];
    match module_at(frame) {
        Some(module) => {
            let path = if module.path.is_empty() { executable(&mut name) } else { module.path };
            Message::new("    ").bytes(path).text("+").address(call.wrapping_sub(module.load_bias) as usize).print();
        }
        None => Message::new("    ").address(call as usize).print(),
    }
}

fn module_at(address: u64) -> Option<poolscope_capture::ModuleInfo> {
    let modules = (0..module_count()).rev().filter_map(module);
    modules.into_iter().find(|module| !module.replaced && module.start <= address && address < module.end)
}

/// The addresses of this library, whose frames nobody wants to see; `None` if it is part of the program.
fn own_library() -> Option<(u64, u64)> {
    let own = module_at(own_library as fn() -> Option<(u64, u64)> as usize as u64)?;
    // SAFETY: reads the auxiliary vector.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) };
    (!(own.start..own.end).contains(&entry)).then_some((own.start, own.end))
}

/// The path of the program.
fn executable(buffer: &mut [u8; 512]) -> &[u8] {
    // SAFETY: the path is a string, the buffer as long as said.
    let len = os::keep_errno(|| unsafe {
        libc::readlink(c"/proc/self/exe".as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
    });
    buffer.get(..usize::try_from(len).unwrap_or(0)).unwrap_or_default()
}
