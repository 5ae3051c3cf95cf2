//! A recording's report as one HTML page with charts, which needs nothing from anywhere else.
//!
//! Charts are SVG that is drawn here; the script only sorts tables, folds call paths out and shows figures under the
//! pointer. Everything that comes from the program (names, arguments) is escaped.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::build::site_name::site_text;
use crate::faces::flamegraph;
use crate::faces::text::frame_text;
use crate::model::profile::Metric;
use crate::recording::faces::labels::{
    PART_COLUMNS, View, growth, lifetime_label, part_row, size_label, stream_label, thread_label, time, views,
};
use crate::recording::replay::analysis::{Analysis, Count, Figures, MemoryFigures, StreamFigures};
use crate::words::figures::{bytes, count, grouped};

/// Sites in each table.
const ROWS: usize = 40;
/// Callers that name a site, beside the function itself: many allocate by a few functions of their own.
const CALLERS: usize = 4;

/// Text for HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Writes the page.
pub fn write_page(analysis: &Analysis, mut out: impl Write) -> io::Result<()> {
    let command = analysis.session.command();
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}: recording</title>\n<style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n",
        escaped(&command)
    )?;
    out.write_all(head(analysis).as_bytes())?;
    for view in views(analysis) {
        of_memory(view, &mut out)?;
    }
    writeln!(out, "<script>{SCRIPT}</script>\n</body></html>")?;
    out.flush()
}

/// The sections of one memory.
fn of_memory(view: View<'_>, out: &mut impl Write) -> io::Result<()> {
    let View { analysis, memory } = view;
    let name = view.name();
    if let Some(name) = &name {
        writeln!(out, "<h1>{}</h1>\n<dl>{}</dl>", escaped(name), totals(memory))?;
    }
    let mut section = |title: &str, body: &str| match &name {
        Some(name) => section(out, &format!("{name}: {title}"), body),
        None => section(out, title, body),
    };
    if memory.parts.len() > 1 {
        section("Parts", &parts(memory))?;
    }
    section("In use over time", &timeline(memory))?;
    section("Allocations over time", &rates(memory))?;
    let peak = &memory.peak;
    let title = format!("Peak: {} at {}", bytes(peak.count.bytes as f64), time(peak.time_us));
    section(&title, &sites(view, |site| site.peak, |_| Vec::new(), &[]))?;
    section("Flamegraph of the peak", &flame(view)?)?;
    let lifetime = |site: &Figures| vec![time(site.lifetime_us / site.freed.objects.max(1))];
    section("Allocated", &sites(view, |site| site.allocated, lifetime, &["mean lifetime"]))?;
    let part = |site: &Figures| {
        vec![format!("{:.0}%", 100.0 * site.temporary.objects as f64 / site.allocated.objects.max(1) as f64)]
    };
    let note = "<p>Freed by the same thread before it allocated anything else, or little else.</p>";
    let table = sites(view, |site| site.temporary, part, &["of its allocations"]);
    section("Temporary allocations", &format!("{note}{table}"))?;
    section("In use at the end", &sites(view, |site| site.at_end, |_| Vec::new(), &[]))?;
    if analysis.has_free_stacks() {
        let note = "<p>Call paths that freed blocks, whoever had allocated them.</p>";
        let table = sites(view, |site| site.freed_here, |_| Vec::new(), &[]);
        section("Freed, by who frees", &format!("{note}{table}"))?;
    }
    let grown = |site: &Figures| Count {
        objects: site.at_end.objects.saturating_sub(site.at_start.objects),
        bytes: growth(site).max(0) as u64,
    };
    let to = analysis.question.to_us.min(analysis.end_us);
    let title = format!("Growth from {} to {}", time(analysis.question.from_us), time(to));
    section(&title, &sites(view, grown, |_| Vec::new(), &[]))?;
    section("Sizes", &bars(&memory.sizes, size_label))?;
    section("Lifetimes", &bars(&memory.lifetimes, lifetime_label))?;
    section("Threads", &threads(view))?;
    if view.is_host() {
        return section("Nearly empty pages", &pages(view));
    }
    section("Streams", &streams(memory))
}

