//! Functions of Python's in the stacks of a recording.

use poolscope_wire::script::{Call, Head, Language, Lines};

use super::{Film, Question, Recording, analysis, appended, saved};

/// A function of Python's, as a program describes it: it has one line, the third.
fn function(name: &[u8; 8]) -> Vec<u64> {
    let head = Head { first_line: 3, lines: Lines::Ranges, lens: [8, 0, 0] };
    [&head.words()[..], &[u64::from_le_bytes(*name)]].concat()
}

fn call(function: u32) -> u64 {
    Call { language: Language::Python, function, at: None }.word().unwrap()
}

#[test]
fn stacks_name_the_functions_of_python_of_their_own_part_and_equal_ones_are_one_site() {
    let fill = |function_of_program: u32| {
        move |part: &mut Recording| {
            let read =
                |number: u32| Some(function(if number == function_of_program { b"fill    " } else { b"<module>" }));
            let frames = [call(function_of_program), call(77)];
            let stack = part.paths.intern_from(&frames, 0, read);
            let origin = part.at(1, 0);
            part.matcher.alloc(&mut part.writer, 0x1000, 64, stack, origin);
        }
    };
    let mut first = Recording::new();
    fill(500)(&mut first);
    // The other part met another function first.
    let bytes = appended(&first.finish(0), |part| {
        part.paths.intern_from(&[call(3)], 0, |_| Some(function(b"other   ")));
        fill(2)(part);
    });
    let analysis = analysis(&bytes, Question::default());
    let profile = &analysis.profile;
    assert_eq!((profile.sites.len(), profile.sites[0].allocated.objects), (1, 2.0));
    let frames: Vec<_> = profile.frames(&profile.sites[0]).map(|frame| (frame.name.as_str(), frame.line)).collect();
    assert_eq!(frames, [("fill     ()", Some(3)), ("<module> ()", Some(3))]);

    let (_folder, path) = saved(&bytes);
    let mut film = Film::open(&path).unwrap();
    let frame = film.at(u64::MAX).unwrap();
    let number = |word: u64| Call::of_word(word).map(|call| call.function);
    let of_last: Vec<u32> =
        frame.snapshot.stacks.last().unwrap().frames.to_vec().into_iter().filter_map(number).collect();
    let name = |number: u32| frame.snapshot.functions.get(number).unwrap().name.trim().to_owned();
    assert_eq!(of_last.into_iter().map(name).collect::<Vec<_>>(), ["fill", "<module>"]);
}
