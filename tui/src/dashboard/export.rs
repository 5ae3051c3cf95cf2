//! What is on the screen, in a file, and the command that gives the same.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use poolscope_profiler::Metric;
use poolscope_profiler::faces::{flamegraph, pprof};
use poolscope_profiler::model::snapshot::ProcessState;
use ratatui::buffer::Buffer;

use super::events::processes::ProcessRow;
use super::frame;
use super::frame::layout::Areas;
use super::input::common::Format;
use super::json::TopJson;
use super::lens::Lens;
use super::model::Model;
use super::model::site::SiteRow;
use super::panes::{Records, VIEWS};
use super::state::{Overlay, State};
use super::widgets::picture::svg;
use super::widgets::plain::text_of;

/// The end of a file's name.
fn extension(format: Format) -> &'static str {
    match format {
        Format::Text => "txt",
        Format::Svg | Format::Picture => "svg",
        Format::Pprof => "pb.gz",
        Format::Json => "json",
        Format::Csv => "csv",
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exported {
    /// The file.
    pub(crate) path: PathBuf,
    /// A command that gives the same; none of what only the dashboard has.
    pub(crate) command: Option<String>,
}

/// Writes what the dashboard shows into a new file in a folder.
pub(crate) fn export(state: &mut State, format: Format, folder: &Path) -> Result<Exported, String> {
    let model = state.model.clone().ok_or("nothing was read yet")?;
    let process = &model.snapshot.process;
    let second = process.start_monotonic_ns.max(model.snapshot.taken_ns) / 1_000_000_000;
    // A picture and a flamegraph of one second are two files, and so are the tables of two views.
    let table = table(state).filter(|_| format == Format::Csv);
    let (has_table, by_command) = (table.is_some(), table.is_none_or(|table| table.by_command));
    let view =
        if format == Format::Picture || has_table { format!("-{}", VIEWS[state.view].name) } else { String::new() };
    let name = format!("poolscope-{}-{}{view}.{}", process.pid, second, extension(format));
    let path = folder.join(&name);
    let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
    let content = content(state, &model, format).map_err(failed)?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(failed)?;
    file.write_all(&content).map_err(failed)?;
    let size = state.size;
    // Only `top` asks servers.
    let (watched, is_here) =
        (state.server.as_ref().map_or_else(|| process.pid.to_string(), ToString::to_string), state.server.is_none());
    let text = state.filter.line().text();
    let filter = if text.is_empty() { String::new() } else { format!(" --filter '{}'", text.replace('\'', "'\\''")) };
    let only_filtered = Lens { filter: Arc::default(), ..state.lens.clone() }.is_clear();
    let command = match format {
        Format::Text => {
            let view = VIEWS[state.view].name;
            Some(format!("poolscope top {watched} --once --view {view} --size {}x{}{filter}", size.width, size.height))
        }
        Format::Svg if filter.is_empty() && is_here && state.pane().drawn().is_none() => {
            Some(format!("poolscope flamegraph {watched} -o {name}"))
        }
        Format::Pprof if filter.is_empty() && is_here => Some(format!("poolscope dump {watched} -o {name}")),
        Format::Json => Some(format!("poolscope top {watched} --json{filter} > {name}")),
        Format::Csv => {
            let view = if has_table { format!(" --view {}", VIEWS[state.view].name) } else { String::new() };
            Some(format!("poolscope top {watched} --csv{view}{filter} > {name}"))
        }
        Format::Picture | Format::Svg | Format::Pprof => None,
    };
    // A process that is gone does not grow again before those who come later.
    let is_seen = matches!(format, Format::Text | Format::Json | Format::Csv) && has_growth_of_the_gone(&model);
    let command = command.filter(|_| only_filtered && !is_seen && by_command);
    Ok(Exported { path, command })
}

/// Whether growth is shown of a process that is gone: only who watched it while it ran has that.
fn has_growth_of_the_gone(model: &Model) -> bool {
    let grew = |row: &SiteRow| row.growth.as_ref().is_some_and(|growth| growth.slope.error() > 0.0);
    model.snapshot.process.state != ProcessState::Running && model.sites.iter().any(grew)
}

fn content(state: &mut State, model: &Model, format: Format) -> io::Result<Vec<u8>> {
    let mut out = BufWriter::new(Vec::new());
    match format {
        Format::Text => out.write_all(text_of(&screen(state)).as_bytes())?,
        Format::Picture => out.write_all(svg(&screen(state)).as_bytes())?,
        Format::Svg => {
            let memory = model.whole.usual_memory();
            let title = |metric: Metric| format!("{}: {} {}", model.program(), metric.describe(), memory.describe());
            // On the flamegraph's own view it is what is drawn there: zoomed, folded, by its figure.
            let is_compared = model.sites.iter().any(|row| row.change.is_some());
            if let Some((metric, paths)) = state.pane().drawn().filter(|_| !is_compared) {
                let shown = model.shown().only(memory);
                flamegraph::write_paths(&shown, &paths, metric, title(metric).trim_end(), &mut out)?;
                return out.into_inner().map_err(io::IntoInnerError::into_error);
            }
            let title = title(Metric::InUseBytes);
            let shown = model.shown().only(memory);
            flamegraph::write_flamegraph(&shown, Metric::InUseBytes, title.trim_end(), &mut out)?;
        }
        Format::Pprof => pprof::write_pprof(&model.shown(), Metric::InUseBytes, &mut out)?,
        Format::Json => {
            let shown = model.shown();
            let value = TopJson::of(model, &shown);
            serde_json::to_writer_pretty(&mut out, &value).map_err(io::Error::other)?;
            out.write_all(b"\n")?;
        }
        Format::Csv => csv(state, &mut out)?,
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

/// The screen without what lies over it.
fn screen(state: &mut State) -> Buffer {
    let overlay = std::mem::replace(&mut state.overlay, Overlay::None);
    let mut buffer = Buffer::empty(state.area());
    frame::draw(state, &mut buffer);
    state.overlay = overlay;
    buffer
}

/// The table that is shown, a line for each row with the exact figures: of a view without one, the call sites.
pub(crate) fn csv(state: &State, out: &mut impl Write) -> io::Result<()> {
    let records = table(state).or_else(|| {
        let model = state.model.as_ref()?;
        let rows = model.sites.iter().map(|row| row.record(&model.profile)).collect();
        Some(Records { fields: SiteRow::FIELDS, rows, by_command: true })
    });
    records.map_or(Ok(()), |records| write_csv(&records, out))
}

/// Processes as a table for programs that read it.
pub(crate) fn records<'a>(shown: impl Iterator<Item = &'a ProcessRow>) -> Records {
    let figure = |figure: Option<u64>| figure.map(|figure| figure.to_string()).unwrap_or_default();
    let record = |row: &ProcessRow| {
        let growth = Some(row.trend).filter(|trend| trend.is_clear());
        vec![
            row.pid.to_string(),
            row.name.clone(),
            figure(row.in_use),
            figure(row.rss),
            growth.map(|trend| format!("{:.0}", trend.per_minute())).unwrap_or_default(),
            row.age.as_secs().to_string(),
            row.arguments.clone(),
            row.user.clone(),
        ]
    };
    Records { fields: PROCESS_FIELDS, rows: shown.map(record).collect(), by_command: true }
}

const PROCESS_FIELDS: &[&str] =
    &["pid", "program", "in_use_bytes", "rss_bytes", "growth_bytes_per_minute", "age_seconds", "arguments", "user"];

/// Writes the table of the processes to choose from into a new file in a folder; gives the file.
pub(crate) fn processes(state: &State, folder: &Path) -> Result<PathBuf, String> {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let path = folder.join(format!("poolscope-processes-{second}.csv"));
    let running = &state.processes.running;
    let shown = state.process_rows.order.iter().filter_map(|&at| running.get(at));
    let records = records(shown);
    let written = File::create(&path).and_then(|file| {
        let mut out = BufWriter::new(file);
        write_csv(&records, &mut out)?;
        out.flush()
    });
    written.map(|()| path.clone()).map_err(|why| format!("cannot write {}: {why}", path.display()))
}

/// Writes a table, its names first.
pub(crate) fn write_csv(records: &Records, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", records.fields.join(","))?;
    for row in &records.rows {
        let fields: Vec<String> = row.iter().map(|field| quoted(field)).collect();
        writeln!(out, "{}", fields.join(","))?;
    }
    Ok(())
}

/// The table that is shown, if it is of something else than the call sites.
fn table(state: &State) -> Option<Records> {
    state.pane().records(&state.scene(Areas::of(state).body))
}

/// A field of RFC 4180.
fn quoted(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

/// What is said of what was written, a line each.
pub(crate) fn lines(exported: &Result<Exported, String>) -> Vec<String> {
    match exported {
        Err(why) => vec![why.clone()],
        Ok(Exported { path, command }) => {
            let mut lines = vec![format!("Wrote {}.", path.display())];
            if let Some(command) = command {
                lines.push("The same later, from a shell:".to_owned());
                lines.push(format!("  {command}"));
            } else {
                lines.push("No command gives the same.".to_owned());
            }
            lines
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use poolscope_profiler::faces::pprof::reader::read_pprof;
    use ratatui::layout::Size;

    use super::*;
    use crate::dashboard::model::fixture;
    use crate::dashboard::theme::{Theme, ThemeChoice};

    fn state() -> State {
        let theme = Theme::choose(ThemeChoice::Dark, |_| None);
        let mut state = State::new("kv".into(), theme, Size::new(120, 36), Duration::from_secs(1));
        state.take_reading(Arc::new(fixture::model()));
        state
    }

    fn written(format: Format) -> (String, Vec<u8>) {
        let folder = std::env::temp_dir().join(format!("poolscope-export-{}-{format:?}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut state = state();
        state.overlay = Overlay::Export;
        let exported = export(&mut state, format, &folder).unwrap();
        assert_eq!(state.overlay, Overlay::Export);
        let content = std::fs::read(&exported.path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        (exported.command.unwrap_or_default(), content)
    }

    #[test]
    fn the_text_is_the_screen_without_the_question() {
        let (command, content) = written(Format::Text);
        assert_eq!(command, "poolscope top 4242 --once --view overview --size 120x36");
        let text = String::from_utf8(content).unwrap();
        assert!(text.contains("Where the memory is") && !text.contains("this screen as text"), "{text}");
        assert_eq!(text.lines().count(), 36);
    }

    #[test]
    fn growth_of_a_killed_process_comes_from_no_command() {
        let command_of = |model: Model, format| {
            let folder = std::env::temp_dir().join(format!("poolscope-gone-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let mut state = state();
            state.take_reading(Arc::new(model));
            let exported = export(&mut state, format, &folder).unwrap();
            std::fs::remove_dir_all(&folder).unwrap();
            exported.command
        };
        let mut killed = fixture::model();
        Arc::make_mut(&mut killed.snapshot).process.state = ProcessState::Killed;
        for format in [Format::Text, Format::Json, Format::Csv] {
            assert_eq!(command_of(killed.clone(), format), None, "{format:?}");
        }
        assert!(command_of(killed.clone(), Format::Pprof).is_some());
        // Whoever came after its end has what the command gives.
        killed.sites.iter_mut().for_each(|row| row.growth = None);
        assert!(command_of(killed, Format::Csv).is_some());
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        let total: f64 = fixture::model().sites.iter().map(|site| site.in_use.bytes).sum();
        let profile = read_pprof(&written(Format::Pprof).1).unwrap();
        let read: f64 = profile.sites.iter().map(|site| site.in_use.bytes).sum();
        assert!((read / total - 1.0).abs() < 1e-3, "{read} and {total}");
        let json: serde_json::Value = serde_json::from_slice(&written(Format::Json).1).unwrap();
        assert!(json["history"].is_array());
        assert!(String::from_utf8(written(Format::Svg).1).unwrap().contains("<svg"));
        let csv = String::from_utf8(written(Format::Csv).1).unwrap();
        let sum: f64 = csv.lines().skip(1).map(|line| line.split(',').next().unwrap().parse::<f64>().unwrap()).sum();
        assert!((sum / total - 1.0).abs() < 1e-3, "{sum} and {total}");
    }

    /// What a person has selected and ordered is what a program gets, whichever table it is.
    #[test]
    fn the_table_of_the_view_is_what_csv_has() {
        let csv_of = |view: &str| {
            let mut state = state();
            state.take_reading(Arc::new(fixture::model_with_devices()));
            state.open(crate::dashboard::panes::named(view).unwrap());
            let mut out = Vec::new();
            csv(&state, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let model = fixture::model_with_devices();
        let threads = csv_of("threads");
        assert!(threads.starts_with("tid,name,state,in_use_bytes,"), "{threads}");
        let mut most: Vec<u64> = model.threads.iter().map(|thread| thread.stats.alloc_bytes).collect();
        most.sort_by_key(|bytes| std::cmp::Reverse(*bytes));
        let listed: Vec<u64> =
            threads.lines().skip(1).map(|line| line.split(',').nth(6).unwrap().parse().unwrap()).collect();
        assert_eq!(listed, most);
        assert_eq!(csv_of("classes").lines().count(), model.classes.len() + 1);
        assert!(csv_of("counters").contains("host,page_heap_free_bytes,"));
        let device = &model.devices[0];
        let nobodys = usize::from(device.unattributed >= 4096.0);
        assert_eq!(csv_of("gpu").lines().count(), device.sites.len() + nobodys + 1);
        assert!(csv_of("gpu").starts_with("in_use_bytes,error_bytes,in_use_objects,function,file\n"));
        let findings = csv_of("findings");
        assert!(findings.starts_with("severity,about,rule,finding,evidence\n"), "{findings}");
        assert_eq!(findings.lines().count(), model.findings.len() + 1);
        let held = |line: &str| line.split(',').next().unwrap().parse::<f64>().unwrap();
        let sites: Vec<f64> = csv_of("sites").lines().skip(1).map(held).collect();
        // What grows comes first, as on the screen.
        let grows = model.sites.iter().filter(|site| site.grows()).count();
        assert!(sites.len() == model.sites.len() && sites[grows..].is_sorted_by(|a, b| a >= b), "{sites:?}");
        assert!(csv_of("leaks").starts_with("leaked,bytes,blocks,oldest_seconds,function,file\n"));
        assert!(csv_of("flame").starts_with("in_use_bytes,"));
    }

    /// Groups of call sites are a table, too, and no command gives it.
    #[test]
    fn groups_are_written_as_they_are_shown() {
        use crate::dashboard::panes::named;
        let mut state = state();
        state.open(named("sites").unwrap());
        let key = crossterm::event::KeyEvent::from(crossterm::event::KeyCode::Char('v'));
        let body = Areas::of(&state).body;
        let view = state.view;
        state.change(view, body, |pane, scene| pane.press(&key, scene));
        let mut out = Vec::new();
        csv(&state, &mut out).unwrap();
        let csv = String::from_utf8(out).unwrap();
        assert!(csv.starts_with("in_use_bytes,with_callees_bytes,"), "{csv}");
        assert!(csv.lines().any(|line| line.contains("kv::store::Store::put")), "{csv}");
        assert!(!table(&state).unwrap().by_command);
    }

    #[test]
    fn a_folder_that_takes_no_file_is_named() {
        let why = export(&mut state(), Format::Text, Path::new("/proc/nowhere")).unwrap_err();
        assert!(why.contains("/proc/nowhere/poolscope-4242-") && why.starts_with("cannot write"), "{why}");
    }
}