fn section(out: &mut impl Write, title: &str, body: &str) -> io::Result<()> {
    writeln!(out, "<section><h2>{}</h2>\n{body}</section>", escaped(title))
}

fn item(name: &str, value: &str) -> String {
    format!("<div><dt>{name}</dt><dd>{}</dd></div>", escaped(value))
}

fn head(analysis: &Analysis) -> String {
    let host = analysis.host();
    let mut text = String::from("<dl>");
    text += &item("recorded for", &time(analysis.end_us));
    text += &totals(host);
    text += &item("threads", &grouped(host.threads.len() as u64));
    text += &item("lost", &count(analysis.summary.lost(), "event"));
    text += &item("file", &bytes(analysis.file_bytes as f64));
    text.push_str("</dl>\n");
    for caution in analysis.cautions() {
        let _ = writeln!(text, "<p class=\"caution\">{}</p>", escaped(caution));
    }
    text
}

/// The figures that a memory's part of the page begins with.
fn totals(memory: &MemoryFigures) -> String {
    let total = &memory.total;
    let mut text = item("allocations", &grouped(total.allocated.objects));
    text += &item("allocated", &bytes(total.allocated.bytes as f64));
    text += &item("peak", &bytes(memory.peak.count.bytes as f64));
    text += &item("in use at the end", &bytes(total.at_end.bytes as f64));
    if memory.unknown_frees > 0 {
        text += &item("frees of blocks from before", &grouped(memory.unknown_frees));
    }
    text
}

fn parts(memory: &MemoryFigures) -> String {
    let head: String = PART_COLUMNS.map(|column| format!("<th>{column}</th>")).concat();
    let mut text = format!("<table><thead><tr>{head}</tr></thead><tbody>");
    for (at, part) in memory.parts.iter().enumerate() {
        let cells = part_row(at + 1, part).map(|cell| format!("<td>{}</td>", escaped(&cell))).concat();
        let _ = write!(text, "<tr>{cells}</tr>");
    }
    text + "</tbody></table>\n"
}

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 24.0;

/// The frame of a chart, with its scales.
fn axes(most: &str, duration_us: u64) -> String {
    let (right, low) = (LEFT + WIDTH, HEIGHT);
    let mut text = format!(
        "<path class=\"axis\" d=\"M{LEFT} 0V{low}H{right}\"/><text x=\"{x}\" y=\"12\" class=\"end\">{}</text>\
         <text x=\"{x}\" y=\"{low}\" class=\"end\">0</text>",
        escaped(most),
        x = LEFT - 6.0
    );
    for quarter in 0..=4u64 {
        let x = LEFT + WIDTH * quarter as f64 / 4.0;
        let _ = write!(
            text,
            "<path class=\"grid\" d=\"M{x} 0V{low}\"/><text x=\"{x}\" y=\"{}\" class=\"mid\">{}</text>",
            low + 16.0,
            time(duration_us / 4 * quarter)
        );
    }
    text
}

fn chart(body: &str) -> String {
    format!("<svg viewBox=\"0 0 {} {}\" role=\"img\">{body}</svg>\n", LEFT + WIDTH + 40.0, HEIGHT + BOTTOM)
}

fn area(values: &[u64], most: u64, class: &str) -> String {
    let step = WIDTH / values.len().max(1) as f64;
    let mut path = format!("M{LEFT} {HEIGHT}");
    for (at, &value) in values.iter().enumerate() {
        let y = HEIGHT - HEIGHT * value as f64 / most.max(1) as f64;
        let x = LEFT + step * at as f64;
        let _ = write!(path, "L{x:.1} {y:.1}L{:.1} {y:.1}", x + step);
    }
    let _ = write!(path, "V{HEIGHT}Z");
    format!("<path class=\"{class}\" d=\"{path}\"/>")
}

