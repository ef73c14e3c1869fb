//! Rooms of the source import one way only: a lower one never an upper one. ARCHITECTURE.md says which are which.
//!
//! A room is a module of the crate's root. What a file imports is read off its text: the paths that start at `crate`, and
//! those of `super` that leave the room. Comments, literals and what is compiled for tests alone do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Lowest first. Rooms of one row do not import each other, but for the first, which are files of plain data.
const RANKS: [&[&str]; 9] = [
    &["clip", "error", "format", "limit", "nonfinite", "r24", "scalar", "slice"],
    &["exact"],
    &["plan"],
    &["ledger"],
    &["report"],
    &["gpu"],
    &["grad_set"],
    &["scaler"],
    &["reference", "self_test", "environment", "delta_norm"],
];
const MOST_LINES: usize = 450;

fn rank(room: &str) -> Option<usize> {
    RANKS.iter().position(|rooms| rooms.contains(&room))
}

/// Whether files of one room may name the other.
fn allowed(from: &str, to: &str) -> bool {
    match (rank(from), rank(to)) {
        (Some(from), Some(to)) => to < from || (to, from) == (0, 0),
        _ => false,
    }
}

/// The text with comments and literals blanked; line breaks stay.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let word_before = i > 0 && in_word(at(i - 1)) && at(i - 1) != 'b';
        let hashes = chars[i + 1..].iter().take_while(|&&c| c == '#').count();
        let end = match (at(i), at(i + 1)) {
            ('/', '/') => (i..chars.len()).find(|&j| at(j) == '\n').unwrap_or(chars.len()),
            ('/', '*') => end_of_comment(&chars, i),
            ('r', _) if !word_before && at(i + 1 + hashes) == '"' => {
                end_of_raw(&chars, i + 2 + hashes, hashes)
            }
            ('"', _) => end_of_quoted(&chars, i + 1, '"'),
            // A lifetime is no literal.
            ('\'', '\\') => end_of_quoted(&chars, i + 1, '\''),
            ('\'', _) if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        if end == i {
            out.push(at(i));
            i += 1;
            continue;
        }
        out.push(' ');
        out.extend(chars[i..end].iter().filter(|&&c| c == '\n'));
        i = end;
    }
    out
}

fn end_of_comment(chars: &[char], start: usize) -> usize {
    let (mut depth, mut i) = (0usize, start);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    i
}

