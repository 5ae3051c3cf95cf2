//! A page of Markdown with figures between two marks.

use crate::error::Result;

const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->\n";

/// The page with the figures in place of what lay between the marks; a new page if there is none.
pub fn insert(page: Option<&str>, figures: &str) -> Result<String> {
    let Some(page) = page else { return Ok(format!("{BEGIN}{figures}{END}")) };
    let marks = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = marks.ok_or(format!("the page has no lines {} and {}", BEGIN.trim(), END.trim()))?;
    Ok(format!("{before}{BEGIN}{figures}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_figures_take_the_place_of_the_old_ones_and_leave_the_page_as_it_is() {
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let once = insert(Some(&page), "new\n").expect("it has marks");
        assert!(once.starts_with("before\n") && once.ends_with("after\n") && !once.contains("old"));
        assert_eq!(insert(Some(&once), "new\n").expect("it still has"), once);
    }

    #[test]
    fn a_page_without_marks_is_left_alone() {
        assert!(insert(Some("someone's page\n"), "new\n").is_err());
    }
}