/// Invisible columns that say what is under the pointer.
fn tips(memory: &MemoryFigures, tip: impl Fn(usize) -> String) -> String {
    let spans = memory.timeline.len();
    let step = WIDTH / spans.max(1) as f64;
    let mut text = String::new();
    for at in 0..spans {
        let _ = write!(
            text,
            "<rect class=\"tip\" x=\"{:.1}\" y=\"0\" width=\"{step:.2}\" height=\"{HEIGHT}\"><title>{}</title></rect>",
            LEFT + step * at as f64,
            escaped(&tip(at))
        );
    }
    text
}

fn duration(memory: &MemoryFigures) -> u64 {
    memory.span_us.saturating_mul(memory.timeline.len() as u64)
}

fn timeline(memory: &MemoryFigures) -> String {
    let values: Vec<u64> = memory.timeline.iter().map(|span| span.most_bytes).collect();
    let most = values.iter().copied().max().unwrap_or(0);
    let mut body = axes(&bytes(most as f64), duration(memory));
    body += &area(&values, most, "bytes");
    let x = LEFT + WIDTH * memory.peak.time_us as f64 / duration(memory).max(1) as f64;
    let _ = write!(body, "<path class=\"peak\" d=\"M{x:.1} 0V{HEIGHT}\"/>");
    body += &tips(memory, |at| {
        let span = &memory.timeline[at];
        let blocks = count(span.most_objects, "block");
        format!("{}: {} in {blocks}", time(memory.span_us * at as u64), bytes(span.most_bytes as f64))
    });
    chart(&body)
}

fn rates(memory: &MemoryFigures) -> String {
    let per_second = |events: u64| (events as f64 * 1e6 / memory.span_us.max(1) as f64) as u64;
    let allocs: Vec<u64> = memory.timeline.iter().map(|span| per_second(span.allocs)).collect();
    let most = allocs.iter().copied().max().unwrap_or(0);
    let mut body = axes(&format!("{}/s", grouped(most)), duration(memory));
    body += &area(&allocs, most, "rate");
    body += &tips(memory, |at| {
        let span = &memory.timeline[at];
        let (allocs, frees) = (count(span.allocs, "allocation"), count(span.frees, "free"));
        format!("{}: {allocs}, {frees} in {}", time(memory.span_us * at as u64), time(memory.span_us))
    });
    chart(&body)
}

fn bars(list: &[Count], label: impl Fn(usize) -> String) -> String {
    let most = list.iter().map(|count| count.objects).max().unwrap_or(0);
    if most == 0 {
        return "<p>none</p>\n".to_owned();
    }
    let mut text = String::from(
        "<table class=\"bars\"><thead><tr><th></th><th>blocks</th><th>bytes</th><th></th></tr></thead><tbody>",
    );
    for (at, row) in list.iter().enumerate().filter(|(_, row)| row.objects > 0) {
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td><i style=\"width:{:.1}%\"></i></td></tr>",
            escaped(&label(at)),
            grouped(row.objects),
            bytes(row.bytes as f64),
            100.0 * row.objects as f64 / most as f64
        );
    }
    text + "</tbody></table>\n"
}

/// A table of sites with one figure, and more columns if any; each row folds its call path out.
fn sites(
    view: View<'_>,
    of: impl Fn(&Figures) -> Count,
    more: impl Fn(&Figures) -> Vec<String>,
    heads: &[&str],
) -> String {
    let list = view.ranked(|site| of(site).bytes, ROWS);
    if list.is_empty() {
        return "<p>none</p>\n".to_owned();
    }
    let profile = &view.analysis.profile;
    let total: u64 = view.sites().map(|site| of(view.figures(site)).bytes).sum();
    let mut text = String::from("<table class=\"sites\"><thead><tr><th>bytes</th><th>blocks</th><th>share</th>");
    for head in heads {
        let _ = write!(text, "<th>{head}</th>");
    }
    text.push_str("<th>site</th></tr></thead><tbody>");
    for site in list {
        let figures = view.figures(site);
        let Count { objects, bytes: size } = of(figures);
        let _ = write!(
            text,
            "<tr><td data-v=\"{size}\">{}</td><td data-v=\"{objects}\">{}</td><td>{:.1}%</td>",
            bytes(size as f64),
            grouped(objects),
            100.0 * size as f64 / total.max(1) as f64
        );
        for column in more(figures) {
            let _ = write!(text, "<td>{}</td>", escaped(&column));
        }
        let site = &profile.sites[site];
        let title = site_text(profile, site, CALLERS);
        let _ = write!(text, "<td><details><summary>{}</summary><ol>", escaped(&title));
        for frame in profile.frames(site) {
            let _ = write!(text, "<li>{}</li>", escaped(&frame_text(frame)));
        }
        text.push_str("</ol></details></td></tr>");
    }
    text + "</tbody></table>\n"
}