fn end_of_quoted(chars: &[char], start: usize, quote: char) -> usize {
    let mut i = start;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

fn end_of_raw(chars: &[char], start: usize, hashes: usize) -> usize {
    let closes = |&i: &usize| {
        chars[i] == '"' && chars[i + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    (start..chars.len()).find(closes).map_or(chars.len(), |i| i + 1 + hashes)
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Words, `::`, and every other character by itself.
fn tokens(code: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = if in_word(first) {
            rest.find(|c| !in_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        out.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    out
}

/// The tokens without the items behind `#[cfg(test)]`.
fn without_tests(all: &[String]) -> Vec<String> {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut out = Vec::with_capacity(all.len());
    let mut i = 0;
    while i < all.len() {
        if all[i..].iter().zip(CFG_TEST).filter(|(token, want)| token == want).count() == CFG_TEST.len() {
            i = end_of_item(all, i + CFG_TEST.len());
        } else {
            out.push(all[i].clone());
            i += 1;
        }
    }
    out
}

/// Behind the `;` or the block that an item ends with.
fn end_of_item(all: &[String], start: usize) -> usize {
    let mut depth = 0i32;
    for (i, token) in all.iter().enumerate().skip(start) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && (token == ";" || token == "}") {
            return i + 1;
        }
    }
    all.len()
}

/// The first names of a path's rest, which starts at token `at`: one, or those of a brace.
fn first_names(all: &[String], at: usize) -> Vec<String> {
    if all.get(at).is_none_or(|token| token != "{") {
        return all.get(at).cloned().into_iter().collect();
    }
    let (mut names, mut depth, mut fresh) = (Vec::new(), 1, true);
    for token in &all[at + 1..] {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => fresh = true,
            _ if fresh => {
                names.push(token.clone());
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// What a file names at the root of the crate. `depth`: how far its module is from the root.
fn root_names(text: &str, depth: usize) -> BTreeSet<String> {
    let all = without_tests(&tokens(&code_of(text)));
    let is = |i: usize, want: &str| all.get(i).is_some_and(|token| token == want);
    let mut names = BTreeSet::new();
    for i in 0..all.len() {
        // In the middle of a path.
        if i > 0 && is(i - 1, "::") {
            continue;
        }
        let mut at = i;
        if is(i, "crate") && is(i + 1, "::") {
            at += 2;
        } else {
            let mut left = depth;
            while left > 0 && is(at, "super") && is(at + 1, "::") {
                (left, at) = (left - 1, at + 2);
            }
            if at == i || left > 0 {
                continue;
            }
        }
        names.extend(first_names(&all, at).into_iter().filter(|name| name != "self"));
    }
    names
}

/// What the root declares and exports: names to rooms. A name that is no room's is mapped to itself.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let all = without_tests(&tokens(&code_of(lib)));
    let mut rooms = BTreeMap::new();
    for i in 0..all.len() {
        if all[i] == "mod" && all.get(i + 2).is_some_and(|token| token == ";") {
            rooms.insert(all[i + 1].clone(), all[i + 1].clone());
        }
        if all[i] == "pub" && all.get(i + 1).is_some_and(|token| token == "use") {
            let end = end_of_item(&all, i);
            // An item ends with its `;`, also if a brace comes before.
            let end = (end - 1..all.len()).find(|&j| all[j] == ";").unwrap_or(end);
            let path = &all[i + 2..end];
            for (j, token) in path.iter().enumerate() {
                let next = path.get(j + 1).map_or("}", String::as_str);
                let leaf = matches!(next, "," | "}") && token.chars().all(in_word);
                if leaf {
                    rooms.insert(token.clone(), path[0].clone());
                }
            }
        }
    }
    rooms
}

/// Whether a text has an `impl` of the type itself, and not of a trait for it.
fn implements(text: &str, of: &str) -> bool {
    let all = without_tests(&tokens(&code_of(text)));
    let mut starts = (0..all.len()).filter(|&i| all[i] == "impl");
    starts.any(|start| {
        let mut depth = 0;
        let mut last = "";
        for (i, token) in all.iter().enumerate().skip(start + 1) {
            let token = token.as_str();
            match token {
                "<" => depth += 1,
                // Not that of an arrow.
                ">" if all[i - 1] != "-" => depth -= 1,
                "{" | "where" if depth == 0 => return last == of,
                "for" | "(" | ")" | "=" | ";" if depth == 0 => return false,
                _ if depth == 0 => last = token,
                _ => {}
            }
        }
        false
    })
}

/// A circle among the rooms, if there is one.
fn circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(
        room: &str,
        imports: &BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> bool {
        if let Some(start) = way.iter().position(|before| before == room) {
            way.drain(..start);
            way.push(room.to_owned());
            return true;
        }
        if done.contains(room) {
            return false;
        }
        way.push(room.to_owned());
        if imports.get(room).into_iter().flatten().any(|next| walk(next, imports, way, done)) {
            return true;
        }
        way.pop();
        done.insert(room.to_owned());
        false
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|room| {
        let mut way = Vec::new();
        walk(room, imports, &mut way, &mut done).then_some(way)
    })
}

/// All files below a folder with this extension, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A source file: its path below `src`, its room, how deep its module is, and its text.
struct Source {
    path: String,
    room: String,
    depth: usize,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let read = |file: PathBuf| {
        let below = file.strip_prefix(&src).unwrap().with_extension("");
        let mut parts: Vec<String> =
            below.components().map(|part| part.as_os_str().to_str().unwrap().to_owned()).collect();
        let path = format!("{}.rs", parts.join("/"));
        if parts.last().is_some_and(|last| last == "mod") {
            parts.pop();
        }
        Source { path, room: parts[0].clone(), depth: parts.len(), text: fs::read_to_string(file).unwrap() }
    };
    files(&src, "rs").into_iter().map(read).filter(|source| source.path != "lib.rs").collect()
}

/// What each file imports from other rooms. `Err`: names that the root does not have.
fn imports_of(source: &Source, exports: &BTreeMap<String, String>) -> Result<BTreeSet<String>, String> {
    let mut rooms = BTreeSet::new();
    for name in root_names(&source.text, source.depth) {
        let room = exports
            .get(&name)
            .ok_or_else(|| format!("{}: `crate::{name}` is declared nowhere in lib.rs", source.path))?;
        // wgpu is exported, and no room.
        if rank(room).is_some() && *room != source.room {
            rooms.insert(room.clone());
        }
    }
    Ok(rooms)
}

#[test]
fn lower_rooms_never_import_upper_ones() {
    let exports = exports(&fs::read_to_string(root().join("src/lib.rs")).unwrap());
    assert!(exports.len() > 50, "lib.rs exports more than {exports:?}");
    let mut wrong = String::new();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        if rank(&source.room).is_none() {
            let _ = writeln!(wrong, "{}: the room {} has no rank here", source.path, source.room);
        }
        match imports_of(&source, &exports) {
            Err(unknown) => {
                let _ = writeln!(wrong, "{unknown}");
            }
            Ok(rooms) => {
                for to in rooms.iter().filter(|to| !allowed(&source.room, to)) {
                    let _ =
                        writeln!(wrong, "{}: imports {to}, which is not below {}", source.path, source.room);
                }
                all.entry(source.room).or_default().extend(rooms);
            }
        }
    }
    if let Some(circle) = circle(&all) {
        let _ = writeln!(wrong, "a circle: {}", circle.join(" -> "));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    // What would be empty if nothing were read.
    assert!(all["scaler"].contains("grad_set") && all["grad_set"].contains("gpu"), "{all:?}");
    assert!(all["error"].contains("format") && all["reference"].contains("exact"), "{all:?}");
}

#[test]
fn the_methods_of_a_set_are_in_its_room() {
    let has: Vec<Source> =
        sources().into_iter().filter(|source| implements(&source.text, "GradSet")).collect();
    assert!(has.len() > 1, "none was found");
    let wrong: Vec<&str> = has.iter().filter(|s| s.room != "grad_set").map(|s| s.path.as_str()).collect();
    assert!(wrong.is_empty(), "`impl GradSet` outside src/grad_set: {wrong:?}");
}

#[test]
fn every_file_belongs_to_the_crate() {
    let sources = sources();
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for source in &sources {
        let stem = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
        let (text, name) = match stem.rsplit_once('/') {
            None => (&lib, stem),
            Some((folder, name)) => {
                let names = [format!("{folder}/mod.rs"), format!("{folder}.rs")];
                let parent = sources.iter().find(|other| names.contains(&other.path));
                (&parent.unwrap_or_else(|| panic!("{folder} has no mod.rs")).text, name)
            }
        };
        let all = tokens(&code_of(text));
        let declared = all.windows(3).any(|w| w[0] == "mod" && w[1] == name && w[2] == ";");
        assert!(declared, "src/{} is declared nowhere; delete it or declare it", source.path);
    }
}

#[test]
fn files_stay_short() {
    let mut all = files(&root().join("src"), "rs");
    all.extend(files(&root().join("shaders"), "wgsl"));
    assert!(all.len() > 100, "{} files", all.len());
    let lines = |path: &PathBuf| fs::read_to_string(path).unwrap().lines().count();
    let long: Vec<String> = all
        .iter()
        .map(|path| (path, lines(path)))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(path, lines)| format!("{}: {lines}", path.strip_prefix(root()).unwrap().display()))
        .collect();
    assert!(long.is_empty(), "more than {MOST_LINES} lines: {long:#?}");
}

const LIB: &str = r#"
    //! mod nothing;
    mod format; mod error;
    pub mod plan;
    #[cfg(test)]
    mod only_tests;
    pub use format::Format;
    pub use plan::deep::{Plan, Limits as PlanLimits, window::{cut, Window}};
    pub use wgpu;
"#;

const FILE: &str = r##"
    //! use crate::in_a_doc;
    /* use crate::in_a_comment; /* nested */ use crate::still; */
    use crate::plan::{self, Plan};
    use crate::{
        Error, Format as Other, // crate::behind
        report::{Report, Verdict},
    };
    pub(crate) struct Held<'a>(&'a str, char);
    fn f<'a>(x: &'a crate::limit::Any) -> Held<'a> {
        let quote = ['"', '\'', '\\', 'x'];
        let text = "crate::in_a_string \" crate::too";
        let raw = (r#"crate::raw " "#, br"crate::bytes", r"a\");
        macro_like!(crate::ledger::TAG);
        Held("", quote[0])
    }
    use super::super::scalar::Word;
    use super::sibling;
    use self::crate_like;
    #[cfg(test)]
    use crate::only_in_tests::{A, B};
    #[cfg(test)]
    #[allow(unused)]
    mod tests {
        use crate::reference::step;
        fn g() -> [u8; 4] { [0; 4] }
    }
    #[cfg(feature = "serde")]
    use crate::nonfinite::Nonfinite;
"##;

#[test]
fn the_parser_reads_what_it_should() {
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    let names = ["plan", "Error", "Format", "report", "limit", "ledger", "scalar", "nonfinite"];
    assert_eq!(root_names(FILE, 2), set(&names));
    // One level up is the root.
    assert_eq!(
        root_names("use super::{Error, plan::Plan}; pub(super) fn f() {}", 1),
        set(&["Error", "plan"])
    );
    assert_eq!(root_names("use super::Error;", 2), set(&[]));
    // A glob hides what it imports, and is in no list of exports.
    assert_eq!(root_names("use crate::*;", 1), set(&["*"]));

    let exports = exports(LIB);
    let rooms = [
        ("Format", "format"),
        ("Plan", "plan"),
        ("PlanLimits", "plan"),
        ("Window", "plan"),
        ("cut", "plan"),
        ("error", "error"),
        ("format", "format"),
        ("plan", "plan"),
        ("wgpu", "wgpu"),
    ];
    let want = rooms.map(|(name, room)| (name.to_owned(), room.to_owned()));
    assert_eq!(exports, BTreeMap::from(want));
}

#[test]
fn wrong_imports_are_found() {
    for (from, to, may) in [
        ("gpu", "plan", true),
        ("plan", "gpu", false),
        ("plan", "exact", true),
        ("exact", "plan", false),
        ("clip", "error", true),
        ("clip", "exact", false),
        ("self_test", "reference", false),
        ("reference", "scaler", true),
        ("nowhere", "clip", false),
    ] {
        assert_eq!(allowed(from, to), may, "{from} imports {to}");
    }
    let exports = exports(LIB);
    let source =
        |text: &str| Source { path: "format.rs".into(), room: "format".into(), depth: 1, text: text.into() };
    let found = imports_of(&source("use crate::{Format, Plan, wgpu};"), &exports);
    assert_eq!(found, Ok(BTreeSet::from(["plan".to_owned()])));
    assert!(imports_of(&source("use crate::Elsewhere;"), &exports).is_err());

    let graph = |edges: &[(&str, &str)]| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            all.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        all
    };
    assert_eq!(circle(&graph(&[("a", "b"), ("a", "c"), ("b", "c")])), None);
    let found = circle(&graph(&[("a", "b"), ("b", "c"), ("c", "b")])).unwrap();
    assert_eq!(found, ["b", "c", "b"]);

    for (text, has) in [
        ("impl GradSet { fn f() {} }", true),
        ("impl crate::GradSet {}", true),
        ("impl<'a, T: Into<u8>> GradSet where T: Copy {}", true),
        ("impl<F: Fn() -> u8> GradSet {}", true),
        ("impl From<&GradSet> for Members {}", false),
        ("impl Clone for GradSet {}", false),
        ("impl GradSetBuilder<'_> {}", false),
        ("fn f(x: impl Into<GradSet>) -> impl Fn() { f }", false),
        ("// impl GradSet {}", false),
        ("#[cfg(test)] impl GradSet {}", false),
    ] {
        assert_eq!(implements(text, "GradSet"), has, "{text}");
    }
}
