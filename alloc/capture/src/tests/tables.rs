//! The unwind tables of the libraries of this process, row by row, beside what gimli makes of them.
use super::*;
use crate::cfi;
use crate::loader;
use crate::rule::{Base, Cfa, Fp, Rule};
use gimli::{BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, RegisterRule, UnwindContext, UnwindSection};

const RBP: gimli::Register = gimli::Register(6);
const RSP: gimli::Register = gimli::Register(7);
const RA: gimli::Register = gimli::Register(16);

/// Rows compared, and those that both could turn into a rule.
fn compare(address: usize) -> (usize, usize) {
    let object = loader::find(address).expect("a module");
    let headers = crate::elf::headers(&object);
    // SAFETY: the loader's and the module's own word for it.
    let tables = unsafe { crate::eh_frame::Tables::new(object.eh_frame_hdr, headers.tables) }.expect("tables");
    // SAFETY: the encoding of every linker, pcrel and 32 bits.
    let distance = unsafe { *((object.eh_frame_hdr + 4) as *const i32) };
    let start = (object.eh_frame_hdr + 4).wrapping_add_signed(distance as isize);
    // SAFETY: the segment that holds the tables is readable.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, headers.tables.1 - start) };
    let section = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(start as u64);
    let mut context = UnwindContext::new();
    let (mut rows, mut rules) = (0, 0);
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).unwrap();
        if fde.cie().is_signal_trampoline() || fde.len() == 0 {
            continue;
        }
        let mut table = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = table.next_row().unwrap() {
            let ours_start = cfi::rule(&tables, row.start_address() as usize);
            let ours_end = cfi::rule(&tables, row.end_address() as usize - 1);
            if row.start_address() >= row.end_address() || row.start_address() >= fde.end_address() {
                continue;
            }
            rows += 1;
            let expected = match row.register(RA) {
                Some(RegisterRule::Undefined) => Some(Rule::Outermost),
                Some(RegisterRule::Offset(-8)) => match *row.cfa() {
                    CfaRule::RegisterAndOffset { register, offset } if register == RBP || register == RSP => {
                        let base = if register == RBP { Base::Fp } else { Base::Sp };
                        let fp = match row.register(RBP) {
                            Some(RegisterRule::Offset(offset)) => Some(Fp::AtCfa(offset as i32)),
                            Some(RegisterRule::Expression(_)) => None,
                            _ => Some(Fp::Same),
                        };
                        fp.map(|fp| Rule::Frame { cfa: Cfa::Offset(base, offset as i32), fp })
                    }
                    CfaRule::RegisterAndOffset { .. } => Some(Rule::Unknown),
                    // Expressions: looked at by hand, not here.
                    CfaRule::Expression(_) => None,
                },
                _ => None,
            };
            if let Some(expected) = expected {
                rules += 1;
                assert_eq!(ours_start, expected, "{:#x} {row:?}", row.start_address());
                assert_eq!(ours_end, expected, "{:#x} {row:?}", row.end_address() - 1);
            }
        }
    }
    (rows, rules)
}

#[test]
fn every_row_is_what_gimli_reads() {
    let mut addresses = vec![compare as *const () as usize, libc::qsort as *const () as usize, system_loader()];
    for (library, symbol) in
        [(c"libstdc++.so.6", c"__cxa_throw"), (c"libcrypto.so.3", c"SHA256_Init"), (c"libm.so.6", c"sin")]
    {
        // SAFETY: ordinary libraries and names of functions.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
            if !handle.is_null() {
                addresses.push(libc::dlsym(handle, symbol.as_ptr()) as usize);
            }
        }
    }
    for address in addresses {
        let (rows, rules) = compare(address);
        std::println!("{address:#x}: {rows} rows, {rules} compared");
        assert!(rows > 20 && rules * 100 >= rows * 95);
    }
}

fn system_loader() -> usize {
    // SAFETY: a function of the loader.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) as usize }
}

#[test]
fn every_rule_survives_packing() {
    for words in [1i32, 2, 7, 4095, 131_071] {
        for saved in [0i32, 2, 3, 4095] {
            for base in [Base::Sp, Base::Fp] {
                let fp = if saved == 0 { Fp::Same } else { Fp::AtCfa(-8 * saved) };
                let rule = Rule::Frame { cfa: Cfa::Offset(base, words * 8), fp };
                assert_eq!(Rule::unpack(rule.pack().unwrap()), Some(rule));
            }
        }
        let rule = Rule::Frame { cfa: Cfa::Stored(Base::Fp, -8 * words, 0), fp: Fp::At(Base::Fp, 0) };
        assert_eq!(Rule::unpack(rule.pack().unwrap()), Some(rule));
    }
    for rule in [Rule::Outermost, Rule::Signal, Rule::Unknown] {
        assert_eq!(Rule::unpack(rule.pack().unwrap()), Some(rule));
    }
    let odd = Rule::Frame { cfa: Cfa::Offset(Base::Sp, 12), fp: Fp::Same };
    assert_eq!(odd.pack(), None);
    let huge = Rule::Frame { cfa: Cfa::Offset(Base::Sp, 131_072 * 8), fp: Fp::Same };
    assert_eq!(huge.pack(), None);
}