fn threads(view: View<'_>) -> String {
    let View { analysis, memory } = view;
    let did_something = |&thread: &usize| view.is_host() || memory.threads[thread].did_something();
    let mut list: Vec<usize> = (0..memory.threads.len()).filter(did_something).collect();
    list.sort_by_key(|&thread| std::cmp::Reverse(memory.threads[thread].allocated.objects));
    let mut text = String::from(
        "<table><thead><tr><th>thread</th><th>allocations</th><th>bytes</th><th>frees</th><th>of others'</th>\
         <th>temporary</th><th>in use</th><th>lost</th></tr></thead><tbody>",
    );
    for &thread in list.iter().take(ROWS) {
        let figures = &memory.threads[thread];
        let ring = analysis.summary.threads.get(thread).map(|known| known.ring as usize);
        let lost = ring.and_then(|ring| analysis.summary.losses.get(ring)).map_or(0, |ring| ring.allocs + ring.frees);
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&thread_label(analysis, thread)),
            grouped(figures.allocated.objects),
            bytes(figures.allocated.bytes as f64),
            grouped(figures.frees),
            grouped(figures.frees_of_others),
            grouped(figures.temporary.objects),
            bytes(figures.at_end.bytes as f64),
            grouped(lost)
        );
    }
    text.push_str("</tbody></table>\n");
    if list.len() > ROWS {
        let _ = writeln!(text, "<p>and {}</p>", count((list.len() - ROWS) as u64, "other thread"));
    }
    text
}

fn streams(memory: &MemoryFigures) -> String {
    let mut list: Vec<&StreamFigures> = memory.streams.iter().collect();
    list.sort_by_key(|stream| std::cmp::Reverse(stream.allocated.objects));
    let mut text = String::from(
        "<table><thead><tr><th>stream</th><th>allocations</th><th>bytes</th><th>frees</th></tr></thead><tbody>",
    );
    for stream in list.iter().take(ROWS) {
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            stream_label(stream.handle),
            grouped(stream.allocated.objects),
            bytes(stream.allocated.bytes as f64),
            grouped(stream.frees)
        );
    }
    text.push_str("</tbody></table>\n");
    if list.len() > ROWS {
        let _ = writeln!(text, "<p>and {}</p>", count((list.len() - ROWS) as u64, "other stream"));
    }
    text
}

fn pages(view: View<'_>) -> String {
    let pages = &view.analysis.pages;
    let mut text = format!(
        "<p>{} of {} are at most a quarter full at the end and hold {} free. By how full pages of {} are:</p>",
        grouped(pages.sparse),
        count(pages.pages, "page"),
        bytes(pages.held_free as f64),
        bytes(pages.page_bytes as f64)
    );
    let most = pages.tenths.iter().copied().max().unwrap_or(0);
    let step = WIDTH / 10.0;
    let mut body = format!("<path class=\"axis\" d=\"M{LEFT} 0V{HEIGHT}H{}\"/>", LEFT + WIDTH);
    for (at, &tenth) in pages.tenths.iter().enumerate() {
        let height = HEIGHT * tenth as f64 / most.max(1) as f64;
        let x = LEFT + step * at as f64;
        let _ = write!(
            body,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{}</title></rect>\
             <text x=\"{:.1}\" y=\"{}\" class=\"mid\">{}-{}%</text>",
            x + 4.0,
            HEIGHT - height,
            step - 8.0,
            count(tenth, "page"),
            x + step / 2.0,
            HEIGHT + 16.0,
            at * 10,
            at * 10 + 10
        );
    }
    let _ = write!(body, "<text x=\"{}\" y=\"12\" class=\"end\">{}</text>", LEFT - 6.0, grouped(most));
    text += &chart(&body);
    let held = |site: &Figures| Count { objects: site.sparse.objects, bytes: site.held_free };
    let used = |site: &Figures| vec![bytes(site.sparse.bytes as f64)];
    text + "<p>Who holds them, by the free bytes that each holds:</p>" + &sites(view, held, used, &["in use"])
}

