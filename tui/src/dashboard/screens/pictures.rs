//! The pictures of the documentation.

use std::path::Path;

use super::*;
use crate::dashboard::panes::Source;

/// `scripts/pictures.sh` makes them, of the samples as they are.
#[test]
fn every_view_has_a_picture_that_shows_the_views_there_are() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let guide = std::fs::read_to_string(docs.join("guide/dashboard.md")).expect("the guide");
    for view in VIEWS {
        let name = format!("pictures/{}.svg", view.name);
        let picture = std::fs::read_to_string(docs.join(&name));
        let picture = picture.unwrap_or_else(|why| panic!("docs/{name}: {why}: run scripts/pictures.sh"));
        let tabs = VIEWS.iter().filter(|other| other.source == Source::Readings || other.source == view.source);
        for tab in tabs {
            assert!(picture.contains(tab.title), "docs/{name} has no {}: run scripts/pictures.sh", tab.title);
        }
        assert!(guide.contains(&format!("../{name}")), "docs/guide/dashboard.md does not show {name}");
    }
}