/// The flamegraph, as a picture of its own in the page.
fn flame(view: View<'_>) -> io::Result<String> {
    let profile = view.analysis.profile.at_peak().unwrap_or_else(|| view.analysis.profile.clone());
    let profile = profile.only(view.memory.place.memory());
    let mut svg = Vec::new();
    flamegraph::write_flamegraph(&profile, Metric::InUseBytes, "in use at the peak", &mut svg)?;
    let svg = String::from_utf8_lossy(&svg);
    let start = svg.find("<svg").unwrap_or(0);
    // A document of its own: the graph's script takes the first image that it finds for its own.
    let page = format!("<!doctype html><style>body{{margin:0}}svg{{width:100%}}</style>{}", &svg[start..]);
    let height = svg.split("height=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("400");
    Ok(format!("<iframe class=\"flame\" height=\"{}\" srcdoc=\"{}\"></iframe>\n", escaped(height), escaped(&page)))
}

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8884;--fill:#3b82c4;--fill2:#c4783b}
body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em}
h1{font-size:1.3em;overflow-wrap:anywhere}h2{font-size:1.1em;border-bottom:1px solid var(--line);padding-bottom:.2em}
dl{display:flex;flex-wrap:wrap;gap:.5em 2em}dt{opacity:.7}dd{margin:0;font-size:1.2em}
.caution{background:#e8a33d33;border-left:4px solid #e8a33d;padding:.3em .8em;margin:.3em 0}
svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor}
.axis{stroke:currentColor;fill:none}.grid{stroke:var(--line)}.peak{stroke:#d33;stroke-dasharray:4 3}
.bytes{fill:var(--fill)}.rate{fill:var(--fill2)}.bar{fill:var(--fill)}.tip{fill:transparent}.tip:hover{fill:#8886}
.end{text-anchor:end}.mid{text-anchor:middle}
table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.15em .6em;white-space:nowrap;vertical-align:top}
th{cursor:pointer;border-bottom:1px solid var(--line)}
.sites td:last-child,.sites th:last-child{text-align:left;width:100%;white-space:normal;overflow-wrap:anywhere}
td:first-child:not([data-v]),.bars td:last-child{text-align:left}
.bars td:last-child{width:60%}.bars i{display:block;background:var(--fill);height:1em}
details ol{margin:.2em 0 .4em;padding-left:1.6em}.flame{width:100%;border:0}
";

const SCRIPT: &str = "
for(const th of document.querySelectorAll('th'))th.addEventListener('click',()=>{
 const body=th.closest('table').tBodies[0],at=th.cellIndex,down=th.dataset.down!=='1';
 for(const other of th.parentNode.children)delete other.dataset.down;
 th.dataset.down=down?'1':'0';
 const value=row=>{const c=row.cells[at],v=c.dataset.v??c.textContent.replace(/,/g,'');const n=parseFloat(v);return isNaN(n)?c.textContent:n};
 [...body.rows].sort((a,b)=>{const x=value(a),y=value(b),s=x<y?-1:x>y?1:0;return down?-s:s}).forEach(r=>body.append(r));
});
";

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn what_a_program_is_called_is_text_and_no_markup() {
        assert_eq!(escaped("<script>'&\""), "&lt;script&gt;&#39;&amp;&quot;");
    }
}
